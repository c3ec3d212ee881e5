package segment

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// allTypes are the SQL types of the tests' widest table.
var allTypes = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,9)",
	"CHAR(5)", "STRING", "BINARY(3)", "BYTES", "DATE", "TIME(0)", "TIME(6)", "TIME(9)",
	"TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(6)",
	"ARRAY<INT>", "ARRAY<STRING NOT NULL>", "MAP<STRING, BIGINT>", "ROW<a INT, b STRING, c DECIMAL(5,1)>",
	"ARRAY<ARRAY<BOOLEAN>>", "MAP<INT, ARRAY<ROW<x DOUBLE, y MAP<STRING, BYTES>>>>", "ROW<r ROW<s ARRAY<DATE>, t BINARY(2)>, u BOOLEAN>",
}

// makeSchema numbers columns and nested fields from 1.
func makeSchema(id millrace.SchemaID, types ...string) *millrace.Schema {
	s := &millrace.Schema{ID: id}
	next := millrace.ColumnID(0)
	var number func(cs []millrace.Column)
	number = func(cs []millrace.Column) {
		for i := range cs {
			next++
			cs[i].ID = next
			number(cs[i].Type.Children)
		}
	}
	for i, typ := range types {
		dt := must(millrace.ParseType(typ))
		s.Columns = append(s.Columns, millrace.Column{Name: fmt.Sprintf("c%d", i), Type: dt, Nullable: true})
	}
	number(s.Columns)
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func only(ss ...*millrace.Schema) Schemas {
	return func(id millrace.SchemaID) *millrace.Schema {
		for _, s := range ss {
			if s.ID == id {
				return s
			}
		}
		return nil
	}
}

// randomRecord makes rows of any values; nulls is how many of ten values are NULL.
func randomRecord(rng *rand.Rand, s *millrace.Schema, rows, nulls int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(s.Columns))
	defer b.Release()
	for i := range s.Columns {
		for range rows {
			appendRandom(rng, b.Field(i), nulls, s.Columns[i].Nullable)
		}
	}
	return b.NewRecordBatch()
}

func appendRandom(rng *rand.Rand, b array.Builder, nulls int, nullable bool) {
	if nullable && rng.IntN(10) < nulls {
		b.AppendNull()
		return
	}
	word := func() []byte {
		w := make([]byte, rng.IntN(12)*rng.IntN(5))
		for i := range w {
			w[i] = "abcdefgh"[rng.IntN(8)]
		}
		return w
	}
	i64 := func() int64 { return rng.Int64() >> rng.IntN(60) * int64(1-2*rng.IntN(2)) }
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(rng.IntN(2) == 0)
	case *array.Int8Builder:
		b.Append(int8(i64()))
	case *array.Int16Builder:
		b.Append(int16(i64()))
	case *array.Int32Builder:
		b.Append(int32(i64()))
	case *array.Int64Builder:
		b.Append(i64())
	case *array.Float32Builder:
		b.Append(float32(rng.NormFloat64()))
	case *array.Float64Builder:
		b.Append(rng.NormFloat64())
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(i64() % 10000))
	case *array.StringBuilder:
		b.BinaryBuilder.Append(word())
	case *array.BinaryBuilder:
		b.Append(word())
	case *array.FixedSizeBinaryBuilder:
		v := make([]byte, b.Type().(*arrow.FixedSizeBinaryType).ByteWidth)
		for i := range v {
			v[i] = byte(rng.IntN(256))
		}
		b.Append(v)
	case *array.Date32Builder:
		b.Append(arrow.Date32(rng.IntN(40000)))
	case *array.Time32Builder:
		b.Append(arrow.Time32(rng.IntN(86400)))
	case *array.Time64Builder:
		b.Append(arrow.Time64(rng.IntN(86400)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(i64() >> 20))
	case *array.ListBuilder:
		b.Append(true)
		for range rng.IntN(4) {
			appendRandom(rng, b.ValueBuilder(), nulls, b.Type().(*arrow.ListType).ElemField().Nullable)
		}
	case *array.MapBuilder:
		b.Append(true)
		for range rng.IntN(4) {
			appendRandom(rng, b.KeyBuilder(), 0, false)
			appendRandom(rng, b.ItemBuilder(), nulls, true)
		}
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			appendRandom(rng, b.FieldBuilder(i), nulls, true)
		}
	default:
		panic(fmt.Sprintf("no random %T", b))
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func randomChanges(rng *rand.Rand, n int) []millrace.ChangeType {
	out := make([]millrace.ChangeType, n)
	for i := range out {
		out[i] = millrace.ChangeType(rng.IntN(4))
	}
	return out
}

// encoded is AppendColumns behind some other bytes, which must stay.
func encoded(t testing.TB, s *millrace.Schema, rec arrow.RecordBatch, changes []millrace.ChangeType, codec Codec) []byte {
	t.Helper()
	b, err := AppendColumns([]byte("before!"), s, rec, changes, EncodeOptions{Codec: codec})
	require.NoError(t, err)
	require.Equal(t, "before!", string(b[:7]))
	return b[7:]
}

func requireSame(t testing.TB, want, got arrow.RecordBatch) {
	t.Helper()
	require.Equal(t, want.NumRows(), got.NumRows())
	require.Equal(t, want.NumCols(), got.NumCols())
	for i := range int(want.NumCols()) {
		if !array.Equal(want.Column(i), got.Column(i)) {
			t.Fatalf("column %d (%s) differs:\nwant %v\ngot  %v", i, want.Schema().Field(i), want.Column(i), got.Column(i))
		}
		require.True(t, arrow.TypeEqual(want.Column(i).DataType(), got.Column(i).DataType()), "%s, %s", want.Column(i).DataType(), got.Column(i).DataType())
	}
}

// stock reads messages with arrow-go's own reader.
func stock(t testing.TB, schema *arrow.Schema, messages ...*Message) []arrow.RecordBatch {
	t.Helper()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(schema))
	require.NoError(t, w.Close())
	b.Truncate(b.Len() - 8) // the end of the stream comes later
	for _, m := range messages {
		_, err := m.WriteTo(&b)
		require.NoError(t, err)
	}
	b.Write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	r, err := ipc.NewReader(&b)
	require.NoError(t, err)
	defer r.Release()
	var out []arrow.RecordBatch
	for r.Next() {
		rec := r.RecordBatch()
		rec.Retain()
		out = append(out, rec)
	}
	require.NoError(t, r.Err())
	require.Len(t, out, len(messages))
	return out
}

// countingReader is a payload elsewhere, of which the bytes read are counted.
type countingReader struct {
	b     []byte
	bytes int
	reads int
}

func (r *countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := bytes.NewReader(r.b).ReadAt(p, off)
	r.bytes += n
	r.reads++
	return n, err
}

var codecs = []Codec{LZ4, ZSTD, None}

var nan = math.NaN()
