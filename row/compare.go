package row

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	millrace "github.com/millrace/millrace"
)

// Compare orders the values of column col in two rows: below 0 when a's comes first.
// NULL is the lowest, NaN the highest, and -0.0 is 0.0.
// REQUIRES: the column is a scalar; both rows passed [Codec.Check] or were made by
// this codec.
func (c *Codec) Compare(a, b []byte, col int) int {
	f := &c.tuple.fields[col]
	va, vb := c.tuple.value(a[headerBytes:], f), c.tuple.value(b[headerBytes:], f)
	switch {
	case va == nil && vb == nil:
		return 0
	case va == nil:
		return -1
	case vb == nil:
		return 1
	}
	return f.compare(va, vb)
}

// value is the bytes of field f of the tuple in b, nil when it is NULL.
// REQUIRES: the tuple is framed right.
func (t *tuple) value(b []byte, f *field) []byte {
	switch {
	case b[f.nullAt]&f.nullBit != 0:
		return nil
	case f.width != 0:
		return b[f.at : f.at+f.width]
	}
	from := 0
	if f.prev >= 0 {
		from = end(b, f.prev)
	}
	return b[t.head+from : t.head+end(b, f.at)]
}

// compare orders two values of a scalar type by their bytes.
func (l *layout) compare(a, b []byte) int {
	switch l.typ.Kind {
	case millrace.Boolean:
		return cmp.Compare(a[0], b[0])
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt, millrace.Date, millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		return cmp.Compare(signed(a), signed(b))
	case millrace.Float:
		return compareFloats(float64(slotFloat32(a)), float64(slotFloat32(b)))
	case millrace.Double:
		return compareFloats(slotFloat64(a), slotFloat64(b))
	case millrace.Decimal:
		return slotDecimal(a).Cmp(slotDecimal(b))
	case millrace.Char, millrace.String, millrace.Bytes, millrace.Binary:
		return bytes.Compare(a, b)
	case millrace.Array, millrace.Map, millrace.Row:
	}
	panic(fmt.Sprintf("row: values of %v have no order", l.typ))
}

func slotFloat32(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func slotFloat64(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }

// compareFloats puts NaN last, where cmp.Compare puts it first.
func compareFloats(a, b float64) int {
	switch aNaN, bNaN := a != a, b != b; {
	case aNaN && bNaN:
		return 0
	case aNaN:
		return 1
	case bNaN:
		return -1
	}
	return cmp.Compare(a, b)
}
