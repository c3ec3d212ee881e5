package filter

import (
	"cmp"
	"maps"
	"slices"
)

// predicate is a condition over rows that needs to know only where it is TRUE
// (F2). Columns are numbers: positions in Filter.cols.
type predicate interface {
	// narrow keeps of rows, rising row numbers, those where the predicate is
	// TRUE; nil rows are all rows of the batch. Rows are given up by the caller:
	// they are overwritten, or go back to the batch. The answer is never nil, is a
	// row list of the batch, and is the caller's.
	narrow(b *batch, rows []int32) []int32
	// mayMatch is false only if the predicate is TRUE for no row (F5).
	mayMatch(s statistics) bool
	// pin returns the only values that column col can have where the predicate is
	// TRUE; false when it does not say.
	pin(col int) (literalSet, bool)
	// cost orders predicates, cheap ones first.
	cost() int
}

const (
	costConstant = iota
	costNull
	costRange
	costSet
	costBytes
	costBytesSet
	costColumns
	costLike
)

// constant is TRUE for every row or for none.
type constant bool

func (c constant) narrow(b *batch, rows []int32) []int32 {
	switch {
	case bool(c):
		return b.everyRow(rows)
	case rows == nil:
		return b.take()[:0]
	}
	return rows[:0]
}

func (c constant) mayMatch(statistics) bool { return bool(c) }

func (c constant) pin(int) (literalSet, bool) { return literalSet{}, !bool(c) }

func (c constant) cost() int { return costConstant }

// nullness is IS NULL, or IS NOT NULL.
type nullness struct {
	col int
	not bool
}

func (p nullness) narrow(b *batch, rows []int32) []int32 {
	if p.not {
		return b.run(rows, b.everyRow, p.col)
	}
	if b.nulls(p.col) == 0 {
		return constant(false).narrow(b, rows)
	}
	return b.byValidity(b.arrays[p.col], rows, 0)
}

func (p nullness) mayMatch(s statistics) bool {
	st, ok := s.of(p.col)
	switch {
	case !ok:
		return true
	case p.not:
		return st.Nulls < st.Rows
	}
	return st.Nulls > 0
}

func (p nullness) pin(int) (literalSet, bool) { return nil, false }

func (p nullness) cost() int { return costNull }

// conjunction is TRUE where all its parts are.
type conjunction []predicate

func (p conjunction) narrow(b *batch, rows []int32) []int32 {
	for _, part := range p {
		rows = part.narrow(b, rows)
		if len(rows) == 0 {
			break
		}
	}
	return rows
}

func (p conjunction) mayMatch(s statistics) bool {
	return !slices.ContainsFunc(p, func(part predicate) bool { return !part.mayMatch(s) })
}

func (p conjunction) pin(col int) (all literalSet, ok bool) {
	for _, part := range p {
		set, pins := part.pin(col)
		switch {
		case !pins:
		case !ok:
			all, ok = set, true
		default:
			all = all.intersect(set)
		}
	}
	return all, ok
}

func (p conjunction) cost() int { return p[len(p)-1].cost() }

// disjunction is TRUE where any of its parts is.
type disjunction []predicate

func (p disjunction) narrow(b *batch, rows []int32) []int32 {
	rest := rows // not TRUE yet
	var hits []int32
	for _, part := range p {
		var try []int32
		if rest != nil {
			try = append(b.take()[:0], rest...)
		}
		found := part.narrow(b, try)
		rest = b.without(rest, found)
		hits = b.merge(hits, found)
		if len(rest) == 0 {
			break
		}
	}
	b.give(rest)
	return hits
}

func (p disjunction) mayMatch(s statistics) bool {
	return slices.ContainsFunc(p, func(part predicate) bool { return part.mayMatch(s) })
}

func (p disjunction) pin(col int) (literalSet, bool) {
	union := literalSet{}
	for _, part := range p {
		set, pins := part.pin(col)
		if !pins {
			return nil, false
		}
		maps.Copy(union, set)
	}
	return union, true
}

func (p disjunction) cost() int { return p[len(p)-1].cost() }

// all is the AND of parts: flat, cheap parts first, the ranges of one column
// made one, and constant if one of them is never TRUE.
func all(parts []predicate) predicate {
	var flat conjunction
	ranges := map[int]int{} // column → position in flat of its range
	for _, part := range parts {
		switch part := part.(type) {
		case constant:
			if !part {
				return constant(false)
			}
			continue
		case conjunction:
			flat = append(flat, part...)
			continue
		case keyRange:
			if part.not {
				break
			}
			if at, ok := ranges[part.col]; ok {
				both, ok := flat[at].(keyRange)
				if !ok {
					panic("filter: a range's place holds something else")
				}
				if both.lo, both.hi = max(both.lo, part.lo), min(both.hi, part.hi); both.lo > both.hi {
					return constant(false)
				}
				flat[at] = both
				continue
			}
			ranges[part.col] = len(flat)
		}
		flat = append(flat, part)
	}
	return joined(flat, constant(true), func(ps []predicate) predicate { return conjunction(ps) })
}

// anyOf is the OR of parts: flat, cheap parts first, and constant if one of them
// is always TRUE.
func anyOf(parts []predicate) predicate {
	var flat disjunction
	for _, part := range parts {
		switch part := part.(type) {
		case constant:
			if part {
				return part
			}
		case disjunction:
			flat = append(flat, part...)
		default:
			flat = append(flat, part)
		}
	}
	return joined(flat, constant(false), func(ps []predicate) predicate { return disjunction(ps) })
}

func joined(parts []predicate, none predicate, join func([]predicate) predicate) predicate {
	switch len(parts) {
	case 0:
		return none
	case 1:
		return parts[0]
	}
	slices.SortStableFunc(parts, func(a, b predicate) int { return cmp.Compare(a.cost(), b.cost()) })
	return join(parts)
}

// decided is what a comparison becomes that its literal alone decides: TRUE for
// every value but NULL, or never.
func decided(col int, yes bool) predicate {
	if !yes {
		return constant(false)
	}
	return nullness{col: col, not: true}
}
