package filter

import (
	"fmt"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// planner turns an expression into a predicate. It finds the columns, checks
// types and pushes NOT down to the leaves.
type planner struct {
	source
	params []value
	cols   []millrace.Column
	byName map[string]int     // into cols
	used   []*millrace.Column // copies of the named ones
	number map[string]int     // of the columns in used
	now    time.Time
}

func newPlanner(text string, params []value, cols []millrace.Column, now time.Time) *planner {
	p := &planner{source: source(text), params: params, cols: cols, now: now}
	p.byName = make(map[string]int, len(cols))
	for i, c := range cols {
		p.byName[c.Name] = i
	}
	p.number = map[string]int{}
	return p
}

// condition plans e, or with not its negation.
func (p *planner) condition(e expr, not bool) (predicate, error) {
	switch e := e.(type) {
	case logic:
		return p.logic(e, not)
	case negation:
		return p.condition(e.arg, !not)
	case comparison:
		left, right, err := p.pair(e.left, e.right)
		if err != nil {
			return nil, err
		}
		return p.compare(left, e.op, right, not)
	case membership:
		return p.membership(e, e.not != not)
	case between:
		return p.between(e, e.not != not)
	case like:
		return p.like(e, e.not != not)
	case nullTest:
		return p.nullTest(e, e.not != not)
	case operand:
		return p.boolean(e, not)
	}
	panic(fmt.Sprintf("filter: no plan for %T", e))
}

func (p *planner) logic(e logic, not bool) (predicate, error) {
	parts := make([]predicate, 0, len(e.args))
	for _, arg := range e.args {
		part, err := p.condition(arg, not)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if e.or != not { // NOT (a AND b) is NOT a OR NOT b
		return anyOf(parts), nil
	}
	return all(parts), nil
}

// term is an operand that was looked up: a column, or a value.
type term struct {
	operand
	col   *millrace.Column // nil for a value
	n     int              // the number of col
	value value
}

func (p *planner) term(o operand) (term, error) {
	t := term{operand: o}
	switch o := o.(type) {
	case columnRef:
		return p.column(o)
	case literal:
		t.value = o.value
	case parameter:
		t.value = p.params[o.n]
	case currentTime:
		at := p.now
		for _, by := range o.shifts {
			var err error
			if at, err = shift(at, by); err != nil {
				return t, p.invalid(o.at(), "CURRENT_TIMESTAMP with INTERVAL: %v", err)
			}
		}
		t.value = value{kind: valueTimestampLTZ, instant: instantOf(at)}
	}
	return t, nil
}

func (p *planner) column(o columnRef) (term, error) {
	n, ok := p.number[o.name]
	if !ok {
		at, known := p.byName[o.name]
		if !known {
			return term{}, p.unknown(o)
		}
		n = len(p.used)
		p.number[o.name] = n
		c := p.cols[at]
		p.used = append(p.used, &c)
	}
	return term{operand: o, col: p.used[n], n: n}, nil
}

func (p *planner) unknown(o columnRef) error {
	hint := ""
	if o.quoted == '"' {
		hint = "; text is written in single quotes, " + quoteText(o.name)
	}
	if near, ok := nearest(o.name, p.cols); ok {
		hint = fmt.Sprintf("; did you mean %q?", near) + strings.Replace(hint, "; t", " T", 1)
	}
	return p.fail(errs.UnknownColumn, o.at(), "there is no column %s%s", clip(o.name), hint)
}

func (p *planner) pair(a, b operand) (left, right term, err error) {
	if left, err = p.term(a); err == nil {
		right, err = p.term(b)
	}
	return left, right, err
}

// boolean plans an operand that stands as a condition.
func (p *planner) boolean(o operand, not bool) (predicate, error) {
	t, err := p.term(o)
	switch {
	case err != nil:
		return nil, err
	case t.col != nil && t.col.Type.Kind == millrace.Boolean:
		return boolIs{col: t.n, typ: t.col, yes: !not}, nil
	case t.col == nil && t.value.kind == valueBool:
		return constant(t.value.yes != not), nil
	case t.col == nil && t.value.kind == valueNull:
		return constant(false), nil
	}
	return nil, p.fail(errs.TypeMismatch, o.at(), "%s is no condition; a condition is a comparison or a BOOLEAN column", p.describe(t))
}

func (p *planner) nullTest(e nullTest, not bool) (predicate, error) {
	t, err := p.term(e.left)
	switch {
	case err != nil:
		return nil, err
	case t.col == nil:
		return constant((t.value.kind == valueNull) != not), nil
	}
	return nullness{col: t.n, not: not}, nil
}

func (p *planner) between(e between, not bool) (predicate, error) {
	left, low, err := p.pair(e.left, e.low)
	if err != nil {
		return nil, err
	}
	atLeast, err := p.compare(left, opGreaterEqual, low, not)
	if err != nil {
		return nil, err
	}
	high, err := p.term(e.high)
	if err != nil {
		return nil, err
	}
	atMost, err := p.compare(left, opLessEqual, high, not)
	if err != nil {
		return nil, err
	}
	if not {
		return anyOf([]predicate{atLeast, atMost}), nil
	}
	return all([]predicate{atLeast, atMost}), nil
}

func (p *planner) like(e like, not bool) (predicate, error) {
	left, err := p.term(e.left)
	if err != nil {
		return nil, err
	}
	if left.col != nil && familyOf(left.col.Type.Kind) != textFamily ||
		left.col == nil && left.value.kind != valueText && left.value.kind != valueNull {
		return nil, p.fail(errs.TypeMismatch, e.at(), "LIKE compares text, and %s is none", p.describe(left))
	}
	text, err := p.constantText(e.pattern, "the pattern of LIKE")
	if err != nil {
		return nil, err
	}
	escape := value{kind: valueText}
	if e.escape != nil {
		if escape, err = p.constantText(e.escape, "ESCAPE"); err != nil {
			return nil, err
		}
		if escape.kind == valueText && escape.str == "" {
			return nil, p.invalid(e.escape.at(), "ESCAPE takes a single character, not ''")
		}
	}
	if text.kind == valueNull || escape.kind == valueNull || left.col == nil && left.value.kind == valueNull {
		return constant(false), nil
	}
	pattern, err := compilePattern(text.str, escape.str)
	if err != nil {
		return nil, p.invalid(e.pattern.at(), "%v", err)
	}
	if left.col == nil {
		return constant(pattern.match([]byte(left.value.str)) != not), nil
	}
	if pattern.any() {
		return decided(left.n, !not), nil
	}
	if whole, only := pattern.text(); only {
		op := opEqual
		if not {
			op = opNotEqual
		}
		return compareBytes(left, op, whole), nil
	}
	return likeMatch{col: left.n, pattern: pattern, not: not}, nil
}

// constantText is an operand of LIKE that must be known beforehand: a text or NULL.
func (p *planner) constantText(o operand, role string) (value, error) {
	t, err := p.term(o)
	if err != nil {
		return value{}, err
	}
	if t.col != nil || t.value.kind != valueText && t.value.kind != valueNull {
		return value{}, p.fail(errs.TypeMismatch, o.at(), "%s is a text in single quotes or a parameter, not %s", role, p.describe(t))
	}
	return t.value, nil
}
