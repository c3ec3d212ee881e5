package row_test

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// Random schemas and records. Values are put into stock Arrow builders, so what
// the package makes is compared with what Arrow makes.

var scalarTypes = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(38,10)",
	"CHAR(5)", "STRING", "BINARY(1)", "BINARY(16)", "BINARY(17)", "BYTES", "DATE", "TIME(0)", "TIME(3)", "TIME(6)",
	"TIME(9)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)",
}

// keyTypes may be in a primary key.
var keyTypes = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(9,2)", "DECIMAL(38,10)", "CHAR(5)", "STRING",
	"BINARY(1)", "BINARY(16)", "BINARY(17)", "BYTES", "DATE", "TIME(0)", "TIME(6)", "TIME(9)", "TIMESTAMP(0)",
	"TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(6)",
}

func parse(s string) millrace.DataType {
	t, err := millrace.ParseType(s)
	if err != nil {
		panic(err)
	}
	return t
}

// drawType draws a type that nests at most depth levels.
func drawType(t *rapid.T, depth int) millrace.DataType {
	kind := 0
	if depth > 0 {
		kind = rapid.IntRange(0, 5).Draw(t, "nest")
	}
	child := func(name string, nullable bool) millrace.Column {
		return millrace.Column{Name: name, Type: drawType(t, depth-1), Nullable: nullable}
	}
	switch kind {
	case 3:
		return millrace.DataType{Kind: millrace.Array, Children: []millrace.Column{child(millrace.ElementName, true)}}
	case 4:
		return millrace.DataType{Kind: millrace.Map, Children: []millrace.Column{
			child(millrace.KeyName, false), child(millrace.ValueName, true),
		}}
	case 5:
		typ := millrace.DataType{Kind: millrace.Row}
		for i := range rapid.IntRange(1, 3).Draw(t, "fields") {
			typ.Children = append(typ.Children, child(fmt.Sprintf("f%d", i), true))
		}
		return typ
	}
	return parse(rapid.SampledFrom(scalarTypes).Draw(t, "scalar"))
}

// numberColumns gives columns and nested fields ids, from next on.
func numberColumns(cols []millrace.Column, next millrace.ColumnID) millrace.ColumnID {
	for i := range cols {
		cols[i].ID = next
		next = numberColumns(cols[i].Type.Children, next+1)
	}
	return next
}

func columnsOf(types ...millrace.DataType) []millrace.Column {
	cols := make([]millrace.Column, len(types))
	for i, typ := range types {
		cols[i] = millrace.Column{Name: fmt.Sprintf("c%d", i), Type: typ, Nullable: true}
	}
	numberColumns(cols, 1)
	return cols
}

func drawColumns(t *rapid.T, depth int) []millrace.Column {
	var types []millrace.DataType
	for range rapid.IntRange(1, 20).Draw(t, "columns") {
		types = append(types, drawType(t, depth))
	}
	return columnsOf(types...)
}

// drawRecord draws a record of the columns; it may be a slice of a larger one.
func drawRecord(t *rapid.T, cols []millrace.Column, nulls bool) arrow.RecordBatch {
	before := rapid.IntRange(0, 9).Draw(t, "before")
	n := rapid.IntRange(1, 6).Draw(t, "rows")
	after := rapid.IntRange(0, 1).Draw(t, "after")
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(cols))
	defer b.Release()
	for range before + n + after {
		for i, c := range cols {
			drawValue(t, b.Field(i), c.Type, nulls)
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	return rec.NewSlice(int64(before), int64(before+n))
}

func drawValue(t *rapid.T, b array.Builder, typ millrace.DataType, nulls bool) {
	if nulls && rapid.IntRange(0, 3).Draw(t, "null") == 0 {
		b.AppendNull()
		return
	}
	i64 := rapid.OneOf(rapid.SampledFrom([]int64{0, -1, math.MinInt64, math.MaxInt64}), rapid.Int64())
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(rapid.Bool().Draw(t, "bool"))
	case *array.Int8Builder:
		b.Append(rapid.Int8().Draw(t, "i8"))
	case *array.Int16Builder:
		b.Append(rapid.Int16().Draw(t, "i16"))
	case *array.Int32Builder:
		b.Append(int32(i64.Draw(t, "i32")))
	case *array.Int64Builder:
		b.Append(i64.Draw(t, "i64"))
	case *array.Float32Builder:
		special := rapid.SampledFrom([]float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Copysign(0, -1))})
		b.Append(rapid.OneOf(special, rapid.Float32()).Draw(t, "f32"))
	case *array.Float64Builder:
		special := rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Copysign(0, -1)})
		b.Append(rapid.OneOf(special, rapid.Float64()).Draw(t, "f64"))
	case *array.Decimal128Builder:
		if typ.Precision <= 18 {
			b.Append(decimal128.FromI64(rapid.Int64Range(-999_999_999, 999_999_999).Draw(t, "dec")))
		} else {
			high := rapid.Int64Range(-1<<61, 1<<61).Draw(t, "high")
			b.Append(decimal128.New(high, uint64(i64.Draw(t, "low"))))
		}
	case *array.StringBuilder:
		b.Append(rapid.OneOf(rapid.SampledFrom([]string{"", "\x00", "a\x00", "a", "a\x01"}), rapid.StringN(0, 5, 20)).Draw(t, "string"))
	case *array.BinaryBuilder:
		b.Append(rapid.SliceOfN(rapid.OneOf(rapid.Just(byte(0)), rapid.Byte()), 0, 6).Draw(t, "bytes"))
	case *array.FixedSizeBinaryBuilder:
		b.Append(rapid.SliceOfN(rapid.Byte(), typ.Length, typ.Length).Draw(t, "fixed"))
	case *array.Date32Builder:
		b.Append(arrow.Date32(rapid.Int32Range(-719162, 2932896).Draw(t, "date")))
	case *array.Time32Builder:
		b.Append(arrow.Time32(rapid.Int32Range(0, 86_399_999).Draw(t, "time32")))
	case *array.Time64Builder:
		b.Append(arrow.Time64(rapid.Int64Range(0, 86_399_999_999).Draw(t, "time64")))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "timestamp")))
	case *array.MapBuilder: // keys are never NULL
		b.Append(true)
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			drawValue(t, b.KeyBuilder(), typ.Children[0].Type, false)
			drawValue(t, b.ItemBuilder(), typ.Children[1].Type, nulls)
		}
	case *array.ListBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 10).Draw(t, "elements") {
			drawValue(t, b.ValueBuilder(), typ.Children[0].Type, nulls)
		}
	case *array.StructBuilder:
		b.Append(true)
		for i, c := range typ.Children {
			drawValue(t, b.FieldBuilder(i), c.Type, nulls)
		}
	default:
		panic(fmt.Sprintf("no values for %v", b.Type()))
	}
}

// equalRecords compares values, types and metadata; a NaN equals a NaN.
func equalRecords(a, b arrow.RecordBatch) error {
	if !a.Schema().Equal(b.Schema()) {
		return fmt.Errorf("schemas differ: %v and %v", a.Schema(), b.Schema())
	}
	if a.NumRows() != b.NumRows() {
		return fmt.Errorf("%d rows and %d", a.NumRows(), b.NumRows())
	}
	for i := range int(a.NumCols()) {
		x, y := a.Column(i), b.Column(i)
		if !arrow.TypeEqual(x.DataType(), y.DataType(), arrow.CheckMetadata()) {
			return fmt.Errorf("column %d: types %v and %v", i, x.DataType(), y.DataType())
		}
		if !array.ApproxEqual(x, y, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
			return fmt.Errorf("column %d: %v\nand %v", i, x, y)
		}
	}
	return nil
}

// mustRead reads rows of one schema into the columns wanted.
func mustRead(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *millrace.Schema, want []millrace.Column, rows [][]byte,
) arrow.RecordBatch {
	t.Helper()
	r := row.NewReader(memory.DefaultAllocator, oneSchema(s), want)
	for _, b := range rows {
		if err := r.Append(b); err != nil {
			t.Fatalf("Append(%x): %v", b, err)
		}
	}
	return r.Record()
}

func oneSchema(s *millrace.Schema) func(millrace.SchemaID) *millrace.Schema {
	return func(id millrace.SchemaID) *millrace.Schema {
		if id == s.ID {
			return s
		}
		return nil
	}
}
