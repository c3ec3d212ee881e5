package storagetest

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// Values are the values of a row, or of a ROW, by column id: nil, bool, string, int64
// for integers of any width and for unscaled decimals, float64, []any for an ARRAY,
// []any of [2]any for a MAP, Values for a ROW. What is not there is NULL.
type Values map[millrace.ColumnID]any

// Align is the row as the columns show it.
func (v Values) Align(cols []millrace.Column) Values {
	out := Values{}
	for _, c := range cols {
		out[c.ID] = align(v[c.ID], c.Type)
	}
	return out
}

func align(v any, t millrace.DataType) any {
	switch v := v.(type) {
	case Values:
		return v.Align(t.Children)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			if pair, ok := e.([2]any); ok {
				out[i] = [2]any{pair[0], align(pair[1], t.Children[1].Type)}
			} else {
				out[i] = align(e, t.Children[0].Type)
			}
		}
		return out
	default:
		return v
	}
}

// RecordOf makes a record of rows. The caller releases it.
func RecordOf(cols []millrace.Column, rows []Values) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(cols))
	defer b.Release()
	for _, r := range rows {
		for i, c := range cols {
			appendTyped(b.Field(i), c.Type, r[c.ID])
		}
	}
	return b.NewRecordBatch()
}

func appendTyped(b array.Builder, t millrace.DataType, v any) {
	if v == nil {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
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
		b.Append(decimal128.FromI64(v.(int64)))
	case *array.BooleanBuilder:
		b.Append(v.(bool))
	case *array.StringBuilder:
		b.Append(v.(string))
	case *array.MapBuilder: // before lists, which it is one of
		b.Append(true)
		for _, e := range v.([]any) {
			pair := e.([2]any)
			appendTyped(b.KeyBuilder(), t.Children[0].Type, pair[0])
			appendTyped(b.ItemBuilder(), t.Children[1].Type, pair[1])
		}
	case *array.ListBuilder:
		b.Append(true)
		for _, e := range v.([]any) {
			appendTyped(b.ValueBuilder(), t.Children[0].Type, e)
		}
	case *array.StructBuilder:
		b.Append(true)
		for i, c := range t.Children {
			appendTyped(b.FieldBuilder(i), c.Type, v.(Values)[c.ID])
		}
	default:
		panic(fmt.Sprintf("storagetest: %T has no builder", v))
	}
}

// ValuesOf are the rows of a record of the columns.
func ValuesOf(rec arrow.RecordBatch, cols []millrace.Column) []Values {
	out := make([]Values, rec.NumRows())
	for i := range out {
		out[i] = Values{}
		for j, c := range cols {
			out[i][c.ID] = typedValue(rec.Column(j), c.Type, i)
		}
	}
	return out
}

func typedValue(arr arrow.Array, t millrace.DataType, i int) any {
	if arr.IsNull(i) {
		return nil
	}
	switch a := arr.(type) {
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float64:
		return a.Value(i)
	case *array.Decimal128:
		return int64(a.Value(i).LowBits())
	case *array.Boolean:
		return a.Value(i)
	case *array.String:
		return strings.Clone(a.Value(i))
	case *array.Map: // before lists, which it is one of
		from, to := a.ValueOffsets(i)
		out := []any{}
		for k := int(from); k < int(to); k++ {
			out = append(out, [2]any{typedValue(a.Keys(), t.Children[0].Type, k), typedValue(a.Items(), t.Children[1].Type, k)})
		}
		return out
	case *array.List:
		from, to := a.ValueOffsets(i)
		out := []any{}
		for k := int(from); k < int(to); k++ {
			out = append(out, typedValue(a.ListValues(), t.Children[0].Type, k))
		}
		return out
	case *array.Struct:
		out := Values{}
		for j, c := range t.Children {
			out[c.ID] = typedValue(a.Field(j), c.Type, i)
		}
		return out
	default:
		panic(fmt.Sprintf("storagetest: a column of %T is not read", arr))
	}
}
