package filter

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// cell is a value as it is stored: nil, bool, int64 (integers and times, in the
// column's unit), float64, *big.Int (unscaled decimal), string (text and binary),
// or struct{}{} for a nested value that is not NULL.
type cell any

func column(name, typ string) millrace.Column {
	t, err := millrace.ParseType(typ)
	if err != nil {
		panic(err)
	}
	return millrace.Column{Name: name, Type: t, Nullable: true}
}

// record builds a batch; skip rows of padding stand before it in memory, so that
// the arrays have an offset.
func record(t testing.TB, cols []millrace.Column, rows [][]cell, skip int) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(cols))
	for i := range cols {
		for j := range skip {
			if len(rows) > 0 {
				appendCell(b.Field(i), rows[j%len(rows)][i])
			} else {
				b.Field(i).AppendNull()
			}
		}
		for _, r := range rows {
			appendCell(b.Field(i), r[i])
		}
	}
	rec := b.NewRecordBatch()
	return rec.NewSlice(int64(skip), rec.NumRows())
}

func appendCell(b array.Builder, c cell) {
	if c == nil {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(c.(bool))
	case *array.Int8Builder:
		b.Append(int8(c.(int64)))
	case *array.Int16Builder:
		b.Append(int16(c.(int64)))
	case *array.Int32Builder:
		b.Append(int32(c.(int64)))
	case *array.Int64Builder:
		b.Append(c.(int64))
	case *array.Date32Builder:
		b.Append(arrow.Date32(c.(int64)))
	case *array.Time32Builder:
		b.Append(arrow.Time32(c.(int64)))
	case *array.Time64Builder:
		b.Append(arrow.Time64(c.(int64)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(c.(int64)))
	case *array.Float32Builder:
		b.Append(float32(c.(float64)))
	case *array.Float64Builder:
		b.Append(c.(float64))
	case *array.Decimal128Builder:
		b.Append(decimal128.FromBigInt(c.(*big.Int)))
	case *array.StringBuilder:
		b.Append(c.(string))
	case *array.BinaryBuilder:
		b.Append([]byte(c.(string)))
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte(c.(string)))
	default:
		b.AppendEmptyValue()
	}
}

// cellOf reads a value back.
func cellOf(arr arrow.Array, i int) cell {
	if arr.IsNull(i) {
		return nil
	}
	switch arr := arr.(type) {
	case *array.Boolean:
		return arr.Value(i)
	case *array.Int8:
		return int64(arr.Value(i))
	case *array.Int16:
		return int64(arr.Value(i))
	case *array.Int32:
		return int64(arr.Value(i))
	case *array.Int64:
		return arr.Value(i)
	case *array.Date32:
		return int64(arr.Value(i))
	case *array.Time32:
		return int64(arr.Value(i))
	case *array.Time64:
		return int64(arr.Value(i))
	case *array.Timestamp:
		return int64(arr.Value(i))
	case *array.Float32:
		return float64(arr.Value(i))
	case *array.Float64:
		return arr.Value(i)
	case *array.Decimal128:
		return arr.Value(i).BigInt()
	case *array.String:
		return arr.Value(i)
	case *array.Binary:
		return string(arr.Value(i))
	case *array.FixedSizeBinary:
		return string(arr.Value(i))
	}
	panic(fmt.Sprintf("no cell of %T", arr))
}
