package filter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
)

// Literal is a value of a column, in the column's type. Literals of one column,
// from one Filter, can be compared with ==.
type Literal struct {
	col *millrace.Column
	key int64          // as in keys.go; booleans 0 and 1
	dec decimal128.Num // DECIMAL, unscaled
	str string         // text and binary
}

// literalSet is a set of values of one column.
type literalSet map[Literal]struct{}

func (s literalSet) intersect(o literalSet) literalSet {
	out := literalSet{}
	for l := range s {
		if _, ok := o[l]; ok {
			out[l] = struct{}{}
		}
	}
	return out
}

// Pinned returns the only values that a column has in rows for which the filter
// is TRUE, rising and distinct, as far as comparisons with = and IN joined by
// AND and OR say so; ok is false when they do not. Values that the column's type
// cannot hold are left out, so that there may be none: then no row is TRUE. A
// FLOAT or DOUBLE zero stands for both zeros.
func (f *Filter) Pinned(name string) (vals []Literal, ok bool) {
	col := slices.IndexFunc(f.cols, func(c *millrace.Column) bool { return c.Name == name })
	set, ok := f.root.pin(col)
	if !ok {
		return nil, false
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b Literal) int {
		return cmp.Or(cmp.Compare(a.key, b.key), a.dec.Cmp(b.dec), strings.Compare(a.str, b.str))
	}), true
}

func (p keyRange) pin(col int) (literalSet, bool) {
	if col != p.col || p.not || p.lo != p.hi {
		return nil, false
	}
	return literalSet{{col: p.typ, key: p.lo}: {}}, true
}

func (p keySet) pin(col int) (literalSet, bool) {
	if col != p.col || p.not {
		return nil, false
	}
	set := make(literalSet, len(p.keys))
	for _, k := range p.keys {
		set[Literal{col: p.typ, key: k}] = struct{}{}
	}
	return set, true
}

func (p decimalRange) pin(col int) (literalSet, bool) {
	if col != p.col || p.not || p.lo != p.hi {
		return nil, false
	}
	return literalSet{{col: p.typ, dec: p.lo}: {}}, true
}

func (p decimalSet) pin(col int) (literalSet, bool) {
	if col != p.col || p.not {
		return nil, false
	}
	set := make(literalSet, len(p.set))
	for d := range p.set {
		set[Literal{col: p.typ, dec: d}] = struct{}{}
	}
	return set, true
}

func (p byteCompare) pin(col int) (literalSet, bool) {
	if col != p.col || p.op != opEqual {
		return nil, false
	}
	return literalSet{{col: p.typ, str: p.lit}: {}}, true
}

func (p byteSet) pin(col int) (literalSet, bool) {
	if col != p.col || p.not {
		return nil, false
	}
	set := make(literalSet, len(p.set))
	for s := range p.set {
		set[Literal{col: p.typ, str: s}] = struct{}{}
	}
	return set, true
}

func (p boolIs) pin(col int) (literalSet, bool) {
	if col != p.col {
		return nil, false
	}
	l := Literal{col: p.typ}
	if p.yes {
		l.key = 1
	}
	return literalSet{l: {}}, true
}

func (p likeMatch) pin(int) (literalSet, bool) { return nil, false }

func (p columnCompare) pin(int) (literalSet, bool) { return nil, false }

// AppendTo appends the value to a builder of the column's Arrow type, that of
// row.ArrowType.
func (l Literal) AppendTo(b array.Builder) error {
	if !heldAs(b.Type(), l.col.Type) {
		return fmt.Errorf("filter: a value of column %q, %s, does not go into a builder of %s", l.col.Name, l.col.Type, b.Type())
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(l.key != 0)
	case *array.Int8Builder:
		b.Append(int8(l.key))
	case *array.Int16Builder:
		b.Append(int16(l.key))
	case *array.Int32Builder:
		b.Append(int32(l.key))
	case *array.Int64Builder:
		b.Append(l.key)
	case *array.Float32Builder:
		b.Append(float32(keyFloat(l.key)))
	case *array.Float64Builder:
		b.Append(keyFloat(l.key))
	case *array.Decimal128Builder:
		b.Append(l.dec)
	case *array.StringBuilder:
		b.Append(l.str)
	case *array.BinaryBuilder:
		b.AppendString(l.str)
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte(l.str))
	case *array.Date32Builder:
		b.Append(arrow.Date32(l.key))
	case *array.Time32Builder:
		b.Append(arrow.Time32(l.key))
	case *array.Time64Builder:
		b.Append(arrow.Time64(l.key))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(l.key))
	default:
		panic(fmt.Sprintf("filter: a value of type %s", l.col.Type))
	}
	return nil
}
