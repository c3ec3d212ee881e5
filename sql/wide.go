package sql

import (
	"math/big"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// wide is a sum of 192 bits: no number of rows there can be takes it over its end.
type wide struct {
	lo, mid uint64
	hi      int64
}

func (w *wide) add(lo, mid uint64, hi int64) {
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.mid, carry = bits.Add64(w.mid, mid, carry)
	w.hi += hi + int64(carry)
}

func (w *wide) addInt(v int64) {
	sign := v >> 63
	w.add(uint64(v), uint64(sign), sign)
}

func (w *wide) addDecimal(v decimal128.Num) {
	w.add(v.LowBits(), uint64(v.HighBits()), v.HighBits()>>63)
}

// int64 is the sum as a BIGINT, if it is one.
func (w *wide) int64() (int64, bool) {
	sign := int64(w.lo) >> 63
	return int64(w.lo), w.hi == sign && w.mid == uint64(sign)
}

func (w *wide) big() *big.Int {
	n := big.NewInt(w.hi)
	n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(w.mid))
	return n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(w.lo))
}

// maxDecimal is the first number of more than 38 digits.
var maxDecimal = new(big.Int).Exp(big.NewInt(10), big.NewInt(38), nil)

// decimalOf is n as an unscaled value of 38 digits, if it has no more.
func decimalOf(n *big.Int) (decimal128.Num, bool) {
	if n.CmpAbs(maxDecimal) >= 0 {
		return decimal128.Num{}, false
	}
	return decimal128.FromBigInt(n), true
}

// quotient is n/count as a float, rounded once.
func quotient(n *big.Int, count int64) float64 {
	f, _ := new(big.Rat).SetFrac(n, big.NewInt(count)).Float64()
	return f
}

// average is n/count with digits more decimals than n, rounded half away from zero.
func average(n *big.Int, count int64, digits int) *big.Int {
	scaled := new(big.Int).Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil))
	divisor := big.NewInt(count)
	q, r := new(big.Int).QuoRem(scaled, divisor, new(big.Int))
	if r.Abs(r).Lsh(r, 1).Cmp(divisor) >= 0 {
		q.Add(q, big.NewInt(int64(n.Sign())))
	}
	return q
}
