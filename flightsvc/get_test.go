package flightsvc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

// want are rows [from, to) as texts shows them, sorted.
func want(from, to int, tag string) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf(`{"k":%d,"n":%d,"v":"%s%d"}`, i, i%10, tag, i))
	}
	slices.Sort(out)
	return out
}

// A log and a keyed table give what was written: by path, by command, by JSON in
// the ticket's place; narrow, filtered, in any compression; empty ones give a schema.
func TestReads(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	for _, keyed := range []bool{false, true} {
		name := fmt.Sprintf("d.t%v", keyed)
		f.table(fmt.Sprintf("t%v", keyed), keyed, 3)
		require.Empty(t, f.scan(c, pathOf(name)))
		f.mustWrite(c, pathOf(name), rows(0, 500, "a"), rows(500, 1000, "a"))
		require.Equal(t, want(0, 1000, "a"), f.sorted(c, pathOf(name)))
		for _, codec := range []string{"stored", "none", "lz4", "zstd"} {
			require.Equal(t, want(0, 1000, "a"), f.sorted(c, commandOf(obj{"op": "scan", "table": name, "compression": codec})), codec)
		}
		require.Equal(t, []string{`{"v":"a17"}`, `{"v":"a18"}`}, f.sorted(c, commandOf(obj{"op": "scan", "table": name, "columns": []string{"v"}, "filter": "k BETWEEN ? AND 18", "params": []int{17}})))
		r, err := f.open(c, jsonOf(obj{"table": name, "filter": "n = 3"}))
		require.NoError(t, err)
		got, last := r.drain()
		require.Len(t, got, 100)
		require.EqualValues(t, 1000, last.Stats.RowsRead)
		require.Positive(t, last.Stats.BytesShipped)
		require.Equal(t, 3, last.Stats.Buckets)
		require.Len(t, last.Offsets, 3, "and where the changes since begin")
	}
	f.mustWrite(c, pathOf("d.ttrue"), rows(0, 2, "b"))
	require.Equal(t, []string{"+I a0", "-U a0", "+U b0"}, changes(f, c, "k = 0"))
}

// changes are the changes of d.ttrue under a filter: type and v.
func changes(f *fixture, c flight.Client, filter string) []string {
	r, err := f.open(c, jsonOf(obj{"op": "scan", "table": "d.ttrue$changelog", "filter": filter}))
	require.NoError(f.t, err)
	got, _ := r.drain()
	out := make([]string, len(got))
	for i, text := range got {
		var row struct {
			Type string `json:"_change_type"`
			V    string
		}
		require.NoError(f.t, json.Unmarshal([]byte(text), &row))
		out[i] = row.Type + " " + row.V
	}
	return out
}

// wide is a batch of n rows with a text of size bytes of noise each.
func wide(n, size int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, knSchema)
	defer b.Release()
	text := noise(size)
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(text[i:] + text[:i])
		b.Field(2).(*array.Int32Builder).Append(1)
	}
	return b.NewRecordBatch()
}

// However large the batches are that were written, and whatever the compression, a
// stock client with its limit of 4 MiB reads them: every message is below it.
func TestMessagesStaySmall(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("log", false, 1)
	f.table("keyed", true, 1)
	big := wide(30, 900<<10) // 27 MiB
	for _, name := range []string{"log", "keyed"} {
		f.mustWrite(c, pathOf("d", name), big)
		for _, codec := range []string{"stored", "none", "zstd"} {
			st, err := c.DoGet(f.ctx(), &flight.Ticket{Ticket: jsonOf(obj{"table": "d." + name, "compression": codec})})
			require.NoError(t, err)
			var total, most int
			for {
				fd, err := st.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				most = max(most, proto.Size(fd))
				var m meta
				if len(fd.AppMetadata) > 0 {
					require.NoError(t, json.Unmarshal(fd.AppMetadata, &m))
				}
				total += m.Rows
			}
			require.Equal(t, 30, total)
			require.Less(t, most, 4<<20-64<<10)
			if codec == "none" {
				require.Greater(t, most, 1<<20, "and is not cut needlessly")
			}
		}
		require.Len(t, f.scan(c, pathOf("d", name)), 30)
	}
}

// Stored batches go to the wire as they lie: the message of a batch has the body
// that the segment encoder makes of the same rows.
func TestStoredBytesAreSentAsTheyLie(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	tbl := f.table("t", false, 1)
	rec := rows(0, 20_000, "value ")
	f.mustWrite(c, pathOf("d.t"), rec)
	payload, err := segment.AppendColumns(nil, tbl.Schema, rec, nil, segment.EncodeOptions{})
	require.NoError(t, err)
	st, err := c.DoGet(f.ctx(), &flight.Ticket{Ticket: jsonOf(obj{"table": "d.t"})})
	require.NoError(t, err)
	_, err = st.Recv()
	require.NoError(t, err)
	fd, err := st.Recv()
	require.NoError(t, err)
	require.Greater(t, len(fd.DataBody), 40_000)
	require.Contains(t, string(payload), string(fd.DataBody[:1000]))
	require.Contains(t, string(payload), string(fd.DataBody[len(fd.DataBody)-1000:]))
	require.Less(t, len(fd.DataBody), 300_000, "540 kB, compressed")
}

// Every type comes back as it went in, through both kinds of tables.
func TestTypesThereAndBack(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	texts := []string{
		"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38,9)", "CHAR(3)", "STRING", "BINARY(4)", "BYTES", "DATE", "TIME(0)", "TIME(6)", "TIME(9)",
		"TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)", "ARRAY<STRING>", "MAP<STRING,BIGINT>", "ROW<a BIGINT, b ARRAY<DOUBLE>>",
	}
	cols := []millrace.Column{{ID: 1, Name: "k", Type: millrace.DataType{Kind: millrace.BigInt}}}
	for i, text := range texts {
		typ, err := millrace.ParseType(text)
		require.NoError(t, err)
		cols = append(cols, millrace.Column{ID: millrace.ColumnID(100 * (i + 1)), Name: fmt.Sprintf("c%d", i), Type: numbered(typ, millrace.ColumnID(100*(i+1))), Nullable: true})
	}
	for _, keyed := range []bool{false, true} {
		name := fmt.Sprintf("t%v", keyed)
		f.tableOf(name, keyed, 2, cols...)
		res, err := c.GetSchema(f.ctx(), pathOf("d", name))
		require.NoError(t, err)
		schema, err := flight.DeserializeSchema(res.Schema, nil)
		require.NoError(t, err)
		const values = `"c0":true,"c1":-128,"c2":32767,"c3":-2147483648,"c4":9007199254740993,"c5":1.5,"c6":-2.25,"c7":"12345678901234567890.123456789","c8":"abc","c9":"ünï","c10":"AQIDBA==","c11":"AAA=",
			"c12":"2026-11-29","c13":"10:00:00","c14":"10:00:00.123456","c15":"10:00:00.123456789","c16":"2026-11-29 10:00:00","c17":"2026-11-29 10:00:00.123","c18":"2026-11-29 10:00:00.123456",
			"c19":"2026-11-29 10:00:00.123456789","c20":"2026-11-29T10:00:00.123Z","c21":["a",null,""],"c22":[{"key":"x","value":1},{"key":"y","value":null}],"c23":{"a":7,"b":[1.5,null]}`
		rec := batchOf(t, schema, `[{"k":1,`+values+`},{"k":2},{"k":3,"c21":[],"c22":[],"c23":{"a":null,"b":null}}]`)
		f.mustWrite(c, pathOf("d", name), rec)
		got := f.sorted(c, pathOf("d", name))
		require.Equal(t, texts3(t, rec), got)
	}
}

func texts3(t *testing.T, rec arrow.RecordBatch) []string {
	out := texts(t, rec)
	slices.Sort(out)
	return out
}

// numbered gives the fields of a type ids.
func numbered(t millrace.DataType, next millrace.ColumnID) millrace.DataType {
	t.Children = slices.Clone(t.Children)
	for i := range t.Children {
		next++
		t.Children[i].ID = next
		t.Children[i].Type = numbered(t.Children[i].Type, next*10)
	}
	return t
}

// A reader that stops reading blocks itself alone: others go on, and after the
// time-out its stream ends with Unavailable and lets go of what it held.
func TestStalledReader(t *testing.T) {
	f := newFixture(t, stallAfter(2*time.Second))
	c := f.dial()
	f.table("t", true, 1)
	f.mustWrite(c, pathOf("d.t"), wide(30, 900<<10))
	f.table("small", true, 1)
	st, err := c.DoGet(f.ctx(), &flight.Ticket{Ticket: jsonOf(obj{"table": "d.t", "compression": "none"})})
	require.NoError(t, err)
	_, err = st.Recv()
	require.NoError(t, err)
	for i := range 20 {
		f.mustWrite(c, pathOf("d.small"), rows(i, i+1, "a"))
	}
	require.Len(t, f.scan(c, pathOf("d.small")), 20)
	require.Eventually(t, func() bool {
		return f.metric("millrace_flight_stalled_streams_total") == 1 && f.metric("millrace_flight_open_streams") == 0
	}, time.Minute, 20*time.Millisecond)
	for err == nil {
		_, err = st.Recv()
	}
	refused(t, err, codes.Unavailable, errs.Unavailable)
}

// A client that goes away in the middle ends the call at once.
func TestCancelledReader(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1)
	f.mustWrite(c, pathOf("d.t"), wide(30, 900<<10))
	for _, request := range []obj{{"table": "d.t"}, {"table": "d.t", "until": "never"}} {
		ctx, cancel := context.WithCancel(f.ctx())
		st, err := c.DoGet(ctx, &flight.Ticket{Ticket: jsonOf(request)})
		require.NoError(t, err)
		_, err = st.Recv()
		require.NoError(t, err)
		cancel()
		require.Eventually(t, func() bool { return f.metric("millrace_flight_open_streams") == 0 }, time.Minute, 5*time.Millisecond)
	}
}

// What is read is what the reader's own IPC writer would make: a stock reader
// with checks on takes a batch of no rows and one of all NULLs.
func TestEmptyAndNullBatches(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1)
	f.mustWrite(c, pathOf("d.t"), batchOf(t, knSchema, `[{"k":1},{"k":2}]`))
	st, err := c.DoGet(f.ctx(), &flight.Ticket{Ticket: jsonOf(obj{"table": "d.t"})})
	require.NoError(t, err)
	r, err := flight.NewRecordReader(st, ipc.WithAllocator(memory.NewCheckedAllocator(memory.DefaultAllocator)))
	require.NoError(t, err)
	n := 0
	for r.Next() {
		for _, col := range r.RecordBatch().Columns() {
			require.NoError(t, array.ValidateFull(col))
		}
		n++
	}
	require.NoError(t, r.Err())
	require.Equal(t, 2, n, "the rows, and the statistics")
	r.Release()
}
