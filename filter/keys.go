package filter

import (
	"math/bits"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
)

// Integers, dates, times, timestamps and floats are compared as 64-bit keys in
// the order of the values: the stored integer, or floatKey.

// keyRange is TRUE for values with lo ≤ key ≤ hi, or with not for the others.
type keyRange struct {
	col    int
	typ    *millrace.Column
	lo, hi int64
	not    bool
}

func (p keyRange) cost() int { return costRange }

func (p keyRange) narrow(b *batch, rows []int32) []int32 {
	rows = b.dropNulls(p.col, rows)
	switch arr := b.arrays[p.col].(type) {
	case *array.Int8:
		return narrowRange(b, arr.Values(), rows, p)
	case *array.Int16:
		return narrowRange(b, arr.Values(), rows, p)
	case *array.Int32:
		return narrowRange(b, arr.Values(), rows, p)
	case *array.Int64:
		return narrowRange(b, arr.Values(), rows, p)
	case *array.Date32:
		return narrowRange(b, arr.Values(), rows, p)
	case *array.Time32:
		return narrowRange(b, arr.Values(), rows, p)
	case *array.Time64:
		return narrowRange(b, arr.Values(), rows, p)
	case *array.Timestamp:
		return narrowRange(b, arr.Values(), rows, p)
	case *array.Float32:
		return narrowFloats(b, arr.Values(), rows, p)
	case *array.Float64:
		return narrowFloats(b, arr.Values(), rows, p)
	}
	panic("filter: an array without keys")
}

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64
}

func narrowRange[T integer](b *batch, values []T, rows []int32, p keyRange) []int32 {
	lo, span, not := uint64(p.lo), uint64(p.hi)-uint64(p.lo), p.not
	n := 0
	if rows == nil {
		rows = b.take()[:len(values)]
		for i, v := range values {
			rows[n] = int32(i)
			if (uint64(int64(v))-lo <= span) != not {
				n++
			}
		}
		return rows[:n]
	}
	for _, i := range rows {
		rows[n] = i
		if (uint64(int64(values[i]))-lo <= span) != not {
			n++
		}
	}
	return rows[:n]
}

// narrowFloats compares floats as floats, which is quicker than making keys: a
// range that includes NaN is all but the range below it, since NaN is in no range
// of floats.
func narrowFloats[T float32 | float64](b *batch, values []T, rows []int32, p keyRange) []int32 {
	lo, hi, not := keyFloat(p.lo), keyFloat(p.hi), p.not
	switch {
	case p.hi <= infKey:
	case p.lo > infKey: // NaN alone
		lo, hi, not = keyFloat(-infKey), keyFloat(infKey), !not
	default:
		lo, hi, not = keyFloat(-infKey), keyFloat(p.lo-1), !not
	}
	n := 0
	if rows == nil {
		rows = b.take()[:len(values)]
		for i, v := range values {
			rows[n] = int32(i)
			if in := float64(v) >= lo && float64(v) <= hi; in != not {
				n++
			}
		}
		return rows[:n]
	}
	for _, i := range rows {
		rows[n] = i
		v := float64(values[i])
		if in := v >= lo && v <= hi; in != not {
			n++
		}
	}
	return rows[:n]
}

// keySet is TRUE for values whose key is in a set, or with not for the others.
type keySet struct {
	col  int
	typ  *millrace.Column
	keys []int64 // rising, at least two
	tab  *keyTable
	not  bool
}

func (p keySet) cost() int { return costSet }

func (p keySet) narrow(b *batch, rows []int32) []int32 {
	rows = b.dropNulls(p.col, rows)
	switch arr := b.arrays[p.col].(type) {
	case *array.Int8:
		return narrowSet(b, arr.Values(), rows, p)
	case *array.Int16:
		return narrowSet(b, arr.Values(), rows, p)
	case *array.Int32:
		return narrowSet(b, arr.Values(), rows, p)
	case *array.Int64:
		return narrowSet(b, arr.Values(), rows, p)
	case *array.Date32:
		return narrowSet(b, arr.Values(), rows, p)
	case *array.Time32:
		return narrowSet(b, arr.Values(), rows, p)
	case *array.Time64:
		return narrowSet(b, arr.Values(), rows, p)
	case *array.Timestamp:
		return narrowSet(b, arr.Values(), rows, p)
	case *array.Float32:
		return narrowFloatSet(b, arr.Values(), rows, p)
	case *array.Float64:
		return narrowFloatSet(b, arr.Values(), rows, p)
	}
	panic("filter: an array without keys")
}

func narrowSet[T integer](b *batch, values []T, rows []int32, p keySet) []int32 {
	n := 0
	if rows == nil {
		rows = b.take()[:len(values)]
		for i, v := range values {
			rows[n] = int32(i)
			if p.tab.has(int64(v)) != p.not {
				n++
			}
		}
		return rows[:n]
	}
	for _, i := range rows {
		rows[n] = i
		if p.tab.has(int64(values[i])) != p.not {
			n++
		}
	}
	return rows[:n]
}

func narrowFloatSet[T float32 | float64](b *batch, values []T, rows []int32, p keySet) []int32 {
	if rows == nil {
		rows = constant(true).narrow(b, nil)
	}
	n := 0
	for _, i := range rows {
		rows[n] = i
		if p.tab.has(floatKey(float64(values[i]))) != p.not {
			n++
		}
	}
	return rows[:n]
}

// keyTable is a hash set of keys: open addressing, at most half full. The
// multiplier is random, so that nobody can write an IN list that collides.
type keyTable struct {
	slots []int64
	empty int64 // what an empty slot holds: a key that is not in the set
	mul   uint64
	shift uint
}

func newKeyTable(keys []int64) *keyTable {
	size := bits.Len(uint(2*len(keys) - 1))
	t := &keyTable{slots: make([]int64, 1<<size), mul: rand.Uint64() | 1, shift: uint(64 - size)}
	for _, k := range keys { // rising, so the first gap is found in one pass
		if k == t.empty {
			t.empty++
		}
	}
	for i := range t.slots {
		t.slots[i] = t.empty
	}
	for _, k := range keys {
		at := uint64(k) * t.mul >> t.shift
		for t.slots[at] != t.empty {
			at = (at + 1) & uint64(len(t.slots)-1)
		}
		t.slots[at] = k
	}
	return t
}

func (t *keyTable) has(k int64) bool {
	for at := uint64(k) * t.mul >> t.shift; ; at++ {
		s := t.slots[at&uint64(len(t.slots)-1)]
		if s == t.empty {
			return false
		}
		if s == k {
			return true
		}
	}
}
