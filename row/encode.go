package row

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
)

// The one NaN of each width: every NaN is written as this.
const (
	canonicalNaN32 = 0x7fc00000
	canonicalNaN64 = 0x7ff8000000000000
)

// AppendRow appends row i of rec to dst.
// REQUIRES: rec has all columns of the schema, in order, in canonical types.
func (c *Codec) AppendRow(dst []byte, rec arrow.RecordBatch, i int) []byte {
	arrs := rec.Columns()
	if len(arrs) != len(c.tuple.fields) {
		panic(fmt.Sprintf("row: %d columns for the %d of schema %d", len(arrs), len(c.tuple.fields), c.schema.ID))
	}
	dst, at := c.begin(dst)
	for j, arr := range arrs {
		dst = c.tuple.appendField(dst, at, j, arr, i)
	}
	return dst
}

// AppendPartial appends row i of rec to dst: column j of rec is column cols[j] of
// the schema, and the columns not in cols are NULL.
// REQUIRES: cols rises; the columns are of canonical types.
func (c *Codec) AppendPartial(dst []byte, rec arrow.RecordBatch, cols []int, i int) []byte {
	dst, at := c.begin(dst)
	next := 0
	for j := range c.tuple.fields {
		if next < len(cols) && cols[next] == j {
			dst = c.tuple.appendField(dst, at, j, rec.Column(next), i)
			next++
			continue
		}
		c.tuple.putNull(dst, at, j)
	}
	if next != len(cols) {
		panic(fmt.Sprintf("row: columns %v do not rise or are not of the schema", cols))
	}
	return dst
}

// begin appends the header and an empty fixed part, which starts at the second result.
func (c *Codec) begin(dst []byte) ([]byte, int) {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(c.schema.ID))
	return c.tuple.begin(dst)
}

func (t *tuple) begin(dst []byte) ([]byte, int) {
	at := len(dst)
	dst = slices.Grow(dst, t.head)[:at+t.head]
	clear(dst[at:])
	return dst, at
}

// putNull makes field j of the tuple that begins at NULL. Fields are put in order.
func (t *tuple) putNull(dst []byte, at, j int) {
	f := &t.fields[j]
	dst[at+f.nullAt] |= f.nullBit
	if f.width == 0 {
		t.putEnd(dst, at, f)
	}
}

// putEnd notes that the value of f ends where dst ends.
func (t *tuple) putEnd(dst []byte, at int, f *field) {
	binary.LittleEndian.PutUint32(dst[at+f.at:], uint32(len(dst)-at-t.head))
}

// appendField writes value i of arr as field j of the tuple that begins at.
func (t *tuple) appendField(dst []byte, at, j int, arr arrow.Array, i int) []byte {
	f := &t.fields[j]
	if f.width != 0 {
		if !putSlot(dst[at+f.at:at+f.at+f.width], f.layout, arr, i) {
			dst[at+f.nullAt] |= f.nullBit
		}
		return dst
	}
	dst, valid := appendVariable(dst, f.layout, arr, i)
	if !valid {
		dst[at+f.nullAt] |= f.nullBit
	}
	t.putEnd(dst, at, f)
	return dst
}

// putSlot writes value i of arr into its slot, which is zero; false: it is NULL
// and the slot stays zero. It panics when arr is not of the type's canonical kind.
func putSlot(slot []byte, l *layout, arr arrow.Array, i int) bool {
	switch l.typ.Kind {
	case millrace.BigInt:
		a := arr.(*array.Int64)
		if a.IsNull(i) {
			return false
		}
		binary.LittleEndian.PutUint64(slot, uint64(a.Value(i)))
	case millrace.Int:
		a := arr.(*array.Int32)
		if a.IsNull(i) {
			return false
		}
		binary.LittleEndian.PutUint32(slot, uint32(a.Value(i)))
	case millrace.Timestamp, millrace.TimestampLTZ:
		a := arr.(*array.Timestamp)
		if a.IsNull(i) {
			return false
		}
		binary.LittleEndian.PutUint64(slot, uint64(a.Value(i)))
	case millrace.Double:
		a := arr.(*array.Float64)
		if a.IsNull(i) {
			return false
		}
		binary.LittleEndian.PutUint64(slot, float64Bits(a.Value(i)))
	case millrace.Float:
		a := arr.(*array.Float32)
		if a.IsNull(i) {
			return false
		}
		binary.LittleEndian.PutUint32(slot, float32Bits(a.Value(i)))
	case millrace.Decimal:
		a := arr.(*array.Decimal128)
		if a.IsNull(i) {
			return false
		}
		v := a.Value(i)
		binary.LittleEndian.PutUint64(slot, v.LowBits())
		binary.LittleEndian.PutUint64(slot[8:], uint64(v.HighBits()))
	case millrace.Boolean:
		a := arr.(*array.Boolean)
		if a.IsNull(i) {
			return false
		}
		if a.Value(i) {
			slot[0] = 1
		}
	case millrace.Date:
		a := arr.(*array.Date32)
		if a.IsNull(i) {
			return false
		}
		binary.LittleEndian.PutUint32(slot, uint32(a.Value(i)))
	case millrace.SmallInt:
		a := arr.(*array.Int16)
		if a.IsNull(i) {
			return false
		}
		binary.LittleEndian.PutUint16(slot, uint16(a.Value(i)))
	case millrace.TinyInt:
		a := arr.(*array.Int8)
		if a.IsNull(i) {
			return false
		}
		slot[0] = byte(a.Value(i))
	case millrace.Time:
		return putTime(slot, l, arr, i)
	case millrace.Binary:
		a := arr.(*array.FixedSizeBinary)
		if a.IsNull(i) {
			return false
		}
		if copy(slot, a.Value(i)) != l.width {
			panic(notCanonical(l, arr))
		}
	default:
		panic(notCanonical(l, arr))
	}
	return true
}

func putTime(slot []byte, l *layout, arr arrow.Array, i int) bool {
	if arr.IsNull(i) {
		return false
	}
	if l.width == 4 {
		binary.LittleEndian.PutUint32(slot, uint32(arr.(*array.Time32).Value(i)))
	} else {
		binary.LittleEndian.PutUint64(slot, uint64(arr.(*array.Time64).Value(i)))
	}
	return true
}

func notCanonical(l *layout, arr arrow.Array) string {
	return fmt.Sprintf("row: %v in a column of type %v", arr.DataType(), l.typ)
}

func float64Bits(v float64) uint64 {
	if v != v {
		return canonicalNaN64
	}
	return math.Float64bits(v)
}

func float32Bits(v float32) uint32 {
	if v != v {
		return canonicalNaN32
	}
	return math.Float32bits(v)
}

// appendVariable appends value i of arr, of a type that lies in the variable
// section; false: it is NULL and nothing was appended.
func appendVariable(dst []byte, l *layout, arr arrow.Array, i int) ([]byte, bool) {
	switch l.typ.Kind {
	case millrace.Char, millrace.String:
		a := arr.(*array.String)
		if a.IsNull(i) {
			return dst, false
		}
		return append(dst, a.Value(i)...), true
	case millrace.Bytes:
		a := arr.(*array.Binary)
		if a.IsNull(i) {
			return dst, false
		}
		return append(dst, a.Value(i)...), true
	case millrace.Binary:
		a := arr.(*array.FixedSizeBinary)
		if a.IsNull(i) {
			return dst, false
		}
		return append(dst, a.Value(i)...), true
	case millrace.Row:
		a := arr.(*array.Struct)
		if a.IsNull(i) {
			return dst, false
		}
		return appendTuple(dst, l.tuple, a, i), true
	case millrace.Array:
		a := arr.(*array.List)
		if a.IsNull(i) {
			return dst, false
		}
		from, to := a.ValueOffsets(i)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(to-from))
		return appendVector(dst, l.elem, a.ListValues(), int(from), int(to)), true
	case millrace.Map:
		a := arr.(*array.Map)
		if a.IsNull(i) {
			return dst, false
		}
		from, to := a.ValueOffsets(i)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(to-from))
		// Not a.Keys(): it leaves out the offset of the entries.
		entries := a.ListValues().(*array.Struct)
		dst = appendVector(dst, l.key, entries.Field(0), int(from), int(to))
		return appendVector(dst, l.elem, entries.Field(1), int(from), int(to)), true
	default:
		panic(notCanonical(l, arr))
	}
}

func appendTuple(dst []byte, t *tuple, a *array.Struct, i int) []byte {
	dst, at := t.begin(dst)
	for j := range t.fields {
		dst = t.appendField(dst, at, j, a.Field(j), i)
	}
	return dst
}

// appendVector appends values [from, to) of arr.
func appendVector(dst []byte, l *layout, arr arrow.Array, from, to int) []byte {
	n, at := to-from, len(dst)
	slots := at + bitmapBytes(n)
	vars := slots + n*l.slotBytes()
	dst = slices.Grow(dst, vars-at)[:vars]
	clear(dst[at:])
	for k := range n {
		var valid bool
		if l.width != 0 {
			slot := slots + k*l.width
			valid = putSlot(dst[slot:slot+l.width], l, arr, from+k)
		} else {
			dst, valid = appendVariable(dst, l, arr, from+k)
			binary.LittleEndian.PutUint32(dst[slots+k*endBytes:], uint32(len(dst)-vars))
		}
		if !valid {
			dst[at+k/8] |= 1 << (k % 8)
		}
	}
	return dst
}
