package jsonrow

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"

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

// float writes the shortest number that reads back as f, as JavaScript does.
func (w *writer) float(dst []byte, f float64, bitSize int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	case f == 0 && w.opts.plusZero:
		return append(dst, '0')
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 {
		low, high := abs < 1e-6, abs >= 1e21
		if bitSize == 32 {
			low, high = float32(abs) < 1e-6, float32(abs) >= 1e21
		}
		if low || high {
			format = 'e'
		}
	}
	dst = strconv.AppendFloat(dst, f, format, -1, bitSize)
	// e-09 is written e-9.
	if n := len(dst); format == 'e' && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// appendDecimal writes an unscaled value with scale digits behind the point.
func appendDecimal(dst []byte, hi, lo uint64, scale int) []byte {
	if int64(hi) < 0 {
		dst = append(dst, '-')
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	// 10^19 is the highest power of ten in 64 bits, so 39 digits are at most three
	// pieces.
	var digits [3 * 19]byte
	at := len(digits)
	for hi != 0 || lo != 0 {
		const e19 = 10_000_000_000_000_000_000
		var piece uint64
		var q uint64
		q, hi = hi/e19, hi%e19
		lo, piece = bits.Div64(hi, lo, e19)
		hi = q
		for range 19 {
			at--
			digits[at] = byte('0' + piece%10)
			piece /= 10
		}
	}
	text := digits[at:]
	for len(text) > scale+1 && text[0] == '0' {
		text = text[1:]
	}
	if n := len(text); n <= scale {
		dst = append(dst, '0')
		if scale > 0 {
			dst = append(dst, '.')
		}
		for range scale - n {
			dst = append(dst, '0')
		}
		return append(dst, text...)
	}
	dst = append(dst, text[:len(text)-scale]...)
	if scale > 0 {
		dst = append(append(dst, '.'), text[len(text)-scale:]...)
	}
	return dst
}

func appendTwo(dst []byte, n int) []byte {
	return append(dst, byte('0'+n/10%10), byte('0'+n%10))
}

func appendDate(dst []byte, days int32) []byte {
	y, m, d := dateOf(days)
	dst = appendTwo(appendTwo(dst, y/100), y)
	return appendTwo(append(appendTwo(append(dst, '-'), m), '-'), d)
}

// clock writes a time of day, with as many digits behind the second as the
// type's precision.
func (w *writer) clock(dst []byte, s, frac int64) []byte {
	dst = appendTwo(dst, int(s/3600))
	dst = appendTwo(append(dst, ':'), int(s/60%60))
	dst = appendTwo(append(dst, ':'), int(s%60))
	p := w.typ.Precision
	if p == 0 {
		return dst
	}
	dst = append(dst, '.')
	for div := w.unit.perSecond / 10; p > 0; p, div = p-1, div/10 {
		dst = append(dst, byte('0'+frac/div%10))
	}
	return dst
}

func (w *writer) timestamp(dst []byte, v int64) []byte {
	s, frac := v/w.unit.perSecond, v%w.unit.perSecond
	if frac < 0 {
		s, frac = s-1, frac+w.unit.perSecond
	}
	days, rest := s/secondsPerDay, s%secondsPerDay
	if rest < 0 {
		days, rest = days-1, rest+secondsPerDay
	}
	dst = appendDate(append(dst, '"'), int32(days))
	dst = w.clock(append(dst, 'T'), rest, frac)
	if w.typ.Kind == millrace.TimestampLTZ {
		dst = append(dst, 'Z')
	}
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

// appendText writes a JSON string. Only what JSON demands is escaped. Text that is
// not UTF-8 cannot have come in; should it be there, it is written as U+FFFD, so
// that what leaves is always JSON.
func appendText(dst, text []byte) []byte {
	dst = append(dst, '"')
	for from := 0; ; {
		end, ascii := plainEnd(text, from)
		if ascii || utf8.Valid(text[from:end]) {
			dst = append(dst, text[from:end]...)
		} else {
			for _, r := range string(text[from:end]) {
				dst = utf8.AppendRune(dst, r)
			}
		}
		if end == len(text) {
			return append(dst, '"')
		}
		switch c := text[end]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		from = end + 1
	}
}
