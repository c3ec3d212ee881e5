package row

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
)

// pickLower is the lower of two values, the old one when they are equal.
func pickLower(l *layout) func(old, patch []byte) []byte {
	return func(old, patch []byte) []byte {
		if l.compare(patch, old) < 0 {
			return patch
		}
		return old
	}
}

// pickHigher is the higher of two values, the old one when they are equal.
func pickHigher(l *layout) func(old, patch []byte) []byte {
	return func(old, patch []byte) []byte {
		if l.compare(patch, old) > 0 {
			return patch
		}
		return old
	}
}

// sumOf adds numbers; FLOAT and DOUBLE as IEEE 754 has it, all others exactly.
func sumOf(t millrace.DataType) func(slot, old, patch []byte) bool {
	switch t.Kind {
	case millrace.Float:
		return func(slot, old, patch []byte) bool {
			return putFloat32(slot, slotFloat32(old)+slotFloat32(patch))
		}
	case millrace.Double:
		return func(slot, old, patch []byte) bool {
			return putFloat64(slot, slotFloat64(old)+slotFloat64(patch))
		}
	case millrace.Decimal:
		return func(slot, old, patch []byte) bool {
			a, b := slotDecimal(old), slotDecimal(patch)
			sum := a.Add(b)
			if a.Sign() == b.Sign() && sum.Sign() != a.Sign() {
				return false // beyond 127 bits
			}
			return putDecimal(slot, sum, t.Precision)
		}
	default:
		return func(slot, old, patch []byte) bool {
			a, b := signed(old), signed(patch)
			sum := a + b
			return (sum > a) == (b > 0) && putInt(slot, sum)
		}
	}
}

// productOf multiplies numbers; FLOAT and DOUBLE as IEEE 754 has it, integers exactly,
// a DECIMAL rounded to its scale, halves away from zero.
func productOf(t millrace.DataType) func(slot, old, patch []byte) bool {
	switch t.Kind {
	case millrace.Float:
		return func(slot, old, patch []byte) bool {
			return putFloat32(slot, slotFloat32(old)*slotFloat32(patch))
		}
	case millrace.Double:
		return func(slot, old, patch []byte) bool {
			return putFloat64(slot, slotFloat64(old)*slotFloat64(patch))
		}
	case millrace.Decimal:
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Scale)), nil)
		half := new(big.Int).Rsh(scale, 1)
		return func(slot, old, patch []byte) bool {
			p := slotDecimal(old).BigInt()
			p.Mul(p, slotDecimal(patch).BigInt())
			if p.Sign() < 0 {
				p.Sub(p, half)
			} else {
				p.Add(p, half)
			}
			p.Quo(p, scale)
			return p.BitLen() < 128 && putDecimal(slot, decimal128.FromBigInt(p), t.Precision)
		}
	default:
		return func(slot, old, patch []byte) bool {
			p, ok := mulInt(signed(old), signed(patch))
			return ok && putInt(slot, p)
		}
	}
}

// mulInt multiplies; false: the product has more than 64 bits.
func mulInt(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	switch {
	case hi != 0:
		return 0, false
	case (a < 0) != (b < 0):
		return -int64(lo), lo <= 1<<63
	}
	return int64(lo), lo < 1<<63
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// listOf joins texts. A CHAR(n) cannot hold more than n characters.
func listOf(t millrace.DataType, delimiter string) func(dst, old, patch []byte) ([]byte, string) {
	if delimiter == "" {
		delimiter = millrace.DefaultDelimiter
	}
	return func(dst, old, patch []byte) ([]byte, string) {
		at := len(dst)
		dst = append(append(append(dst, old...), delimiter...), patch...)
		if t.Kind == millrace.Char {
			if n := utf8.RuneCount(dst[at:]); n > t.Length {
				return dst, fmt.Sprintf("%d characters", n)
			}
		}
		return dst, ""
	}
}

// putInt writes a number into a slot of 1, 2, 4 or 8 bytes; false: it does not fit.
func putInt(slot []byte, v int64) bool {
	putSigned(slot, v)
	return signed(slot) == v
}

func putFloat32(slot []byte, v float32) bool {
	binary.LittleEndian.PutUint32(slot, float32Bits(v))
	return true
}

func putFloat64(slot []byte, v float64) bool {
	binary.LittleEndian.PutUint64(slot, float64Bits(v))
	return true
}

func slotDecimal(b []byte) decimal128.Num {
	return decimal128.New(int64(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b))
}

// putDecimal writes a DECIMAL; false: it has more digits than the precision.
func putDecimal(slot []byte, v decimal128.Num, precision int) bool {
	binary.LittleEndian.PutUint64(slot, v.LowBits())
	binary.LittleEndian.PutUint64(slot[8:], uint64(v.HighBits()))
	return v.FitsInPrecision(int32(precision))
}

// slotText is a number that is no float as text, for errors.
func slotText(t millrace.DataType, b []byte) string {
	if t.Kind == millrace.Decimal {
		return slotDecimal(b).ToString(int32(t.Scale))
	}
	return strconv.FormatInt(signed(b), 10)
}
