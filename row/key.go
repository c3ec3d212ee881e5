package row

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A key is the values of its columns one after the other, each so that bytes
// compare as values do and none is a prefix of another:
//
//	BOOLEAN                      1 byte, 0 or 1
//	integers, DATE, TIME, TIMESTAMP(_LTZ)
//	                             big endian in the width of the Arrow type, sign bit flipped
//	DECIMAL                      16 bytes, the unscaled value, big endian, sign bit flipped
//	BINARY(n)                    its n bytes
//	CHAR, STRING, BYTES          its bytes, 00 written as 00 FF, then 00 00
//
// So keys compare as tuples, and the key of a prefix of the columns is a prefix
// of the key.

const (
	escapeByte  = 0x00 // begins 00 FF and 00 00
	escapedZero = 0xff
	terminator  = 0x00
	signBit8    = 1 << 7
	signBit16   = 1 << 15
	signBit32   = 1 << 31
	signBit64   = 1 << 63
)

// AppendKey appends the key of row i: the values of the given columns of rec.
// REQUIRES: the columns are scalars that may be in keys, in canonical types; the
// values are not NULL.
func AppendKey(dst []byte, rec arrow.RecordBatch, cols []int, i int) []byte {
	for _, c := range cols {
		arr := rec.Column(c)
		if arr.IsNull(i) {
			panic(fmt.Sprintf("row: NULL in key column %q", rec.ColumnName(c)))
		}
		dst = appendKeyValue(dst, arr, i)
	}
	return dst
}

func appendKeyValue(dst []byte, arr arrow.Array, i int) []byte {
	switch a := arr.(type) {
	case *array.Int64:
		return appendKey64(dst, uint64(a.Value(i)))
	case *array.Int32:
		return appendKey32(dst, uint32(a.Value(i)))
	case *array.String:
		return appendKeyBytes(dst, a.Value(i))
	case *array.Binary:
		return appendKeyBytes(dst, a.ValueString(i))
	case *array.Timestamp:
		return appendKey64(dst, uint64(a.Value(i)))
	case *array.Date32:
		return appendKey32(dst, uint32(a.Value(i)))
	case *array.Int16:
		return binary.BigEndian.AppendUint16(dst, uint16(a.Value(i))^signBit16)
	case *array.Int8:
		return append(dst, byte(a.Value(i))^signBit8)
	case *array.Boolean:
		if a.Value(i) {
			return append(dst, 1)
		}
		return append(dst, 0)
	case *array.Time32:
		return appendKey32(dst, uint32(a.Value(i)))
	case *array.Time64:
		return appendKey64(dst, uint64(a.Value(i)))
	case *array.Decimal128:
		v := a.Value(i)
		return binary.BigEndian.AppendUint64(appendKey64(dst, uint64(v.HighBits())), v.LowBits())
	case *array.FixedSizeBinary:
		return append(dst, a.Value(i)...)
	}
	panic(fmt.Sprintf("row: %v cannot be in a key", arr.DataType()))
}

func appendKey32(dst []byte, v uint32) []byte {
	return binary.BigEndian.AppendUint32(dst, v^signBit32)
}

func appendKey64(dst []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, v^signBit64)
}

func appendKeyBytes[T string | []byte](dst []byte, v T) []byte {
	from := len(dst)
	dst = append(dst, v...)
	if bytes.IndexByte(dst[from:], escapeByte) >= 0 {
		dst = appendEscaped(dst[:from], v)
	}
	return append(dst, escapeByte, terminator)
}

func appendEscaped[T string | []byte](dst []byte, v T) []byte {
	for _, b := range []byte(v) {
		dst = append(dst, b)
		if b == escapeByte {
			dst = append(dst, escapedZero)
		}
	}
	return dst
}

// AppendKeyOfRow appends the key that [AppendKey] makes of the same values: those
// of the given columns of a row of this schema. A broken row, or a NULL in a
// column of the key, is errs.CorruptData, and dst comes back as it was.
// REQUIRES: the columns are scalars that may be in keys.
func (c *Codec) AppendKeyOfRow(dst, row []byte, cols []int) ([]byte, error) {
	if id := SchemaIDOf(row); id != c.schema.ID {
		return dst, errs.New(errs.CorruptData, "a row of schema %d where one of schema %d should be", id, c.schema.ID)
	}
	t, b := c.tuple, row[headerBytes:]
	if len(b) < t.head {
		return dst, errs.New(errs.CorruptData, "a row of %d bytes where its columns need %d at least", len(b), t.head)
	}
	out := dst
	for _, i := range cols {
		f := &t.fields[i]
		if b[f.nullAt]&f.nullBit != 0 {
			return dst, errs.New(errs.CorruptData, "a row holds NULL in key column %q", c.schema.Columns[i].Name)
		}
		if f.width != 0 {
			out = appendKeySlot(out, f.layout, b[f.at:f.at+f.width])
			continue
		}
		v, err := t.variable(b, f)
		if err != nil {
			return dst, err
		}
		if f.typ.Kind == millrace.Binary {
			if len(v) != f.typ.Length {
				return dst, errs.New(errs.CorruptData, "a row's value has %d bytes where %d should be", len(v), f.typ.Length)
			}
			out = append(out, v...)
			continue
		}
		mustBeKey(f.typ)
		out = appendKeyBytes(out, v)
	}
	return out, nil
}

// appendKeySlot appends a value that lies in its slot.
func appendKeySlot(dst []byte, l *layout, slot []byte) []byte {
	mustBeKey(l.typ)
	switch {
	case l.typ.Kind == millrace.Binary || l.typ.Kind == millrace.Boolean:
		return append(dst, slot...)
	case l.width == 1:
		return append(dst, slot[0]^signBit8)
	case l.width == 2:
		return binary.BigEndian.AppendUint16(dst, binary.LittleEndian.Uint16(slot)^signBit16)
	case l.width == 4:
		return appendKey32(dst, binary.LittleEndian.Uint32(slot))
	case l.width == 8:
		return appendKey64(dst, binary.LittleEndian.Uint64(slot))
	}
	dst = appendKey64(dst, binary.LittleEndian.Uint64(slot[8:]))
	return binary.BigEndian.AppendUint64(dst, binary.LittleEndian.Uint64(slot))
}

func mustBeKey(t millrace.DataType) {
	if t.Nested() || t.Kind == millrace.Float || t.Kind == millrace.Double {
		panic(fmt.Sprintf("row: %v cannot be in a key", t))
	}
}
