package arrowrow

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/float16"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// intKernel casts integers to every numeric type, as far as they fit exactly.
func intKernel(in arrow.DataType) kernel {
	switch in.ID() {
	case arrow.INT8:
		return castInt[int8]
	case arrow.INT16:
		return castInt[int16]
	case arrow.INT32:
		return castInt[int32]
	case arrow.INT64:
		return castInt[int64]
	case arrow.UINT8:
		return castInt[uint8]
	case arrow.UINT16:
		return castInt[uint16]
	case arrow.UINT32:
		return castInt[uint32]
	case arrow.UINT64:
		return castInt[uint64]
	default:
		return nil
	}
}

func castInt[S integer](x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	if in.DataType().ID() == c.out.ID() {
		return castSame(x, c, in, at)
	}
	switch c.column.Type.Kind {
	case millrace.TinyInt:
		return convert[S, int8](x, c, in, at)
	case millrace.SmallInt:
		return convert[S, int16](x, c, in, at)
	case millrace.Int:
		return convert[S, int32](x, c, in, at)
	case millrace.BigInt:
		return convert[S, int64](x, c, in, at)
	case millrace.Float:
		return toFloat[S, float32](x, c, in, at, 24)
	case millrace.Double:
		return toFloat[S, float64](x, c, in, at, 53)
	default:
		src := values[S](in)
		return x.decimals(c, in, at, 0, func(i int) (bool, magnitude) {
			v := src[i]
			if v < 0 {
				return true, magnitude{-uint64(v)}
			}
			return false, magnitude{uint64(v)}
		})
	}
}

// convert casts integers one by one; what does not come back as itself does not fit.
func convert[S integer, T int8 | int16 | int32 | int64](x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	out, dst, err := room[T](x, in.Len())
	if err != nil {
		return nil, err
	}
	for i, v := range values[S](in) {
		t := T(v)
		dst[i] = t
		if S(t) != v || (v < 0) != (t < 0) {
			if dst[i] = 0; !isNull(in, i) && !x.counted(at, i) {
				x.fail(at, i, errs.ValueOutOfRange, "%d does not fit %s", v, c.column.Type)
			}
		}
	}
	return c.fresh(in, out), nil
}

// toFloat casts integers that need no more digits than a float's mantissa has bits.
func toFloat[S integer, T float32 | float64](x *run, c *cast, in arrow.ArrayData, at *place, mantissa int) (arrow.ArrayData, error) {
	out, dst, err := room[T](x, in.Len())
	if err != nil {
		return nil, err
	}
	for i, v := range values[S](in) {
		m := uint64(v)
		if v < 0 {
			m = -m
		}
		if bits.Len64(m)-bits.TrailingZeros64(m) > mantissa && m != 0 {
			if !isNull(in, i) && !x.counted(at, i) {
				x.fail(at, i, errs.ValueOutOfRange, "%d does not fit %s exactly", v, c.column.Type)
			}
			continue
		}
		dst[i] = T(v)
	}
	return c.fresh(in, out), nil
}

// room is memory for n values, as bytes and as themselves.
func room[T int8 | int16 | int32 | int64 | float32 | float64](x *run, n int) ([]byte, []T, error) {
	var width T
	out, err := x.bytes(n * int(unsafe.Sizeof(width)))
	if err != nil {
		return nil, nil, err
	}
	return out, arrow.GetData[T](out), nil
}

// floatKernel casts floats to wider ones.
func floatKernel(in, out arrow.DataType) kernel {
	switch {
	case in.ID() == out.ID():
		return castSame
	case in.ID() == arrow.FLOAT32 && out.ID() == arrow.FLOAT64:
		return func(x *run, c *cast, in arrow.ArrayData, _ *place) (arrow.ArrayData, error) {
			return widen(x, c, in, func(v float32) float64 { return float64(v) })
		}
	case in.ID() == arrow.FLOAT16 && out.ID() == arrow.FLOAT32:
		return func(x *run, c *cast, in arrow.ArrayData, _ *place) (arrow.ArrayData, error) {
			return widen(x, c, in, float16.Num.Float32)
		}
	case in.ID() == arrow.FLOAT16 && out.ID() == arrow.FLOAT64:
		return func(x *run, c *cast, in arrow.ArrayData, _ *place) (arrow.ArrayData, error) {
			return widen(x, c, in, func(v float16.Num) float64 { return float64(v.Float32()) })
		}
	}
	return nil
}

func widen[S float32 | float16.Num, T float32 | float64](x *run, c *cast, in arrow.ArrayData, f func(S) T) (arrow.ArrayData, error) {
	out, dst, err := room[T](x, in.Len())
	if err != nil {
		return nil, err
	}
	for i, v := range values[S](in) {
		dst[i] = f(v)
	}
	return c.fresh(in, out), nil
}

// decimalKernel casts decimals of every width and scale, as far as they fit exactly.
func decimalKernel(in arrow.DataType) kernel {
	switch in.ID() {
	case arrow.DECIMAL32, arrow.DECIMAL64, arrow.DECIMAL128, arrow.DECIMAL256:
		return castDecimal
	default:
		return nil
	}
}

func castDecimal(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	t := in.DataType().(arrow.DecimalType)
	raw := in.Buffers()[1].Bytes()
	if in.DataType().ID() == arrow.DECIMAL128 && int(t.GetScale()) == c.column.Type.Scale {
		return x.sameDecimals(c, in, at, raw)
	}
	words := t.BitWidth() / 64
	return x.decimals(c, in, at, int(t.GetScale()), func(i int) (bool, magnitude) {
		if words == 0 {
			v := int64(int32(binary.LittleEndian.Uint32(raw[i*4:])))
			return v < 0, magnitude{uint64(max(v, -v))}
		}
		var m magnitude
		for w := range words {
			m[w] = binary.LittleEndian.Uint64(raw[(i*words+w)*8:])
		}
		neg := int64(m[words-1]) < 0
		if neg {
			m.negate(words)
		}
		return neg, m
	})
}

// sameDecimals takes decimals of the right width and scale, once it is sure that
// they have no more digits than the type: Arrow's precision is a promise only.
func (x *run) sameDecimals(c *cast, in arrow.ArrayData, at *place, raw []byte) (arrow.ArrayData, error) {
	limit := pow10[c.column.Type.Precision]
	for i := range in.Len() {
		lo, hi := binary.LittleEndian.Uint64(raw[i*16:]), binary.LittleEndian.Uint64(raw[i*16+8:])
		if int64(hi) < 0 {
			var borrow uint64
			lo, borrow = bits.Sub64(0, lo, 0)
			hi, _ = bits.Sub64(0, hi, borrow)
		}
		if (hi > limit[1] || hi == limit[1] && lo >= limit[0]) && !isNull(in, i) && !x.counted(at, i) {
			x.fail(at, i, errs.ValueOutOfRange, "the value does not fit %s", c.column.Type)
		}
	}
	return castSame(x, c, in, at)
}

// decimals makes decimals of values that get gives as sign and magnitude, times
// 10^-scale.
func (x *run) decimals(c *cast, in arrow.ArrayData, at *place, scale int, get func(i int) (bool, magnitude)) (arrow.ArrayData, error) {
	t := c.column.Type
	out, err := x.bytes(in.Len() * arrow.Decimal128SizeBytes)
	if err != nil {
		return nil, err
	}
	limit := pow10[t.Precision]
	for i := range in.Len() {
		if isNull(in, i) {
			continue
		}
		neg, m := get(i)
		ok := m.scale(t.Scale - scale)
		if !ok || m[2]|m[3] != 0 || m[1] > limit[1] || m[1] == limit[1] && m[0] >= limit[0] {
			if !x.counted(at, i) {
				x.fail(at, i, errs.ValueOutOfRange, "the value does not fit %s exactly", t)
			}
			continue
		}
		if neg {
			m.negate(2)
		}
		binary.LittleEndian.PutUint64(out[i*16:], m[0])
		binary.LittleEndian.PutUint64(out[i*16+8:], m[1])
	}
	return c.fresh(in, out), nil
}

// magnitude is a number of 256 bits, lowest word first.
type magnitude [4]uint64

// pow10 holds 10^0 … 10^38.
var pow10 = func() (p [millrace.MaxDecimalPrecision + 1]magnitude) {
	p[0][0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1]
		p[i].mul(10)
	}
	return p
}()

func (m *magnitude) negate(words int) {
	carry := uint64(1)
	for i := range words {
		m[i], carry = bits.Add64(^m[i], 0, carry)
	}
}

func (m *magnitude) mul(f uint64) {
	var carry uint64
	for i := range m {
		hi, lo := bits.Mul64(m[i], f)
		var c uint64
		m[i], c = bits.Add64(lo, carry, 0)
		carry = hi + c
	}
}

// div divides and returns the rest.
func (m *magnitude) div(d uint64) (rest uint64) {
	for i := len(m) - 1; i >= 0; i-- {
		m[i], rest = bits.Div64(rest, m[i], d)
	}
	return rest
}

// scale multiplies by 10^n; ok is false when that is no whole number or has more
// than 38 digits.
func (m *magnitude) scale(n int) (ok bool) {
	if *m == (magnitude{}) {
		return true
	}
	for n < 0 {
		step := min(-n, 19)
		if m.div(pow10[step][0]) != 0 {
			return false
		}
		n += step
	}
	for n > 0 {
		// 10^38 has 127 bits and 10^19 has 64, so this never overflows.
		if m[2]|m[3] != 0 || m[1] > pow10[38][1] {
			return false
		}
		step := min(n, 19)
		m.mul(pow10[step][0])
		n -= step
	}
	return true
}
