package row

import (
	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Aggregator merges two rows of one schema column by column, each by its aggregate
// function. It belongs to one goroutine.
type Aggregator struct {
	codec *Codec
	rules []rule // by column
}

// rule is what becomes of the values of one column.
type rule struct {
	take take
	// With takeBoth, and neither value NULL, one of these:
	pick func(old, patch []byte) []byte                // one of the two
	fold func(slot, old, patch []byte) (fits bool)     // into a slot, which is zero
	list func(dst, old, patch []byte) ([]byte, string) // appended; a text says why not
	verb string                                        // of the error when fold does not fit
}

// take says which of two values a column keeps.
type take uint8

const (
	takeOld take = iota
	takeNew
	takeOldUnlessNull
	takeNewUnlessNull
	takeBoth
)

// NewAggregator makes an aggregator of rows of the codec's schema. Columns in keep stay
// as they are; those that aggregates does not name have their last value that is not
// NULL. A function that is not known, or does not take its column's type, is
// errs.Internal: tables are checked when they are made.
func NewAggregator(codec *Codec, keep []bool, aggregates map[millrace.ColumnID]millrace.Aggregate) (*Aggregator, error) {
	a := &Aggregator{codec: codec, rules: make([]rule, len(keep))}
	for i, c := range codec.schema.Columns {
		if keep[i] {
			continue // takeOld
		}
		agg, ok := aggregates[c.ID]
		if !ok {
			agg.Function = millrace.AggLastValueIgnoreNulls
		}
		if !agg.Function.Takes(c.Type) {
			return nil, errs.New(errs.Internal, "column %q is of type %s, and no function %q aggregates that in this release", c.Name, c.Type, agg.Function)
		}
		a.rules[i] = newRule(codec.tuple.fields[i].layout, agg)
	}
	return a, nil
}

func newRule(l *layout, agg millrace.Aggregate) rule {
	switch agg.Function {
	case millrace.AggLastValue:
		return rule{take: takeNew}
	case millrace.AggFirstValue:
		return rule{take: takeOld}
	case millrace.AggFirstValueIgnoreNulls:
		return rule{take: takeOldUnlessNull}
	case millrace.AggMin, millrace.AggBoolAnd:
		return rule{take: takeBoth, pick: pickLower(l)}
	case millrace.AggMax, millrace.AggBoolOr:
		return rule{take: takeBoth, pick: pickHigher(l)}
	case millrace.AggSum:
		return rule{take: takeBoth, fold: sumOf(l.typ), verb: "sum"}
	case millrace.AggProduct:
		return rule{take: takeBoth, fold: productOf(l.typ), verb: "product"}
	case millrace.AggListagg:
		return rule{take: takeBoth, list: listOf(l.typ, agg.Delimiter)}
	default: // last_value_ignore_nulls
		return rule{take: takeNewUnlessNull}
	}
}

// Append appends the row that old and patch make; columns that are not in set, unless
// it is nil, keep their value. A number that its column cannot hold is
// errs.IntegerOverflow, a text errs.ValueOutOfRange.
// REQUIRES: both rows passed [Codec.Check] or were made by this codec; dst does not
// overlap them.
func (a *Aggregator) Append(dst, old, patch []byte, set []bool) ([]byte, error) {
	t := a.codec.tuple
	old, patch = old[headerBytes:], patch[headerBytes:]
	dst, at := a.codec.begin(dst)
	for j := range t.fields {
		f, r := &t.fields[j], &a.rules[j]
		v, w := t.value(old, f), t.value(patch, f)
		keep := r.take
		if set != nil && !set[j] {
			keep = takeOld
		}
		switch {
		case keep == takeNew, keep == takeNewUnlessNull && w != nil, keep != takeOld && v == nil:
			v = w
		case keep != takeBoth || w == nil:
		case r.pick != nil:
			v = r.pick(v, w)
		case r.fold != nil:
			if !r.fold(dst[at+f.at:at+f.at+f.width], v, w) {
				return dst, a.overflow(j, v, w)
			}
			continue
		default:
			var why string
			if dst, why = r.list(dst, v, w); why != "" {
				c := &a.codec.schema.Columns[j]
				return dst, errs.New(errs.ValueOutOfRange, "column %q is %s: the list would have %s", c.Name, c.Type, why)
			}
			t.putEnd(dst, at, f)
			continue
		}
		dst = t.putValue(dst, at, j, v)
	}
	return dst, nil
}

// putValue makes field j of the tuple that begins at the value with these bytes; nil
// is NULL.
func (t *tuple) putValue(dst []byte, at, j int, v []byte) []byte {
	f := &t.fields[j]
	switch {
	case v == nil:
		t.putNull(dst, at, j)
	case f.width != 0:
		copy(dst[at+f.at:], v)
	default:
		dst = append(dst, v...)
		t.putEnd(dst, at, f)
	}
	return dst
}

func (a *Aggregator) overflow(col int, old, patch []byte) error {
	c := &a.codec.schema.Columns[col]
	return errs.New(errs.IntegerOverflow, "column %q is %s, which cannot hold the %s of %s and %s", c.Name, c.Type, a.rules[col].verb, slotText(c.Type, old), slotText(c.Type, patch))
}

// SetInt makes column col of a row the number v.
// REQUIRES: the column is INT or BIGINT and v fits; the row passed [Codec.Check] or
// was made by this codec.
func (c *Codec) SetInt(row []byte, col int, v int64) {
	f := &c.tuple.fields[col]
	b := row[headerBytes:]
	b[f.nullAt] &^= f.nullBit
	putSigned(b[f.at:f.at+f.width], v)
}
