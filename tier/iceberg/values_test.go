package iceberg

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/row"
)

// Values of tests are trees of their own, put into stock Arrow builders of the type
// that a file has, and of the type that a reader wants: nil, bool, int64 (times in
// microseconds), float64, string, decimal128.Num, []any of ARRAY, [][2]any of MAP,
// map[id]any of ROW.

var testScalars = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(18,4)", "DECIMAL(38,10)",
	"CHAR(5)", "STRING", "BINARY(3)", "BYTES", "DATE", "TIME(0)", "TIME(3)", "TIME(6)",
	"TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(0)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)",
}

func parseType(s string) millrace.DataType {
	t, err := millrace.ParseType(s)
	if err != nil {
		panic(err)
	}
	return t
}

// ids gives out column ids.
type ids struct{ next millrace.ColumnID }

func (n *ids) number(c millrace.Column) millrace.Column {
	n.next++
	c.ID = n.next
	for i := range c.Type.Children {
		c.Type.Children[i] = n.number(c.Type.Children[i])
	}
	return c
}

func (n *ids) drawColumn(t *rapid.T, name string, nullable bool, depth int) millrace.Column {
	return n.number(millrace.Column{Name: name, Nullable: nullable, Type: drawType(t, depth)})
}

func drawType(t *rapid.T, depth int) millrace.DataType {
	kind := 0
	if depth > 0 {
		kind = rapid.IntRange(0, 6).Draw(t, "nest")
	}
	child := func(name string, nullable bool) millrace.Column {
		return millrace.Column{Name: name, Nullable: nullable, Type: drawType(t, depth-1)}
	}
	switch kind {
	case 4:
		return millrace.DataType{Kind: millrace.Array, Children: []millrace.Column{child(millrace.ElementName, true)}}
	case 5:
		key := millrace.Column{Name: millrace.KeyName, Type: parseType("STRING")}
		return millrace.DataType{Kind: millrace.Map, Children: []millrace.Column{key, child(millrace.ValueName, true)}}
	case 6:
		typ := millrace.DataType{Kind: millrace.Row}
		for i := range rapid.IntRange(1, 3).Draw(t, "fields") {
			typ.Children = append(typ.Children, child(fmt.Sprintf("f%d", i), true))
		}
		return typ
	}
	return parseType(rapid.SampledFrom(testScalars).Draw(t, "scalar"))
}

// evolve changes a type as ALTER may: fields of ROWs come, go, move and are renamed;
// numbers are widened.
func (n *ids) evolve(t *rapid.T, typ millrace.DataType) millrace.DataType {
	typ.Children = slices.Clone(typ.Children)
	switch typ.Kind {
	case millrace.Int:
		if rapid.Bool().Draw(t, "widen") {
			typ.Kind = millrace.BigInt
		}
	case millrace.Float:
		if rapid.Bool().Draw(t, "widen") {
			typ.Kind = millrace.Double
		}
	case millrace.Decimal:
		typ.Precision = rapid.IntRange(typ.Precision, 38).Draw(t, "precision")
	case millrace.Row:
		typ.Children = n.evolveColumns(t, typ.Children, 0)
	case millrace.Array:
		typ.Children[0].Type = n.evolve(t, typ.Children[0].Type)
	case millrace.Map:
		typ.Children[1].Type = n.evolve(t, typ.Children[1].Type)
	default:
	}
	return typ
}

func (n *ids) evolveColumns(t *rapid.T, cols []millrace.Column, depth int) []millrace.Column {
	var out []millrace.Column
	for _, c := range cols {
		if c.Nullable && rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
			continue
		}
		if rapid.Bool().Draw(t, "rename") {
			c.Name += "x"
		}
		c.Type = n.evolve(t, c.Type)
		out = append(out, c)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "added") {
		out = append(out, n.drawColumn(t, fmt.Sprintf("n%d", i), true, depth))
	}
	if len(out) == 0 {
		out = append(out, n.drawColumn(t, "only", true, depth))
	}
	return rapid.Permutation(out).Draw(t, "order")
}

func drawValue(t *rapid.T, typ millrace.DataType, nullable bool) any {
	if nullable && rapid.IntRange(0, 4).Draw(t, "null") == 0 {
		return nil
	}
	integer := func(lo, hi int64) any { return rapid.Int64Range(lo, hi).Draw(t, "int") }
	switch typ.Kind {
	case millrace.Boolean:
		return rapid.Bool().Draw(t, "bool")
	case millrace.TinyInt:
		return integer(math.MinInt8, math.MaxInt8)
	case millrace.SmallInt:
		return integer(math.MinInt16, math.MaxInt16)
	case millrace.Int:
		return integer(math.MinInt32, math.MaxInt32)
	case millrace.BigInt:
		return integer(math.MinInt64, math.MaxInt64)
	case millrace.Float:
		return float64(rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{float32(math.NaN()), 0, float32(math.Inf(1))})).Draw(t, "float"))
	case millrace.Double:
		return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), 0, math.Copysign(0, -1), math.Inf(-1)})).Draw(t, "double")
	case millrace.Decimal:
		most := decimal128.GetMaxValue(int32(typ.Precision))
		v := decimal128.New(rapid.Int64().Draw(t, "high"), rapid.Uint64().Draw(t, "low"))
		if typ.Precision <= 18 {
			v = decimal128.FromI64(rapid.Int64Range(-int64(most.LowBits()), int64(most.LowBits())).Draw(t, "decimal"))
		} else if most.Less(v) || v.Less(most.Negate()) {
			v = most
		}
		return v
	case millrace.Char, millrace.String:
		return rapid.OneOf(rapid.StringN(0, 5, -1), rapid.SampledFrom([]string{"", "a", "aaaaaaaaaaaaaaaaaaaaaaaaaa", "\U0010ffff\U0010ffff\U0010ffff\U0010ffff\U0010ffff", "ÿ"})).Draw(t, "string")
	case millrace.Binary:
		return string(rapid.SliceOfN(rapid.Byte(), typ.Length, typ.Length).Draw(t, "fixed"))
	case millrace.Bytes:
		return string(rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 4), rapid.Just(bytes.Repeat([]byte{255}, 20))).Draw(t, "bytes"))
	case millrace.Date:
		return integer(-1e6, 1e6)
	case millrace.Time:
		return unitOf(typ) * integer(0, 86_400*1_000_000/unitOf(typ)-1).(int64)
	case millrace.Timestamp, millrace.TimestampLTZ:
		return unitOf(typ) * integer(-1e9, 1e12/unitOf(typ)).(int64)
	case millrace.Array:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			out = append(out, drawValue(t, typ.Children[0].Type, typ.Children[0].Nullable))
		}
		return out
	case millrace.Map:
		out := [][2]any{}
		for i := range rapid.IntRange(0, 3).Draw(t, "entries") {
			out = append(out, [2]any{fmt.Sprint(i), drawValue(t, typ.Children[1].Type, true)})
		}
		return out
	default: // ROW
		out := map[millrace.ColumnID]any{}
		for _, c := range typ.Children {
			out[c.ID] = drawValue(t, c.Type, c.Nullable)
		}
		return out
	}
}

// unitOf is how many microseconds the unit of a time or timestamp has.
func unitOf(typ millrace.DataType) int64 { return 1_000_000 / perSecond(row.ArrowType(typ)) }

// storedField is the Arrow field that a file of the lake has for a column.
func storedField(c millrace.Column) arrow.Field {
	f := row.ArrowField(c)
	switch c.Type.Kind {
	case millrace.TinyInt, millrace.SmallInt:
		f.Type = arrow.PrimitiveTypes.Int32
	case millrace.Time:
		f.Type = arrow.FixedWidthTypes.Time64us
	case millrace.Timestamp:
		f.Type = &arrow.TimestampType{Unit: arrow.Microsecond}
	case millrace.TimestampLTZ:
		f.Type = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case millrace.Array:
		f.Type = arrow.ListOfField(storedField(c.Type.Children[0]))
	case millrace.Map:
		f.Type = arrow.MapOfFields(storedField(c.Type.Children[0]), storedField(c.Type.Children[1]))
	case millrace.Row:
		var fs []arrow.Field
		for _, child := range c.Type.Children {
			fs = append(fs, storedField(child))
		}
		f.Type = arrow.StructOf(fs...)
	default:
	}
	return f
}

func storedSchema(cols []millrace.Column) *arrow.Schema {
	fs := make([]arrow.Field, len(cols))
	for i, c := range cols {
		fs[i] = storedField(c)
	}
	return arrow.NewSchema(fs, nil)
}

// buildRecord puts rows into a record of a schema, whose fields have ids.
func buildRecord(schema *arrow.Schema, values []map[millrace.ColumnID]any) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, v := range values {
		for i, f := range schema.Fields() {
			appendValue(b.Field(i), v[fieldID(&f)])
		}
	}
	return b.NewRecordBatch()
}

func appendValue(b array.Builder, v any) {
	if v == nil {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(v.(bool))
	case *array.Int8Builder:
		b.Append(int8(v.(int64)))
	case *array.Int16Builder:
		b.Append(int16(v.(int64)))
	case *array.Int32Builder:
		b.Append(int32(v.(int64)))
	case *array.Int64Builder:
		b.Append(v.(int64))
	case *array.Float32Builder:
		b.Append(float32(v.(float64)))
	case *array.Float64Builder:
		b.Append(v.(float64))
	case *array.Decimal128Builder:
		b.Append(v.(decimal128.Num))
	case *array.StringBuilder:
		b.Append(v.(string))
	case *array.BinaryBuilder:
		b.Append([]byte(v.(string)))
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte(v.(string)))
	case *array.Date32Builder:
		b.Append(arrow.Date32(v.(int64)))
	case *array.Time32Builder:
		b.Append(arrow.Time32(v.(int64) / (1_000_000 / perSecond(b.Type()))))
	case *array.Time64Builder:
		b.Append(arrow.Time64(v.(int64)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v.(int64) / (1_000_000 / perSecond(b.Type()))))
	case *array.MapBuilder:
		b.Append(true)
		for _, e := range v.([][2]any) {
			appendValue(b.KeyBuilder(), e[0])
			appendValue(b.ItemBuilder(), e[1])
		}
	case *array.ListBuilder:
		b.Append(true)
		for _, e := range v.([]any) {
			appendValue(b.ValueBuilder(), e)
		}
	case *array.StructBuilder:
		b.Append(true)
		st := b.Type().(*arrow.StructType)
		for i, f := range st.Fields() {
			appendValue(b.FieldBuilder(i), v.(map[millrace.ColumnID]any)[fieldID(&f)])
		}
	default:
		panic(fmt.Sprintf("no value for %T", b))
	}
}

// written says how a test's file is written.
type written struct {
	groupRows, pageBytes int64
	dictionary, schema   bool
	codec                compress.Compression
	sealed               bool
}

func drawWritten(t *rapid.T) written {
	return written{
		groupRows: int64(rapid.IntRange(1, 40).Draw(t, "group rows")), pageBytes: rapid.SampledFrom([]int64{16, 1 << 20}).Draw(t, "page bytes"),
		dictionary: rapid.Bool().Draw(t, "dictionary"), schema: rapid.Bool().Draw(t, "arrow schema"),
		codec:  rapid.SampledFrom([]compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Zstd, compress.Codecs.Snappy}).Draw(t, "codec"),
		sealed: rapid.Bool().Draw(t, "sealed"),
	}
}

// parquetOf is the Parquet file of a record.
func parquetOf(rec arrow.RecordBatch, w written) []byte {
	var buf bytes.Buffer
	props := parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(w.groupRows), parquet.WithDataPageSize(w.pageBytes),
		parquet.WithDictionaryDefault(w.dictionary), parquet.WithCompression(w.codec), parquet.WithStats(true))
	var arrowProps []pqarrow.WriterOption
	if w.schema {
		arrowProps = append(arrowProps, pqarrow.WithStoreSchema())
	}
	sw := newSealer(&buf)
	var sink io.Writer = &buf
	if w.sealed {
		sink = sw
	}
	fw, err := pqarrow.NewFileWriter(rec.Schema(), sink, props, pqarrow.NewArrowWriterProperties(arrowProps...))
	if err == nil {
		err = fw.Write(rec)
	}
	if err == nil {
		sw.hold()
		err = fw.Close()
	}
	if err == nil && w.sealed {
		err = sw.seal(nil)
	}
	if err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// memStore is a store in memory, for reading.
type memStore map[string][]byte

var _ objstore.Reader = memStore{}

func (memStore) URI() string { return "mem://lake" }

func (m memStore) Get(_ context.Context, key string) ([]byte, error) {
	if b, ok := m[key]; ok {
		return b, nil
	}
	return nil, objstore.ErrNotExist
}

func (m memStore) ReadAt(ctx context.Context, key string, p []byte, off int64) error {
	b, err := m.Get(ctx, key)
	if err != nil {
		return err
	}
	if off < 0 || off+int64(len(p)) > int64(len(b)) {
		return io.ErrUnexpectedEOF
	}
	copy(p, b[off:])
	return nil
}

func (m memStore) Stat(_ context.Context, key string) (objstore.Info, error) {
	if b, ok := m[key]; ok {
		return objstore.Info{Key: key, Bytes: int64(len(b))}, nil
	}
	return objstore.Info{}, objstore.ErrNotExist
}

func (memStore) List(context.Context, string, func(objstore.Info) error) error { return nil }
