package storagetest

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// same says whether two values are the same bits, a NaN being a NaN.
func same(a, b any) bool {
	switch x := a.(type) {
	case float64:
		y, ok := b.(float64)
		return ok && (math.Float64bits(x) == math.Float64bits(y) || x != x && y != y)
	case float32:
		y, ok := b.(float32)
		return ok && (math.Float32bits(x) == math.Float32bits(y) || x != x && y != y)
	}
	return a == b
}

// order orders two values of a type: NaN is the highest.
func order(a, b any) int {
	switch x := a.(type) {
	case int8:
		return cmp.Compare(x, b.(int8))
	case int16:
		return cmp.Compare(x, b.(int16))
	case int32:
		return cmp.Compare(x, b.(int32))
	case int64:
		return cmp.Compare(x, b.(int64))
	case float32:
		return order(float64(x), float64(b.(float32)))
	case float64:
		y := b.(float64)
		switch {
		case math.IsNaN(x) || math.IsNaN(y):
			return -cmp.Compare(x, y) // which has NaN lowest
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	case string:
		return strings.Compare(x, b.(string))
	case decimal128.Num:
		return x.BigInt().Cmp(b.(decimal128.Num).BigInt())
	case arrow.Date32:
		return cmp.Compare(x, b.(arrow.Date32))
	case arrow.Timestamp:
		return cmp.Compare(x, b.(arrow.Timestamp))
	}
	panic(fmt.Sprintf("storagetest: %T has no order", a))
}

func appendValue(b array.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.AppendNull()
	case bool:
		b.(*array.BooleanBuilder).Append(v)
	case int8:
		b.(*array.Int8Builder).Append(v)
	case int16:
		b.(*array.Int16Builder).Append(v)
	case int32:
		b.(*array.Int32Builder).Append(v)
	case int64:
		b.(*array.Int64Builder).Append(v)
	case float32:
		b.(*array.Float32Builder).Append(v)
	case float64:
		b.(*array.Float64Builder).Append(v)
	case decimal128.Num:
		b.(*array.Decimal128Builder).Append(v)
	case arrow.Date32:
		b.(*array.Date32Builder).Append(v)
	case arrow.Timestamp:
		b.(*array.TimestampBuilder).Append(v)
	case string:
		b.(*array.StringBuilder).Append(v)
	default:
		panic(fmt.Sprintf("storagetest: a %T has no column", v))
	}
}

// Rows are the rows of a record.
func Rows(rec arrow.RecordBatch) []Row {
	out := make([]Row, rec.NumRows())
	for i := range out {
		out[i] = make(Row, rec.NumCols())
	}
	for j, c := range rec.Columns() {
		for i := range out {
			if !c.IsNull(i) {
				out[i][j] = valueOf(c, i)
			}
		}
	}
	return out
}

func valueOf(c arrow.Array, i int) any {
	switch c := c.(type) {
	case *array.Boolean:
		return c.Value(i)
	case *array.Int8:
		return c.Value(i)
	case *array.Int16:
		return c.Value(i)
	case *array.Int32:
		return c.Value(i)
	case *array.Int64:
		return c.Value(i)
	case *array.Float32:
		return c.Value(i)
	case *array.Float64:
		return c.Value(i)
	case *array.Decimal128:
		return c.Value(i)
	case *array.Date32:
		return c.Value(i)
	case *array.Timestamp:
		return c.Value(i)
	case *array.String:
		return strings.Clone(c.Value(i))
	}
	panic(fmt.Sprintf("storagetest: a column of %T is not read", c))
}
