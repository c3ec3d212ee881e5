package filter

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
)

// statistics finds the statistics of a column by its number. Statistics of no
// rows count as missing: they say nothing.
type statistics struct {
	cols []*millrace.Column
	find func(name string) (Stats, bool)
}

func (s statistics) of(col int) (Stats, bool) {
	st, ok := s.find(s.cols[col].Name)
	return st, ok && st.Rows > 0
}

// MayMatch says whether data with these statistics can hold a row for which the
// filter is TRUE; false is certain. stats returns the statistics of a column, or
// false when there are none; it is asked about named columns only.
func (f *Filter) MayMatch(stats func(name string) (Stats, bool)) bool {
	return f.root.mayMatch(statistics{cols: f.cols, find: stats})
}

// values is how many values are neither NULL nor NaN.
func (s Stats) values() int64 { return s.Rows - s.Nulls - s.NaNs }

// keyBounds are the least and greatest key that values other than NaN can have.
func (s Stats) keyBounds(t millrace.DataType) (lo, hi int64) {
	d := domainOf(t)
	lo, hi = d.min.Int64(), d.max.Int64()
	key := func(b Bound) int64 { return b.Int }
	if t.Kind == millrace.Float || t.Kind == millrace.Double {
		hi = infKey
		key = func(b Bound) int64 { return floatKey(b.Float) }
	}
	if s.HasMin {
		lo = key(s.Min)
	}
	if s.HasMax {
		hi = key(s.Max)
	}
	return lo, hi
}

func (p keyRange) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	if !ok {
		return true
	}
	if st.NaNs > 0 && (p.hi == nanKey) != p.not {
		return true
	}
	if st.values() <= 0 {
		return false
	}
	lo, hi := st.keyBounds(p.typ.Type)
	if p.not {
		return lo < p.lo || hi > p.hi
	}
	return lo <= p.hi && hi >= p.lo
}

func (p keySet) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	if !ok {
		return true
	}
	if st.NaNs > 0 && (p.keys[len(p.keys)-1] == nanKey) != p.not {
		return true
	}
	if st.values() <= 0 {
		return false
	}
	lo, hi := st.keyBounds(p.typ.Type)
	at, found := slices.BinarySearch(p.keys, lo)
	if p.not {
		return lo != hi || !found
	}
	return at < len(p.keys) && p.keys[at] <= hi
}

func (p decimalRange) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	if !ok {
		return true
	}
	if st.values() <= 0 {
		return false
	}
	if p.not {
		return !st.HasMin || !st.HasMax || st.Min.Dec.Less(p.lo) || p.hi.Less(st.Max.Dec)
	}
	return (!st.HasMin || !p.hi.Less(st.Min.Dec)) && (!st.HasMax || !st.Max.Dec.Less(p.lo))
}

func (p decimalSet) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	if !ok {
		return true
	}
	if st.values() <= 0 {
		return false
	}
	inside := func(d decimal128.Num) bool {
		return (!st.HasMin || !d.Less(st.Min.Dec)) && (!st.HasMax || !st.Max.Dec.Less(d))
	}
	if p.not {
		_, found := p.set[st.Min.Dec]
		return !st.HasMin || !st.HasMax || st.Min.Dec != st.Max.Dec || !found
	}
	for d := range p.set {
		if inside(d) {
			return true
		}
	}
	return false
}

func (p byteCompare) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	if !ok {
		return true
	}
	if st.values() <= 0 {
		return false
	}
	lo, hi := string(st.Min.Bytes), string(st.Max.Bytes)
	switch p.op {
	case opEqual:
		return st.mayHold(p.lit)
	case opNotEqual:
		return !st.HasMin || !st.HasMax || lo != p.lit || hi != p.lit
	case opLess:
		return !st.HasMin || lo < p.lit
	case opLessEqual:
		return !st.HasMin || lo <= p.lit
	case opGreater:
		return !st.HasMax || hi > p.lit
	default: // opGreaterEqual
		return !st.HasMax || hi >= p.lit
	}
}

// mayHold says whether a text or binary value lies within the bounds.
func (s Stats) mayHold(v string) bool {
	return (!s.HasMin || string(s.Min.Bytes) <= v) && (!s.HasMax || string(s.Max.Bytes) >= v)
}

func (p byteSet) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	if !ok {
		return true
	}
	if st.values() <= 0 {
		return false
	}
	if p.not {
		_, found := p.set[string(st.Min.Bytes)]
		return !st.HasMin || !st.HasMax || string(st.Min.Bytes) != string(st.Max.Bytes) || !found
	}
	for v := range p.set {
		if st.mayHold(v) {
			return true
		}
	}
	return false
}

func (p likeMatch) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	if !ok {
		return true
	}
	if st.values() <= 0 {
		return false
	}
	b, only := p.pattern.prefix()
	prefix := string(b)
	lo, hi := string(st.Min.Bytes), string(st.Max.Bytes)
	if st.HasMin && st.HasMax && lo == hi { // one value, as in a partition
		return p.pattern.match(st.Min.Bytes) != p.not
	}
	if p.not { // every value begins with what both bounds begin with
		return !only || !st.HasMin || !st.HasMax || !strings.HasPrefix(lo, prefix) || !strings.HasPrefix(hi, prefix)
	}
	return (!st.HasMax || hi >= prefix) && (!st.HasMin || lo <= prefix || strings.HasPrefix(lo, prefix))
}

func (p boolIs) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	switch {
	case !ok:
		return true
	case st.values() <= 0:
		return false
	case p.yes:
		return !st.HasMax || st.Max.Int != 0
	}
	return !st.HasMin || st.Min.Int == 0
}

// mayMatch of two columns looks only for columns of nothing but NULL: bounds of
// different types rarely tell more.
func (p columnCompare) mayMatch(s statistics) bool {
	for _, col := range []int{p.left, p.right} {
		if st, ok := s.of(col); ok && st.Nulls >= st.Rows {
			return false
		}
	}
	return true
}
