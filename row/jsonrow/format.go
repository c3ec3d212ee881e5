package jsonrow

import (
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"

	millrace "github.com/millrace/millrace"
)

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
