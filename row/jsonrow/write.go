package jsonrow

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	millrace "github.com/millrace/millrace"
)

// writer writes values of one column or nested field. bind takes the column's
// memory apart once, so that writing a value is a switch and no call of an
// interface.
type writer struct {
	typ      millrace.DataType
	opts     EncodeOptions
	name     []byte // `"name":`, as a field of a ROW
	unit     timeUnit
	children []*writer

	// The bound array. Value i stands at base+i of valid, fixed and offsets.
	base    int
	valid   []byte // nil: no NULL
	fixed   []byte
	offsets []int32
	data    []byte
}

func newWriter(c millrace.Column, opts EncodeOptions) *writer {
	w := &writer{typ: c.Type, opts: opts, name: append(appendText(nil, []byte(c.Name)), ':')}
	switch c.Type.Kind {
	case millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		w.unit = unitOf(c.Type)
	default:
	}
	for _, ch := range c.Type.Children {
		w.children = append(w.children, newWriter(ch, opts))
	}
	return w
}

// bind makes arr the array whose values are written. shift is where its first
// value stands within its parent, for fields of a sliced ROW.
func (w *writer) bind(arr arrow.ArrayData, shift int) {
	w.base = arr.Offset() + shift
	bytesOf := func(i int) []byte {
		if b := arr.Buffers()[i]; b != nil {
			return b.Bytes()
		}
		return nil
	}
	w.valid = nil
	if arr.NullN() != 0 {
		w.valid = bytesOf(0)
	}
	switch w.typ.Kind {
	case millrace.Char, millrace.String, millrace.Bytes:
		w.offsets, w.data = arrow.Int32Traits.CastFromBytes(bytesOf(1)), bytesOf(2)
	case millrace.Array:
		w.offsets = arrow.Int32Traits.CastFromBytes(bytesOf(1))
		w.children[0].bind(arr.Children()[0], 0)
	case millrace.Map:
		w.offsets = arrow.Int32Traits.CastFromBytes(bytesOf(1))
		entries := arr.Children()[0]
		for i, ch := range w.children {
			ch.bind(entries.Children()[i], entries.Offset())
		}
	case millrace.Row:
		for i, ch := range w.children {
			ch.bind(arr.Children()[i], w.base)
		}
	default:
		w.fixed = bytesOf(1)
	}
}

func (w *writer) u32(i int) uint32 { return binary.LittleEndian.Uint32(w.fixed[(w.base+i)*4:]) }
func (w *writer) u64(i int) uint64 { return binary.LittleEndian.Uint64(w.fixed[(w.base+i)*8:]) }

// slice is the value of a column of variable length.
func (w *writer) slice(i int) []byte {
	return w.data[w.offsets[w.base+i]:w.offsets[w.base+i+1]]
}

// append writes value i.
func (w *writer) append(dst []byte, i int) []byte {
	if w.valid != nil && !bitutil.BitIsSet(w.valid, w.base+i) {
		return append(dst, "null"...)
	}
	switch w.typ.Kind {
	case millrace.Boolean:
		return strconv.AppendBool(dst, bitutil.BitIsSet(w.fixed, w.base+i))
	case millrace.TinyInt:
		return strconv.AppendInt(dst, int64(int8(w.fixed[w.base+i])), 10)
	case millrace.SmallInt:
		return strconv.AppendInt(dst, int64(int16(binary.LittleEndian.Uint16(w.fixed[(w.base+i)*2:]))), 10)
	case millrace.Int:
		return strconv.AppendInt(dst, int64(int32(w.u32(i))), 10)
	case millrace.BigInt:
		if w.opts.Int64AsString {
			return append(strconv.AppendInt(append(dst, '"'), int64(w.u64(i)), 10), '"')
		}
		return strconv.AppendInt(dst, int64(w.u64(i)), 10)
	case millrace.Float:
		return w.float(dst, float64(math.Float32frombits(w.u32(i))), 32)
	case millrace.Double:
		return w.float(dst, math.Float64frombits(w.u64(i)), 64)
	case millrace.Decimal:
		at := (w.base + i) * 16
		lo, hi := binary.LittleEndian.Uint64(w.fixed[at:]), binary.LittleEndian.Uint64(w.fixed[at+8:])
		return append(appendDecimal(append(dst, '"'), hi, lo, w.typ.Scale), '"')
	case millrace.Char, millrace.String:
		return appendText(dst, w.slice(i))
	case millrace.Binary:
		n := w.typ.Length
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), w.fixed[(w.base+i)*n:(w.base+i+1)*n]), '"')
	case millrace.Bytes:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), w.slice(i)), '"')
	case millrace.Date:
		return append(appendDate(append(dst, '"'), int32(w.u32(i))), '"')
	case millrace.Time:
		var v int64
		if w.unit.digits <= 3 {
			v = int64(int32(w.u32(i)))
		} else {
			v = int64(w.u64(i))
		}
		return append(w.clock(append(dst, '"'), v/w.unit.perSecond, v%w.unit.perSecond), '"')
	case millrace.Timestamp, millrace.TimestampLTZ:
		return w.timestamp(dst, int64(w.u64(i)))
	case millrace.Array:
		dst = append(dst, '[')
		for j := w.offsets[w.base+i]; j < w.offsets[w.base+i+1]; j++ {
			if j > w.offsets[w.base+i] {
				dst = append(dst, ',')
			}
			dst = w.children[0].append(dst, int(j))
		}
		return append(dst, ']')
	case millrace.Map:
		return w.mapValue(dst, i)
	case millrace.Row:
		dst = append(dst, '{')
		for j, ch := range w.children {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, ch.name...)
			dst = ch.append(dst, i)
		}
		return append(dst, '}')
	default:
		panic(fmt.Sprintf("jsonrow: no JSON form of %v", w.typ.Kind))
	}
}

// mapValue writes an object when the keys are text, else an array of entries.
func (w *writer) mapValue(dst []byte, i int) []byte {
	key, val := w.children[0], w.children[1]
	from, to := w.offsets[w.base+i], w.offsets[w.base+i+1]
	if k := key.typ.Kind; k == millrace.String || k == millrace.Char {
		dst = append(dst, '{')
		for j := from; j < to; j++ {
			if j > from {
				dst = append(dst, ',')
			}
			dst = append(key.append(dst, int(j)), ':')
			dst = val.append(dst, int(j))
		}
		return append(dst, '}')
	}
	dst = append(dst, '[')
	for j := from; j < to; j++ {
		if j > from {
			dst = append(dst, ',')
		}
		dst = key.append(append(dst, `{"key":`...), int(j))
		dst = val.append(append(dst, `,"value":`...), int(j))
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
