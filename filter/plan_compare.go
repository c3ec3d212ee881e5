package filter

import (
	"fmt"
	"math/big"
	"slices"
	"unicode/utf8"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// compare plans left op right, or with not its negation, which is the comparison
// with the opposite operator: both are UNKNOWN where an operand is NULL.
func (p *planner) compare(left term, op compareOp, right term, not bool) (predicate, error) {
	if not {
		op = op.not()
	}
	switch {
	case left.col != nil && right.col != nil:
		return p.compareColumns(left, op, right)
	case left.col != nil:
		return p.compareValue(left, op, right)
	case right.col != nil:
		return p.compareValue(right, op.flip(), left)
	}
	a, b := left.value, right.value
	if a.kind == valueNull || b.kind == valueNull {
		return constant(false), nil
	}
	var err error
	if a.kind == valueText {
		a, err = readText(a.str, b.kindOf())
	} else if b.kind == valueText {
		b, err = readText(b.str, a.kindOf())
	}
	if err != nil {
		return nil, p.fail(errs.TypeMismatch, left.at(), "%s and %s cannot be compared: %v", p.describe(left), p.describe(right), err)
	}
	c, ok := compareValues(a, b)
	if !ok {
		return nil, p.mismatch(left, right)
	}
	return constant(op.holds(c)), nil
}

func (p *planner) compareColumns(left term, op compareOp, right term) (predicate, error) {
	if err := p.comparable(left); err != nil {
		return nil, err
	}
	if err := p.comparable(right); err != nil {
		return nil, err
	}
	if familyOf(left.col.Type.Kind) != familyOf(right.col.Type.Kind) {
		return nil, p.mismatch(left, right)
	}
	if left.n == right.n { // a value equals itself
		return decided(left.n, op.holds(0)), nil
	}
	return columnCompare{left: left.n, right: right.n, leftType: left.col.Type, rightType: right.col.Type, op: op}, nil
}

// compareValue plans a column against a literal or parameter.
func (p *planner) compareValue(c term, op compareOp, v term) (predicate, error) {
	val, err := p.fit(c, v)
	if err != nil {
		return nil, err
	}
	if val.kind == valueNull {
		return constant(false), nil
	}
	switch familyOf(c.col.Type.Kind) {
	case boolFamily:
		f, t := op.holds(compareBool(false, val.yes)), op.holds(compareBool(true, val.yes))
		if f == t {
			return decided(c.n, t), nil
		}
		return boolIs{col: c.n, typ: c.col, yes: t}, nil
	case textFamily, bytesFamily:
		return compareBytes(c, op, val.str), nil
	case numberFamily, timeFamily, dateFamily:
		d := domainOf(c.col.Type)
		lo, hi, not := placeIn(c.col.Type, val).interval(op, d)
		return d.between(c, lo, hi, not), nil
	case noFamily:
	}
	panic("filter: a value for a column that takes none")
}

// compareBytes plans a text or binary column against a literal of its type.
func compareBytes(c term, op compareOp, lit string) predicate {
	if (op == opEqual || op == opNotEqual) && !holdsLength(c.col.Type, lit) {
		return decided(c.n, op == opNotEqual)
	}
	return byteCompare{col: c.n, typ: c.col, op: op, lit: lit}
}

// holdsLength says whether a column of type t can hold a value as long as lit.
func holdsLength(t millrace.DataType, lit string) bool {
	switch t.Kind {
	case millrace.Char:
		return utf8.RuneCountInString(lit) <= t.Length
	case millrace.Binary:
		return len(lit) == t.Length
	default:
		return true
	}
}

// membership plans left IN (list), or with not NOT IN. The literals become one
// set; what is not a column against literals becomes comparisons.
func (p *planner) membership(e membership, not bool) (predicate, error) {
	left, err := p.term(e.left)
	if err != nil {
		return nil, err
	}
	var rest []predicate
	var values []value
	unknown := false // a NULL in the list: never FALSE for the others, UNKNOWN
	for _, o := range e.list {
		item, err := p.term(o)
		if err != nil {
			return nil, err
		}
		if left.col == nil || item.col != nil {
			part, err := p.compare(left, opEqual, item, not)
			if err != nil {
				return nil, err
			}
			rest = append(rest, part)
			continue
		}
		v, err := p.fit(left, item)
		if err != nil {
			return nil, err
		}
		if v.kind == valueNull {
			unknown = true
			continue
		}
		values = append(values, v)
	}
	switch {
	case unknown && not:
		return constant(false), nil
	case len(values) > 0:
		rest = append(rest, inSet(left, values, not))
	}
	if not {
		return all(rest), nil
	}
	return anyOf(rest), nil
}

// inSet plans a column against a set of values that fit it.
func inSet(c term, values []value, not bool) predicate {
	t := c.col.Type
	switch f := familyOf(t.Kind); f {
	case boolFamily:
		has := map[bool]bool{}
		for _, v := range values {
			has[v.yes] = true
		}
		if len(has) == 2 {
			return decided(c.n, !not)
		}
		return boolIs{col: c.n, typ: c.col, yes: has[true] != not}
	case textFamily, bytesFamily:
		set := make(map[string]struct{}, len(values))
		for _, v := range values {
			if holdsLength(t, v.str) {
				set[v.str] = struct{}{}
			}
		}
		if len(set) == 0 {
			return decided(c.n, not)
		}
		return byteSet{col: c.n, typ: c.col, byteTable: newByteTable(set), not: not}
	default:
		d := domainOf(t)
		var keys []*big.Int
		for _, v := range values {
			if at := placeIn(t, v); at.exact && at.floor.Cmp(d.min) >= 0 && at.floor.Cmp(d.max) <= 0 {
				keys = append(keys, at.floor)
			}
		}
		slices.SortFunc(keys, (*big.Int).Cmp)
		keys = slices.CompactFunc(keys, func(a, b *big.Int) bool { return a.Cmp(b) == 0 })
		return d.among(c, keys, not)
	}
}

// fit is the value of v as column c sees it: a text is read as the column's type.
// NULL fits every column that can be compared.
func (p *planner) fit(c, v term) (value, error) {
	if err := p.comparable(c); err != nil {
		return value{}, err
	}
	val, kind := v.value, c.col.Type.Kind
	switch {
	case val.kind == valueNull:
		return val, nil
	case val.kind == valueText && (kind == millrace.Float || kind == millrace.Double):
		if _, ok := floatWords[val.str]; ok {
			return val, nil
		}
	case val.kind == valueNumber && kind == millrace.TimestampLTZ:
		return val, nil // milliseconds since the epoch, as in a JSON row
	}
	if val.kind == valueText {
		read, err := readText(val.str, kind)
		if err != nil {
			return val, p.fail(errs.TypeMismatch, v.at(), "%s and %s cannot be compared: %v", p.describe(c), p.describe(v), err)
		}
		return read, nil
	}
	if familyOf(kind) != familyOf(val.kindOf()) {
		return val, p.mismatch(c, v)
	}
	return val, nil
}

// comparable refuses columns of nested types.
func (p *planner) comparable(c term) error {
	if familyOf(c.col.Type.Kind) == noFamily {
		return p.fail(errs.TypeMismatch, c.at(), "%s can only be tested with IS NULL and IS NOT NULL", p.describe(c))
	}
	return nil
}

func (p *planner) mismatch(left, right term) error {
	hint := ""
	if left.col != nil && familyOf(left.col.Type.Kind) == textFamily && right.value.kind == valueNumber {
		hint = "; give the number as text, in quotes"
		if l, written := right.operand.(literal); written {
			hint = "; write the number as text, '" + string(p.source[l.at():l.end]) + "'"
		}
	}
	return p.fail(errs.TypeMismatch, right.at(), "%s and %s cannot be compared%s", p.describe(left), p.describe(right), hint)
}

// describe is an operand for a message.
func (p *planner) describe(t term) string {
	switch o := t.operand.(type) {
	case columnRef:
		return fmt.Sprintf("column %q (%s)", t.col.Name, t.col.Type)
	case parameter:
		return fmt.Sprintf("parameter %d (%s)", o.n+1, t.value.noun())
	case literal:
		return clipText(string(p.source[o.at():o.end]))
	}
	return "CURRENT_TIMESTAMP"
}
