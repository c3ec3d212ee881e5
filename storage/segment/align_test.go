package segment_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/storagetest"
)

// altered is a random history of a table's schema, and rows written in each version.
type altered struct {
	*storagetest.History
	rows     [][]storagetest.Values // by version
	payloads [][]byte               // columns, or compact rows when few
}

func newAltered(t testing.TB, rng *rand.Rand) *altered {
	a := &altered{History: storagetest.NewHistory(rng, storagetest.NewTable(1, 1, 1, 0, "id BIGINT", "s STRING",
		"n TINYINT", "f FLOAT", "d DECIMAL(5,2)", "r ROW<a INT, b ROW<x SMALLINT, y STRING>>", "l ARRAY<ROW<u FLOAT, v STRING>>", "m MAP<STRING, ROW<w INT>>").Table)}
	for range 6 {
		s := a.Newest().Schema
		var rows []storagetest.Values
		for range rng.IntN(40) {
			rows = append(rows, a.Values(s.Columns))
		}
		rec := storagetest.RecordOf(s.Columns, rows)
		var b []byte
		if rng.IntN(3) == 0 {
			c := row.NewCodec(s)
			compact := make([][]byte, len(rows))
			for i := range rows {
				compact[i] = c.AppendRow(nil, rec, i)
			}
			b = segment.AppendRows(nil, s.ID, nil, compact)
		} else {
			var err error
			b, err = segment.AppendColumns(nil, s, rec, nil, segment.EncodeOptions{Codec: segment.Codec(rng.IntN(3))})
			require.NoError(t, err)
		}
		rec.Release()
		a.rows, a.payloads = append(a.rows, rows), append(a.payloads, b)
		a.Alter()
	}
	return a
}

func (a *altered) schemas(id millrace.SchemaID) *millrace.Schema {
	for _, v := range a.Versions {
		if v.Schema.ID == id {
			return v.Schema
		}
	}
	return nil
}

func align(rows []storagetest.Values, cols []millrace.Column) []storagetest.Values {
	out := make([]storagetest.Values, len(rows))
	for i, r := range rows {
		out[i] = r.Align(cols)
	}
	return out
}

// Shows that payloads of any version of a schema give the newest version's columns,
// nested fields included, as a model by column id has them: decoded, shipped as a
// message, and merged with others into one payload.
func TestAlign(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			a := newAltered(t, rand.New(rand.NewPCG(seed, 1)))
			newest := a.Newest().Schema
			var parts []*segment.Payload
			var all []storagetest.Values
			for i, b := range a.payloads {
				p, err := segment.OpenBytes(b)
				require.NoError(t, err)
				parts, all = append(parts, p), append(all, a.rows[i]...)
				// Some of the columns, in another order.
				want := slices.Clone(newest.Columns)
				a.Rng.Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
				want = want[:1+a.Rng.IntN(len(want))]
				rec, err := p.Record(memory.DefaultAllocator, a.schemas, want)
				require.NoError(t, err)
				require.Equal(t, align(a.rows[i], want), storagetest.ValuesOf(rec, want))
				m, err := p.Message(a.schemas, want, nil, segment.Stored)
				require.NoError(t, err)
				requireShipped(t, rec, m)
				rec.Release()
			}
			b, err := segment.Merge(nil, memory.DefaultAllocator, a.schemas, newest, parts, segment.EncodeOptions{})
			require.NoError(t, err)
			p, err := segment.OpenBytes(b)
			require.NoError(t, err)
			rec, err := p.Record(memory.DefaultAllocator, a.schemas, newest.Columns)
			require.NoError(t, err)
			require.Equal(t, align(all, newest.Columns), storagetest.ValuesOf(rec, newest.Columns))
			rec.Release()
		})
	}
}

// requireShipped reads a message with a stock reader.
func requireShipped(t testing.TB, want arrow.RecordBatch, m *segment.Message) {
	t.Helper()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(want.Schema()))
	require.NoError(t, w.Close())
	b.Truncate(b.Len() - 8) // the end of the stream
	_, err := m.WriteTo(&b)
	require.NoError(t, err)
	r, err := ipc.NewReader(&b)
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next(), "%v", r.Err())
	require.True(t, array.RecordEqual(want, r.RecordBatch()))
}

// Shows that a reader of an older version gets from newer payloads the values that
// fit its types, as they were, and otherwise is told that the schema changed.
func TestAlignToOlder(t *testing.T) {
	read, changed := 0, 0
	for seed := range uint64(60) {
		a := newAltered(t, rand.New(rand.NewPCG(seed, 2)))
		for v, d := range a.Versions[:len(a.payloads)] {
			for i := v; i < len(a.payloads); i++ {
				p, err := segment.OpenBytes(a.payloads[i])
				require.NoError(t, err)
				for _, c := range d.Schema.Columns {
					later := a.Versions[i].Schema
					if later.IndexID(c.ID) < 0 || c.Type.Nested() {
						continue
					}
					want := []millrace.Column{c}
					rec, err := p.Record(memory.DefaultAllocator, a.schemas, want)
					if !fits(a.rows[i], c) {
						require.True(t, errs.Is(err, errs.SchemaChanged), "%v", err)
						changed++
						continue
					}
					require.NoError(t, err)
					require.Equal(t, align(a.rows[i], want), storagetest.ValuesOf(rec, want), "seed %d", seed)
					rec.Release()
					read++
				}
			}
		}
	}
	require.Greater(t, read, 100)
	require.Greater(t, changed, 10)
}

// fits says whether all values of a column fit its type.
func fits(rows []storagetest.Values, c millrace.Column) bool {
	for _, r := range rows {
		switch v := r[c.ID].(type) {
		case int64:
			bits := map[millrace.Kind]int{millrace.TinyInt: 7, millrace.SmallInt: 15, millrace.Int: 31}[c.Type.Kind]
			if bits > 0 && (v >= 1<<bits || v < -1<<bits) {
				return false
			}
			// Decimals that are drawn have five digits at most, and fit all types.
		case float64:
			if c.Type.Kind == millrace.Float && float64(float32(v)) != v {
				return false
			}
		}
	}
	return true
}

// Shows that what lies where a ROW is NULL is not looked at: it may be anything.
func TestAlignLooksAtNoValueUnderNull(t *testing.T) {
	wide := &millrace.Schema{ID: 2, Columns: numbered("ROW<a BIGINT>")}
	narrow := numbered("ROW<a INT>")
	child := array.NewInt64Builder(memory.DefaultAllocator)
	child.AppendValues([]int64{1 << 40, 7}, nil)
	values := child.NewArray()
	data := array.NewData(row.ArrowType(wide.Columns[0].Type), 2, []*memory.Buffer{memory.NewBufferBytes([]byte{2})}, []arrow.ArrayData{values.Data()}, 1, 0)
	rec := array.NewRecordBatch(row.ArrowSchema(wide.Columns), []arrow.Array{array.MakeFromData(data)}, 2)
	b, err := segment.AppendColumns(nil, wide, rec, nil, segment.EncodeOptions{})
	require.NoError(t, err)
	p, err := segment.OpenBytes(b)
	require.NoError(t, err)
	got, err := p.Record(memory.DefaultAllocator, func(millrace.SchemaID) *millrace.Schema { return wide }, narrow)
	require.NoError(t, err)
	require.Equal(t, []storagetest.Values{{1: nil}, {1: storagetest.Values{2: int64(7)}}}, storagetest.ValuesOf(got, narrow))
}

func numbered(typ string) []millrace.Column {
	return storagetest.NewHistory(nil, storagetest.NewTable(1, 1, 1, 0, "c "+typ).Table).Newest().Schema.Columns
}

// Shows that a batch without a column is skipped exactly when a filter cannot take
// a NULL in it, and one where the column was narrower by its bounds.
func TestStatsOfOlderBatches(t *testing.T) {
	old := &millrace.Schema{ID: 1, Columns: numbered("INT")}
	rec := storagetest.RecordOf(old.Columns, []storagetest.Values{{1: int64(5)}, {1: int64(9)}})
	b, err := segment.AppendColumns(nil, old, rec, nil, segment.EncodeOptions{})
	require.NoError(t, err)
	p, err := segment.OpenBytes(b)
	require.NoError(t, err)
	now := []millrace.Column{{ID: 1, Name: "wide", Type: millrace.DataType{Kind: millrace.BigInt}}, {ID: 2, Name: "c", Type: millrace.DataType{Kind: millrace.String}, Nullable: true}}
	for text, may := range map[string]bool{
		"c = 'x'": false, "c <> 'x'": false, "c IS NULL": true, "c IS NOT NULL": false, "c LIKE 'x%'": false, "NOT c IN ('x')": false,
		"c = 'x' OR wide = 5": true, "c IS NULL AND wide > 9": false, "wide = 9": true, "wide > 5000000000": false, "wide < 5": false, "wide >= 9": true,
	} {
		f, err := filter.Compile(text, nil, now, storagetest.NewClock().Now())
		require.NoError(t, err)
		got := f.MayMatch(func(name string) (filter.Stats, bool) {
			return p.Stats(now[slices.IndexFunc(now, func(c millrace.Column) bool { return c.Name == name })].ID)
		})
		require.Equal(t, may, got, text)
	}
}
