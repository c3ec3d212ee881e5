package filter

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
)

// decimalRange is TRUE for decimals with lo ≤ unscaled value ≤ hi, or with not
// for the others.
type decimalRange struct {
	col    int
	typ    *millrace.Column
	lo, hi decimal128.Num
	not    bool
}

func (p decimalRange) cost() int { return costSet }

func (p decimalRange) narrow(b *batch, rows []int32) []int32 {
	return b.run(rows, func(rows []int32) []int32 {
		values := decimals(b, p.col)
		rows = b.everyRow(rows)
		n := 0
		for _, i := range rows {
			rows[n] = i
			v := values[i]
			if in := !v.Less(p.lo) && !p.hi.Less(v); in != p.not {
				n++
			}
		}
		return rows[:n]
	}, p.col)
}

// decimalSet is TRUE for decimals that are in a set, or with not for the others.
type decimalSet struct {
	col int
	typ *millrace.Column
	set map[decimal128.Num]struct{}
	not bool
}

func (p decimalSet) cost() int { return costBytesSet }

func (p decimalSet) narrow(b *batch, rows []int32) []int32 {
	return b.run(rows, func(rows []int32) []int32 {
		values := decimals(b, p.col)
		rows = b.everyRow(rows)
		n := 0
		for _, i := range rows {
			rows[n] = i
			if _, in := p.set[values[i]]; in != p.not {
				n++
			}
		}
		return rows[:n]
	}, p.col)
}

func decimals(b *batch, col int) []decimal128.Num {
	arr, ok := b.arrays[col].(*array.Decimal128)
	if !ok {
		panic("filter: an array without decimals")
	}
	return arr.Values()
}

// compareScaled compares a × 10^up with b, 0 ≤ up ≤ 38, in 256 bits.
func compareScaled(a decimal128.Num, up int, b decimal128.Num) int {
	sign := a.Sign()
	if c := cmp.Compare(sign, b.Sign()); c != 0 || sign == 0 {
		return c
	}
	x, y, m := a.Abs(), b.Abs(), decimal128.GetScaleMultiplier(up)
	xh, xl := uint64(x.HighBits()), x.LowBits()
	mh, ml := uint64(m.HighBits()), m.LowBits()
	p1, p0 := bits.Mul64(xl, ml)
	h1, l1 := bits.Mul64(xl, mh)
	h2, l2 := bits.Mul64(xh, ml)
	h3, l3 := bits.Mul64(xh, mh)
	var c1, c2, c3, c4 uint64
	p1, c1 = bits.Add64(p1, l1, 0)
	p1, c2 = bits.Add64(p1, l2, 0)
	p2, c3 := bits.Add64(l3, h1, c1)
	p2, c4 = bits.Add64(p2, h2, c2)
	p3 := h3 + c3 + c4
	c := 1
	if p3 == 0 && p2 == 0 {
		c = cmp.Compare(p1, uint64(y.HighBits()))
		if c == 0 {
			c = cmp.Compare(p0, y.LowBits())
		}
	}
	return c * sign
}

// compareDecimals compares two decimals of any scales.
func compareDecimals(a decimal128.Num, aScale int, b decimal128.Num, bScale int) int {
	if aScale <= bScale {
		return compareScaled(a, bScale-aScale, b)
	}
	return -compareScaled(b, aScale-bScale, a)
}

// nearness is how far a decimal rounded to a float can be off, and more.
const nearness = 1e-12

// compareDecimalFloat compares a decimal with a float exactly; only when the two
// are close is big arithmetic needed.
func compareDecimalFloat(d decimal128.Num, scale int, f float64) int {
	if math.IsNaN(f) || f > math.MaxFloat64 {
		return -1
	}
	if f < -math.MaxFloat64 {
		return 1
	}
	near := d.ToFloat64(int32(scale))
	if math.Abs(near-f) > nearness*math.Abs(near) {
		return cmp.Compare(near, f)
	}
	exact := new(big.Rat).SetFrac(d.BigInt(), pow10(scale))
	return exact.Cmp(new(big.Rat).SetFloat64(f))
}

// compareIntFloat compares an integer with a float exactly.
func compareIntFloat(i int64, f float64) int {
	switch {
	case math.IsNaN(f) || f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole := int64(f)
	if c := cmp.Compare(i, whole); c != 0 {
		return c
	}
	return cmp.Compare(0, f-float64(whole))
}
