package jsonrow

import (
	"math"
	"math/bits"
	"strconv"
	"unsafe"

	millrace "github.com/millrace/millrace"
)

// verdict is what came of reading a value's text; the zero verdict is good.
type verdict uint8

const (
	good      verdict = iota
	badText           // not of the form: invalid_value
	tooLarge          // beyond the type's range: value_out_of_range
	inexact           // would lose digits: value_out_of_range
	tooLong           // more characters or bytes than allowed: value_out_of_range
	wrongType         // of another JSON type: type_mismatch
)

// integer128 is the exact value of a number's text times 10^scale, as sign and
// magnitude of at most 38 digits. REQUIRES: isNumber(text).
//
// The digits before the (moved) decimal point are the value; any digit but 0
// behind it makes the text inexact. Exponents of any size cost nothing, since
// digits are only walked, never padded.
func integer128(text []byte, scale int) (neg bool, hi, lo uint64, v verdict) {
	i := 0
	if text[0] == '-' {
		neg, i = true, 1
	}
	mantissa := text[i:]
	intLen, end := 0, len(mantissa)
	exp := 0
	for j, c := range mantissa {
		if c|0x20 == 'e' {
			end, exp = j, parseExponent(mantissa[j+1:])
			break
		}
		if c != '.' && intLen == j {
			intLen++
		}
	}
	point := intLen + exp + scale // digits before the point, once it has moved
	at := 0                       // digits walked
	significant := 0
	for _, c := range mantissa[:end] {
		if c == '.' {
			continue
		}
		switch {
		case at >= point:
			if c != '0' {
				return neg, 0, 0, inexact
			}
		case significant > 0 || c != '0':
			significant++
			if significant > millrace.MaxDecimalPrecision {
				return neg, 0, 0, tooLarge
			}
			hi, lo = mulAdd(hi, lo, 10, uint64(c-'0'))
		}
		at++
	}
	if significant > 0 {
		for ; at < point; at++ {
			significant++
			if significant > millrace.MaxDecimalPrecision {
				return neg, 0, 0, tooLarge
			}
			hi, lo = mulAdd(hi, lo, 10, 0)
		}
	}
	return neg, hi, lo, good
}

// parseExponent reads the text behind e; beyond ±1,000,000 all exponents are
// alike for texts of at most maxNumber digits.
func parseExponent(b []byte) int {
	neg := false
	if b[0] == '+' || b[0] == '-' {
		neg, b = b[0] == '-', b[1:]
	}
	n := 0
	for _, c := range b {
		n = min(n*10+int(c-'0'), 1_000_000)
	}
	if neg {
		return -n
	}
	return n
}

// mulAdd is (hi,lo)·m + a.
func mulAdd(hi, lo, m, a uint64) (uint64, uint64) {
	h, l := bits.Mul64(lo, m)
	l, carry := bits.Add64(l, a, 0)
	return hi*m + h + carry, l
}

// parseInt reads a number's text as an integer of [lo, hi].
func parseInt(text []byte, least, most int64) (int64, verdict) {
	if !isNumber(text) {
		return 0, badText
	}
	neg, hi, lo, v := integer128(text, 0)
	if v != good {
		return 0, v
	}
	limit := uint64(math.MaxInt64)
	if neg {
		limit++
	}
	if hi != 0 || lo > limit {
		return 0, tooLarge
	}
	n := int64(lo)
	if neg {
		n = -n
	}
	if n < least || n > most {
		return 0, tooLarge
	}
	return n, good
}

// pow10 holds 10^0 … 10^38.
var pow10 = func() (p [millrace.MaxDecimalPrecision + 1][2]uint64) {
	p[0] = [2]uint64{0, 1}
	for i := 1; i < len(p); i++ {
		p[i][0], p[i][1] = mulAdd(p[i-1][0], p[i-1][1], 10, 0)
	}
	return p
}()

// parseDecimal reads a number's text as the unscaled value of DECIMAL(p,s), in
// two's complement.
func parseDecimal(text []byte, precision, scale int) (hi, lo uint64, v verdict) {
	if !isNumber(text) {
		return 0, 0, badText
	}
	neg, hi, lo, v := integer128(text, scale)
	if v != good {
		return 0, 0, v
	}
	limit := pow10[precision]
	if hi > limit[0] || hi == limit[0] && lo >= limit[1] {
		return 0, 0, tooLarge
	}
	if neg {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	return hi, lo, good
}

// parseFloat reads a number's text as the nearest float. REQUIRES: isNumber(text).
func parseFloat(text []byte, bitSize int) (float64, verdict) {
	// The string lives only for this call, and text does not change in it.
	f, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(text), len(text)), bitSize)
	if err != nil {
		return 0, tooLarge // the grammar was checked, so only the range can be wrong
	}
	return f, good
}

// namedFloat reads the three floats that have no number.
func namedFloat(text []byte) (float64, bool) {
	switch string(text) {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	return 0, false
}
