package filter

import (
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
	return b.run(rows, func(rows []int32) []int32 { return p.kernel(b, rows) }, p.col)
}

func (p keyRange) kernel(b *batch, rows []int32) []int32 {
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
	return b.run(rows, func(rows []int32) []int32 { return p.kernel(b, rows) }, p.col)
}

func (p keySet) kernel(b *batch, rows []int32) []int32 {
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
	t, not := p.tab, p.not
	n := 0
	if rows == nil {
		rows = b.take()[:len(values)]
		for i, v := range values {
			rows[n] = int32(i)
			h := t.hash(int64(v))
			if (t.maybe(h) && t.has(int64(v), h)) != not {
				n++
			}
		}
		return rows[:n]
	}
	for _, i := range rows {
		rows[n] = i
		v := int64(values[i])
		h := t.hash(v)
		if (t.maybe(h) && t.has(v, h)) != not {
			n++
		}
	}
	return rows[:n]
}

func narrowFloatSet[T float32 | float64](b *batch, values []T, rows []int32, p keySet) []int32 {
	rows = b.everyRow(rows)
	t, not := p.tab, p.not
	n := 0
	for _, i := range rows {
		rows[n] = i
		v := floatKey(float64(values[i]))
		h := t.hash(v)
		if (t.maybe(h) && t.has(v, h)) != not {
			n++
		}
	}
	return rows[:n]
}
