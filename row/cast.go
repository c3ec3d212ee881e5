package row

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A column may be widened, so stored values are of narrower types than a reader
// wants; and a reader that began before the change wants the narrower type: it gets
// the values that fit, and errs.SchemaChanged at one that does not.

// readable says whether a stored value can be read as one of type want. Children
// are looked at when their own decoders are made.
func readable(stored, want millrace.DataType) bool {
	switch {
	case integer(stored.Kind) && integer(want.Kind), float(stored.Kind) && float(want.Kind):
		return true
	case stored.Kind != want.Kind:
		return false
	}
	switch want.Kind {
	case millrace.Decimal:
		return stored.Scale == want.Scale
	case millrace.Binary:
		return stored.Length == want.Length
	case millrace.Time:
		return timeUnitOfDay(stored.Precision) == timeUnitOfDay(want.Precision)
	case millrace.Timestamp, millrace.TimestampLTZ:
		return timeUnit(stored.Precision) == timeUnit(want.Precision)
	default:
		return true
	}
}

// narrower says whether type to holds fewer values than the readable type from.
func narrower(from, to millrace.DataType) bool {
	if to.Kind == millrace.Decimal {
		return to.Precision < from.Precision
	}
	return to.Kind < from.Kind // kinds of integers and floats are in rising width
}

func integer(k millrace.Kind) bool { return k >= millrace.TinyInt && k <= millrace.BigInt }

func float(k millrace.Kind) bool { return k == millrace.Float || k == millrace.Double }

// timeUnitOfDay is how many digits of a second the Arrow type of TIME(p) holds.
func timeUnitOfDay(precision int) int {
	switch {
	case precision <= 3:
		return 3
	case precision <= 6:
		return 6
	}
	return 9
}

// castDecoder decodes scalars stored as one type into a column of another.
// REQUIRES: readable.
func castDecoder(stored, want millrace.DataType, col column) decoder {
	switch {
	case stored.Kind == want.Kind:
		if want.Kind == millrace.Decimal && narrower(stored, want) {
			return &decimalCast{wideColumn: col.(*wideColumn), want: want}
		}
		return col.(decoder)
	case want.Kind == millrace.Double:
		return &floatToDouble{col.(*column64)}
	case want.Kind == millrace.Float:
		return &doubleToFloat{col.(*column32)}
	}
	switch c := col.(type) {
	case *column8:
		return &intCast[uint8]{fixedColumn: &c.fixedColumn, bits: 8, want: want}
	case *column16:
		return &intCast[uint16]{fixedColumn: &c.fixedColumn, bits: 16, want: want}
	case *column32:
		return &intCast[uint32]{fixedColumn: &c.fixedColumn, bits: 32, want: want}
	default:
		return &intCast[uint64]{fixedColumn: &col.(*column64).fixedColumn, bits: 64, want: want}
	}
}

// intCast reads integers of any width.
type intCast[T uint8 | uint16 | uint32 | uint64] struct {
	*fixedColumn[T]
	bits int
	want millrace.DataType
}

func (c *intCast[T]) decode(v []byte) error {
	x := signed(v)
	if sign := x >> (c.bits - 1); sign != 0 && sign != -1 {
		return tooNarrow(x, c.want)
	}
	c.add()
	c.vals.push(T(x))
	return nil
}

// signed is the integer in a slot of 1, 2, 4 or 8 bytes.
func signed(slot []byte) int64 {
	switch len(slot) {
	case 1:
		return int64(int8(slot[0]))
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(slot)))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(slot)))
	default:
		return int64(binary.LittleEndian.Uint64(slot))
	}
}

// putSigned writes an integer that fits into its slot.
func putSigned(slot []byte, x int64) {
	for i := range slot {
		slot[i] = byte(x >> (8 * i))
	}
}

type floatToDouble struct{ *column64 }

func (c *floatToDouble) decode(v []byte) error {
	f := float64(math.Float32frombits(binary.LittleEndian.Uint32(v)))
	c.add()
	c.vals.push(float64Bits(f))
	return nil
}

type doubleToFloat struct{ *column32 }

func (c *doubleToFloat) decode(v []byte) error {
	d := math.Float64frombits(binary.LittleEndian.Uint64(v))
	f := float32(d)
	if float64(f) != d && d == d {
		return tooNarrow(d, millrace.DataType{Kind: millrace.Float})
	}
	c.add()
	c.vals.push(float32Bits(f))
	return nil
}

// decimalCast reads decimals of a higher precision.
type decimalCast struct {
	*wideColumn
	want millrace.DataType
}

func (c *decimalCast) decode(v []byte) error {
	d := decimal128.New(int64(binary.LittleEndian.Uint64(v[8:])), binary.LittleEndian.Uint64(v))
	if !d.FitsInPrecision(int32(c.want.Precision)) {
		return tooNarrow(d.ToString(int32(c.want.Scale)), c.want)
	}
	return c.wideColumn.decode(v)
}

func tooNarrow(value any, want millrace.DataType) error {
	return errs.New(errs.SchemaChanged, "the value %v does not fit into %v, which the column was when the read began: start the read again with the newer schema", value, want)
}
