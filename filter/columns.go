package filter

import (
	"bytes"
	"cmp"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
)

// columnCompare is TRUE for rows in which two columns compare as op says.
type columnCompare struct {
	left, right         int
	leftType, rightType millrace.DataType
	op                  compareOp
}

func (p columnCompare) cost() int { return costColumns }

func (p columnCompare) narrow(b *batch, rows []int32) []int32 {
	return b.run(rows, func(rows []int32) []int32 {
		compare := comparator(b.arrays[p.left], p.leftType, b.arrays[p.right], p.rightType)
		rows = b.everyRow(rows)
		n := 0
		for _, i := range rows {
			rows[n] = i
			if p.op.holds(compare(int(i))) {
				n++
			}
		}
		return rows[:n]
	}, p.left, p.right)
}

// family is a set of types whose values compare with each other.
type family uint8

const (
	noFamily family = iota
	boolFamily
	numberFamily
	textFamily
	bytesFamily
	timeFamily
	dateFamily // dates and timestamps: a date is its midnight, UTC is the local time
)

func familyOf(k millrace.Kind) family {
	switch k {
	case millrace.Boolean:
		return boolFamily
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt, millrace.Float, millrace.Double, millrace.Decimal:
		return numberFamily
	case millrace.Char, millrace.String:
		return textFamily
	case millrace.Binary, millrace.Bytes:
		return bytesFamily
	case millrace.Time:
		return timeFamily
	case millrace.Date, millrace.Timestamp, millrace.TimestampLTZ:
		return dateFamily
	case millrace.Array, millrace.Map, millrace.Row:
	}
	return noFamily
}

// comparator compares row by row, for columns of one family.
func comparator(a arrow.Array, at millrace.DataType, b arrow.Array, bt millrace.DataType) func(i int) int {
	switch familyOf(at.Kind) {
	case boolFamily:
		x, y := bools(a), bools(b)
		return func(i int) int { return compareBool(x(i), y(i)) }
	case textFamily, bytesFamily:
		x, y := newByteColumn(a), newByteColumn(b)
		return func(i int) int { return bytes.Compare(x.at(int32(i)), y.at(int32(i))) }
	case timeFamily, dateFamily:
		return unitComparator(integers(a), unitNanos(at), integers(b), unitNanos(bt))
	case numberFamily:
		return numberComparator(a, at, b, bt)
	case noFamily:
	}
	panic("filter: columns that do not compare")
}

// unitComparator compares counts of different units: the finer one, cut to the
// coarser unit, decides, and on a tie what was cut off. Cutting goes toward zero,
// for which the order of the two steps holds as well.
func unitComparator(x func(int) int64, xUnit int64, y func(int) int64, yUnit int64) func(int) int {
	switch {
	case xUnit == yUnit:
		return func(i int) int { return cmp.Compare(x(i), y(i)) }
	case xUnit < yUnit:
		turned := unitComparator(y, yUnit, x, xUnit)
		return func(i int) int { return -turned(i) }
	}
	ratio := xUnit / yUnit
	return func(i int) int {
		fine := y(i)
		if c := cmp.Compare(x(i), fine/ratio); c != 0 {
			return c
		}
		return cmp.Compare(0, fine%ratio)
	}
}

func numberComparator(a arrow.Array, at millrace.DataType, b arrow.Array, bt millrace.DataType) func(int) int {
	rank := func(k millrace.Kind) int { // integers, decimals, floats
		switch k {
		case millrace.Float, millrace.Double:
			return 2
		case millrace.Decimal:
			return 1
		default:
			return 0
		}
	}
	ar, br := rank(at.Kind), rank(bt.Kind)
	switch {
	case ar > br:
		turned := numberComparator(b, bt, a, at)
		return func(i int) int { return -turned(i) }
	case br == 0:
		x, y := integers(a), integers(b)
		return func(i int) int { return cmp.Compare(x(i), y(i)) }
	case ar == 2:
		x, y := floats(a), floats(b)
		return func(i int) int { return cmp.Compare(floatKey(x(i)), floatKey(y(i))) }
	case ar == 0 && br == 2:
		x, y := integers(a), floats(b)
		return func(i int) int { return compareIntFloat(x(i), y(i)) }
	case br == 2:
		x, y := decimalsOf(a), floats(b)
		return func(i int) int { return compareDecimalFloat(x(i), at.Scale, y(i)) }
	}
	x, y := decimalsOf(a), decimalsOf(b)
	return func(i int) int { return compareDecimals(x(i), at.Scale, y(i), bt.Scale) }
}

func widen[T integer](values []T) func(int) int64 {
	return func(i int) int64 { return int64(values[i]) }
}

// integers reads the stored integers of a column.
func integers(arr arrow.Array) func(int) int64 {
	switch arr := arr.(type) {
	case *array.Int8:
		return widen(arr.Values())
	case *array.Int16:
		return widen(arr.Values())
	case *array.Int32:
		return widen(arr.Values())
	case *array.Int64:
		return widen(arr.Values())
	case *array.Date32:
		return widen(arr.Values())
	case *array.Time32:
		return widen(arr.Values())
	case *array.Time64:
		return widen(arr.Values())
	case *array.Timestamp:
		return widen(arr.Values())
	}
	panic("filter: an array without integers")
}

func floats(arr arrow.Array) func(int) float64 {
	switch arr := arr.(type) {
	case *array.Float32:
		values := arr.Values()
		return func(i int) float64 { return float64(values[i]) }
	case *array.Float64:
		values := arr.Values()
		return func(i int) float64 { return values[i] }
	}
	panic("filter: an array without floats")
}

// decimalsOf reads decimals, or integers as decimals of scale 0.
func decimalsOf(arr arrow.Array) func(int) decimal128.Num {
	if arr, ok := arr.(*array.Decimal128); ok {
		values := arr.Values()
		return func(i int) decimal128.Num { return values[i] }
	}
	read := integers(arr)
	return func(i int) decimal128.Num { return decimal128.FromI64(read(i)) }
}

func bools(arr arrow.Array) func(int) bool {
	values, ok := arr.(*array.Boolean)
	if !ok {
		panic("filter: an array without booleans")
	}
	return values.Value
}
