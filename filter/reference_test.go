package filter

import (
	"math"
	"math/big"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
)

// A second implementation of the language, slow and plain: expressions are
// closures over one row, values are rationals and strings, truth has three
// values. It shares no code with the package.

type truth int8

const (
	isFalse truth = iota
	isUnknown
	isTrue
)

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

func not3(t truth) truth { return isTrue - t }

// refValue is a value that compares: beyond is -1 or 1 for the infinities, 2 for
// NaN; rat is a number, or nanoseconds; str is text or bytes. Nil is NULL.
type refValue struct {
	beyond int
	rat    *big.Rat
	str    string
	isStr  bool
}

func refCompare(a, b *refValue) int {
	switch {
	case a.isStr:
		return strings.Compare(a.str, b.str)
	case a.beyond != b.beyond:
		if a.beyond < b.beyond {
			return -1
		}
		return 1
	case a.beyond != 0:
		return 0
	}
	return a.rat.Cmp(b.rat)
}

func refFloat(f float64) *refValue {
	switch {
	case math.IsNaN(f):
		return &refValue{beyond: 2}
	case math.IsInf(f, 1):
		return &refValue{beyond: 1}
	case math.IsInf(f, -1):
		return &refValue{beyond: -1}
	}
	return &refValue{rat: new(big.Rat).SetFloat64(f)}
}

func refInt(i int64) *refValue { return &refValue{rat: new(big.Rat).SetInt64(i)} }

// refCell is what a stored cell of a column is worth.
func refCell(t millrace.DataType, c cell) *refValue {
	switch v := c.(type) {
	case nil:
		return nil
	case bool:
		if v {
			return refInt(1)
		}
		return refInt(0)
	case float64:
		return refFloat(v)
	case string:
		return &refValue{str: v, isStr: true}
	case *big.Int:
		r := new(big.Rat).SetInt(v)
		for range t.Scale {
			r.Quo(r, big.NewRat(10, 1))
		}
		return &refValue{rat: r}
	case int64:
		r := refInt(v)
		r.rat.Mul(r.rat, new(big.Rat).SetInt64(refUnit(t)))
		return r
	}
	panic("no such cell")
}

// refUnit is the nanoseconds a stored integer of the type stands for; 1 for numbers.
func refUnit(t millrace.DataType) int64 {
	byPrecision := []time.Duration{
		time.Second, time.Millisecond, time.Millisecond, time.Millisecond,
		time.Microsecond, time.Microsecond, time.Microsecond, 1, 1, 1,
	}
	switch t.Kind {
	case millrace.Date:
		return int64(24 * time.Hour)
	case millrace.Time:
		if t.Precision == 0 {
			return int64(time.Millisecond)
		}
		return int64(byPrecision[t.Precision])
	case millrace.Timestamp, millrace.TimestampLTZ:
		return int64(byPrecision[t.Precision])
	default:
		return 1
	}
}

// refExpr is a generated expression: its text, and its truth for a row.
type refExpr struct {
	text  string
	truth func(row []cell) truth
}

// refOperand is a generated operand: its text, and its value for a row.
type refOperand struct {
	text  string
	value func(row []cell) *refValue
}

func refColumn(cols []millrace.Column, i int, text string) refOperand {
	t := cols[i].Type
	return refOperand{text: text, value: func(row []cell) *refValue { return refCell(t, row[i]) }}
}

func refComparison(a refOperand, op string, b refOperand) refExpr {
	return refExpr{
		text: a.text + " " + op + " " + b.text,
		truth: func(row []cell) truth {
			x, y := a.value(row), b.value(row)
			if x == nil || y == nil {
				return isUnknown
			}
			c := refCompare(x, y)
			switch op {
			case "=":
				return truthOf(c == 0)
			case "<>", "!=":
				return truthOf(c != 0)
			case "<":
				return truthOf(c < 0)
			case "<=":
				return truthOf(c <= 0)
			case ">":
				return truthOf(c > 0)
			}
			return truthOf(c >= 0)
		},
	}
}

func refAnd(x, y truth) truth { return min(x, y) }
func refOr(x, y truth) truth  { return max(x, y) }

// refMaybe negates when asked to.
func refMaybe(not bool, t truth) truth {
	if not {
		return not3(t)
	}
	return t
}

// refLike matches runes against a pattern with wildcards marked: any text (-1),
// any character (-2).
func refLike(s, pattern []rune) bool {
	if len(pattern) == 0 {
		return len(s) == 0
	}
	switch pattern[0] {
	case -1:
		for i := range len(s) + 1 {
			if refLike(s[i:], pattern[1:]) {
				return true
			}
		}
		return false
	case -2:
		return len(s) > 0 && refLike(s[1:], pattern[1:])
	}
	return len(s) > 0 && s[0] == pattern[0] && refLike(s[1:], pattern[1:])
}
