package filter

import (
	"math/big"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
)

// place is where a literal lies among integers: exactly at floor, or strictly
// between floor and the next one.
type place struct {
	floor *big.Int
	exact bool
}

var one = big.NewInt(1)

// domain is the integers that a column holds: keys, or unscaled decimals.
type domain struct {
	min, max *big.Int
	decimal  bool
}

func domainOf(t millrace.DataType) domain {
	signed := func(bits uint) domain {
		half := new(big.Int).Lsh(one, bits-1)
		return domain{min: new(big.Int).Neg(half), max: new(big.Int).Sub(half, one)}
	}
	switch t.Kind {
	case millrace.TinyInt:
		return signed(8)
	case millrace.SmallInt:
		return signed(16)
	case millrace.Int, millrace.Date:
		return signed(32)
	case millrace.Float, millrace.Double:
		return domain{min: big.NewInt(-infKey), max: big.NewInt(nanKey)}
	case millrace.Decimal:
		most := new(big.Int).Sub(pow10(t.Precision), one)
		return domain{min: new(big.Int).Neg(most), max: most, decimal: true}
	default:
		return signed(64)
	}
}

// placeIn is where a value that fits lies among the integers of the column.
func placeIn(t millrace.DataType, v value) place {
	switch {
	case v.kind == valueText:
		return place{floor: big.NewInt(floatWords[v.str]), exact: true}
	case v.kind != valueNumber:
		return v.instant.place(unitNanos(t))
	case t.Kind == millrace.Float:
		return v.num.floatPlace(32)
	case t.Kind == millrace.Double:
		return v.num.floatPlace(64)
	case t.Kind == millrace.TimestampLTZ:
		scale := -3 // milliseconds in seconds, …
		for unit := unitNanos(t); unit < 1e9; unit *= 1000 {
			scale += 3
		}
		return v.num.place(scale)
	}
	return v.num.place(t.Scale)
}

// interval is where the integers lie that compare with p as op says; with not,
// the others. It is cut to the domain, and empty when lo > hi.
func (p place) interval(op compareOp, d domain) (lo, hi *big.Int, not bool) {
	lo, hi = d.min, d.max
	above := new(big.Int).Add(p.floor, one) // the first integer above p
	switch op {
	case opLess:
		if hi = p.floor; p.exact {
			hi = new(big.Int).Sub(p.floor, one)
		}
	case opLessEqual:
		hi = p.floor
	case opGreater:
		lo = above
	case opGreaterEqual:
		if lo = above; p.exact {
			lo = p.floor
		}
	default:
		not = op == opNotEqual
		if lo, hi = p.floor, p.floor; !p.exact {
			lo = above
		}
	}
	if lo.Cmp(d.min) < 0 {
		lo = d.min
	}
	if hi.Cmp(d.max) > 0 {
		hi = d.max
	}
	return lo, hi, not
}

// between is TRUE for integers from lo to hi, or with not for the others.
func (d domain) between(c term, lo, hi *big.Int, not bool) predicate {
	switch {
	case lo.Cmp(hi) > 0:
		return decided(c.n, not)
	case lo.Cmp(d.min) == 0 && hi.Cmp(d.max) == 0:
		return decided(c.n, !not)
	case d.decimal:
		return decimalRange{col: c.n, typ: c.col, lo: decimal128.FromBigInt(lo), hi: decimal128.FromBigInt(hi), not: not}
	}
	return keyRange{col: c.n, typ: c.col, lo: lo.Int64(), hi: hi.Int64(), not: not}
}

// among is TRUE for the given integers, rising and distinct, or with not for the
// others.
func (d domain) among(c term, keys []*big.Int, not bool) predicate {
	switch len(keys) {
	case 0:
		return decided(c.n, not)
	case 1:
		return d.between(c, keys[0], keys[0], not)
	}
	if d.decimal {
		set := make(map[decimal128.Num]struct{}, len(keys))
		for _, k := range keys {
			set[decimal128.FromBigInt(k)] = struct{}{}
		}
		return decimalSet{col: c.n, typ: c.col, set: set, not: not}
	}
	out := make([]int64, len(keys))
	for i, k := range keys {
		out[i] = k.Int64()
	}
	return keySet{col: c.n, typ: c.col, keys: out, tab: newKeyTable(out), not: not}
}
