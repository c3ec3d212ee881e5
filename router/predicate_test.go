package router_test

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/storage/storagetest"
)

// predicate is a filter and what it says of a row: true, false, or nil for unknown.
type predicate struct {
	text string
	eval func(storagetest.Row) *bool
}

func isTrue(b *bool) bool { return b != nil && *b }

func (m *modelTest) predicate(tbl *storagetest.Modelled, depth int) *predicate {
	if depth > 0 && m.Rng.IntN(2) == 0 {
		a, b := m.predicate(tbl, depth-1), m.predicate(tbl, depth-1)
		switch m.Rng.IntN(3) {
		case 0:
			return &predicate{"(" + a.text + ") AND (" + b.text + ")", func(r storagetest.Row) *bool {
				x, y := a.eval(r), b.eval(r)
				switch {
				case x != nil && !*x, y != nil && !*y:
					return new(false)
				case x == nil || y == nil:
					return nil
				}
				return new(true)
			}}
		case 1:
			return &predicate{"(" + a.text + ") OR (" + b.text + ")", func(r storagetest.Row) *bool {
				x, y := a.eval(r), b.eval(r)
				switch {
				case isTrue(x) || isTrue(y):
					return new(true)
				case x == nil || y == nil:
					return nil
				}
				return new(false)
			}}
		}
		return &predicate{"NOT (" + a.text + ")", func(r storagetest.Row) *bool {
			if x := a.eval(r); x != nil {
				return new(!*x)
			}
			return nil
		}}
	}
	c := m.Rng.IntN(len(tbl.Schema.Columns))
	name := tbl.Schema.Columns[c].Name
	sample := m.gen.Row(tbl.Table)[c]
	if m.Rng.IntN(6) == 0 || sample == nil {
		return &predicate{name + " IS NULL", func(r storagetest.Row) *bool { return new(r[c] == nil) }}
	}
	lit := fmt.Sprint(sample)
	if s, ok := sample.(string); ok {
		if len(s) > 100 {
			s = s[:100]
			sample = s
		}
		lit = "'" + s + "'"
	}
	op := []string{"=", "<>", "<", "<=", ">", ">="}[m.Rng.IntN(6)]
	if _, ok := sample.(bool); ok {
		op = "="
	}
	return &predicate{name + " " + op + " " + lit, func(r storagetest.Row) *bool {
		if r[c] == nil {
			return nil
		}
		d := order(r[c], sample)
		switch op {
		case "=":
			return new(d == 0)
		case "<>":
			return new(d != 0)
		case "<":
			return new(d < 0)
		case "<=":
			return new(d <= 0)
		case ">":
			return new(d > 0)
		}
		return new(d >= 0)
	}}
}

// order compares two values of one column.
func order(a, b any) int {
	switch a := a.(type) {
	case string:
		return strings.Compare(a, b.(string))
	case bool:
		if a == b.(bool) {
			return 0
		}
		return 1
	}
	x, y := number(a), number(b)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func number(v any) float64 {
	switch v := v.(type) {
	case int32:
		return float64(v)
	case int64:
		return float64(v)
	}
	return v.(float64)
}
