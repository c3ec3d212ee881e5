package filter

import (
	"cmp"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// number is an exact decimal of any size: 0.d₁d₂d₃… × 10^exp.
type number struct {
	neg    bool
	digits string // no zero at either end; "" is zero
	exp    int
	// rounds says that the number stands for the nearest value where it meets a
	// FLOAT or DOUBLE column, as a number in a JSON row does. A plain decimal in
	// a filter does not: 0.1 is no DOUBLE's exact value.
	rounds bool
}

// maxExponent bounds exponents; nothing a column holds is near.
const maxExponent = 1 << 30

// parseNumber reads [+-]digits[.digits][e[+-]digits].
func parseNumber(s string) (number, bool) {
	var n number
	if s != "" && (s[0] == '-' || s[0] == '+') {
		n.neg = s[0] == '-'
		s = s[1:]
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e := s[i+1:]
		sign := 1
		if e != "" && (e[0] == '-' || e[0] == '+') {
			if e[0] == '-' {
				sign = -1
			}
			e = e[1:]
		}
		if !allDigits(e) || e == "" {
			return n, false
		}
		n.rounds = true
		if e = strings.TrimLeft(e, "0"); len(e) > 9 {
			n.exp = sign * maxExponent
		} else if e != "" {
			v, err := strconv.Atoi(e)
			if err != nil {
				panic(err) // at most nine digits
			}
			n.exp = sign * v
		}
		s = s[:i]
	}
	whole, frac, _ := strings.Cut(s, ".")
	if whole == "" && frac == "" || !allDigits(whole) || !allDigits(frac) {
		return n, false
	}
	whole = strings.TrimLeft(whole, "0")
	n.exp += len(whole)
	n.digits = whole + frac
	if whole == "" {
		n.digits = strings.TrimLeft(frac, "0")
		n.exp -= len(frac) - len(n.digits)
	}
	n.digits = strings.TrimRight(n.digits, "0")
	if n.digits == "" {
		n.neg, n.exp = false, 0
	}
	return n, true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}

func (n number) sign() int {
	switch {
	case n.digits == "":
		return 0
	case n.neg:
		return -1
	}
	return 1
}

func (n number) compare(o number) int {
	if c := cmp.Compare(n.sign(), o.sign()); c != 0 || n.digits == "" {
		return c
	}
	c := cmp.Compare(n.exp, o.exp)
	if c == 0 {
		c = strings.Compare(n.digits, o.digits)
	}
	return c * n.sign()
}

// hugeDigits is more digits than any column's integers have.
const hugeDigits = 80

// place is that of n × 10^scale. A number with more than hugeDigits digits is
// placed beyond every column's domain, not where it is.
func (n number) place(scale int) place {
	p := place{floor: new(big.Int), exact: true}
	if n.digits == "" {
		return p
	}
	switch m := n.exp + scale; {
	case m <= 0:
		p.exact = false
	case m > hugeDigits:
		p.floor.Exp(big.NewInt(10), big.NewInt(hugeDigits), nil)
		p.exact = false
	case len(n.digits) > m:
		p.floor.SetString(n.digits[:m], 10)
		p.exact = false
	default:
		p.floor.SetString(n.digits+strings.Repeat("0", m-len(n.digits)), 10)
	}
	if n.neg {
		p.floor.Neg(p.floor)
		if !p.exact {
			p.floor.Sub(p.floor, one)
		}
	}
	return p
}

// infKey and nanKey are the keys of +Infinity and, next to it, NaN.
const (
	infKey = 0x7ff << 52
	nanKey = infKey + 1
)

// floatKey maps floats to integers in the order of F3: one key for all NaNs, the
// highest, and one for both zeros. Neighbouring floats have neighbouring keys.
func floatKey(f float64) int64 {
	if math.IsNaN(f) {
		return nanKey
	}
	k := int64(math.Float64bits(f))
	if k < 0 {
		k = math.MinInt64 - k // minus what is left without the sign bit
	}
	return k
}

// keyFloat is the float of a key; below the key of -Infinity there is NaN too.
func keyFloat(k int64) float64 {
	switch {
	case k < -infKey || k > infKey:
		return math.NaN()
	case k < 0:
		return -math.Float64frombits(uint64(-k))
	}
	return math.Float64frombits(uint64(k))
}

// floatPlace is where n lies among the keys of floats of 32 or 64 bits; the
// keys are those of the value as a float64 in either case.
func (n number) floatPlace(bits int) place {
	text := "0." + n.digits + "e" + strconv.Itoa(n.exp)
	if n.neg {
		text = "-" + text
	}
	if n.digits == "" {
		text = "0"
	}
	if n.rounds {
		if f, err := strconv.ParseFloat(text, bits); err == nil {
			return place{floor: big.NewInt(floatKey(f)), exact: true}
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil { // beyond all finite floats, of which the largest is below it
		if f > 0 {
			f = math.MaxFloat64
		}
		return place{floor: big.NewInt(floatKey(f))}
	}
	k := floatKey(f)
	c := n.compareFloat(f)
	if c < 0 {
		k--
	}
	held := bits == 64 || float64(float32(f)) == f
	return place{floor: big.NewInt(k), exact: c == 0 && held}
}

// floatDigits is more significant digits than any float64 has, written out.
const floatDigits = 800

// compareFloat compares n with a finite f exactly. REQUIRES: f is within a few
// digits of n, as the nearest float is.
func (n number) compareFloat(f float64) int {
	if f == 0 || n.digits == "" {
		return cmp.Compare(float64(n.sign()), f)
	}
	digits := n.digits
	if len(digits) > floatDigits {
		digits = digits[:floatDigits] + "1" // keeps it off every float, on the same side
	}
	frac, exp := math.Frexp(f)
	fm := big.NewInt(int64(frac * (1 << 53)))
	exp -= 53
	nm, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		panic("filter: digits that are none")
	}
	if n.neg {
		nm.Neg(nm)
	}
	// n = nm × 10^ten and f = fm × 2^exp; clear the negative exponents.
	if ten := n.exp - len(digits); ten >= 0 {
		nm.Mul(nm, pow10(ten))
	} else {
		fm.Mul(fm, pow10(-ten))
	}
	if exp >= 0 {
		fm.Lsh(fm, uint(exp))
	} else {
		nm.Lsh(nm, uint(-exp))
	}
	return nm.Cmp(fm)
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

func itoa(n int) string { return strconv.Itoa(n) }
