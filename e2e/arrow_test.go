package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// Arrow memory here is Go's, so nothing needs releasing.

var arrowTypes = map[string]arrow.DataType{
	"int": arrow.PrimitiveTypes.Int32, "long": arrow.PrimitiveTypes.Int64, "double": arrow.PrimitiveTypes.Float64,
	"string": arrow.BinaryTypes.String, "bool": arrow.FixedWidthTypes.Boolean, "bytes": arrow.BinaryTypes.Binary,
	"date": arrow.FixedWidthTypes.Date32, "time": arrow.FixedWidthTypes.Time32ms, "ts": arrow.FixedWidthTypes.Timestamp_us,
}

// schemaOf makes a schema from "name type, …" with the types of arrowTypes.
func schemaOf(columns string) *arrow.Schema {
	var fields []arrow.Field
	for c := range strings.SplitSeq(columns, ",") {
		name, typ, _ := strings.Cut(strings.TrimSpace(c), " ")
		dt, ok := arrowTypes[typ]
		if !ok {
			panic("no Arrow type " + typ)
		}
		fields = append(fields, arrow.Field{Name: name, Type: dt, Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

// batch makes a record batch from JSON rows.
func batch(t testing.TB, schema *arrow.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	require.NoError(t, err)
	return rec
}

// stream encodes batches as an Arrow IPC stream.
func stream(t testing.TB, recs []arrow.RecordBatch, opts ...ipc.Option) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, append([]ipc.Option{ipc.WithSchema(recs[0].Schema())}, opts...)...)
	for _, r := range recs {
		require.NoError(t, w.Write(r))
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// texts renders each row of a batch as its values joined by "|", NULL as "null"; of all columns, or of those named.
func texts(rec arrow.RecordBatch, columns ...string) []string {
	cols := rec.Columns()
	if columns != nil {
		cols = make([]arrow.Array, len(columns))
		for j, name := range columns {
			at := rec.Schema().FieldIndices(name)
			if len(at) != 1 {
				panic("no one column " + name + " in " + rec.Schema().String())
			}
			cols[j] = rec.Column(at[0])
		}
	}
	out := make([]string, rec.NumRows())
	for i := range out {
		vals := make([]string, len(cols))
		for j, col := range cols {
			if col.IsNull(i) {
				vals[j] = "null"
			} else {
				vals[j] = col.ValueStr(i)
			}
		}
		out[i] = strings.Join(vals, "|")
	}
	return out
}

// readStream decodes an Arrow IPC stream and checks that it ends in its end marker.
func readStream(t testing.TB, body []byte) (*arrow.Schema, []string) {
	t.Helper()
	require.True(t, bytes.HasSuffix(body, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}), "the stream has no end marker")
	r, err := ipc.NewReader(bytes.NewReader(body))
	require.NoError(t, err)
	var rows []string
	for r.Next() {
		rows = append(rows, texts(r.RecordBatch())...)
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		require.NoError(t, err)
	}
	return r.Schema(), rows
}

// names lists the columns of a schema.
func names(s *arrow.Schema) string {
	var out []string
	for _, f := range s.Fields() {
		out = append(out, f.Name)
	}
	return strings.Join(out, ",")
}

// longs makes a batch of int64 columns named a, b, … from one function of row and column.
func longs(columns string, rows int, value func(row, col int) int64) arrow.RecordBatch {
	ns := strings.Split(columns, ",")
	fields := make([]arrow.Field, len(ns))
	cols := make([]arrow.Array, len(ns))
	for j, n := range ns {
		fields[j] = arrow.Field{Name: n, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.Reserve(rows)
		for i := range rows {
			b.UnsafeAppend(value(i, j))
		}
		cols[j] = b.NewArray()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(rows))
}

// ints lists n numbers from start as text, for comparing with texts.
func ints(start, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(start + i)
	}
	return out
}
