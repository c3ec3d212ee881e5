package storagetest

import (
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// aggregate is what a column's function makes of two values.
func aggregate(t *Table, col int, old, next any) (any, errs.Code) {
	c := t.Schema.Columns[col]
	agg, ok := t.Options.Aggregates[c.ID]
	if !ok {
		agg.Function = millrace.AggLastValueIgnoreNulls
	}
	switch agg.Function {
	case millrace.AggLastValue:
		return next, ""
	case millrace.AggFirstValue:
		return old, ""
	default:
	}
	switch {
	case old == nil:
		return next, ""
	case next == nil:
		return old, ""
	}
	switch agg.Function {
	case millrace.AggLastValueIgnoreNulls:
		return next, ""
	case millrace.AggMin:
		if order(next, old) < 0 {
			return next, ""
		}
	case millrace.AggMax:
		if order(next, old) > 0 {
			return next, ""
		}
	case millrace.AggBoolAnd:
		return old.(bool) && next.(bool), ""
	case millrace.AggBoolOr:
		return old.(bool) || next.(bool), ""
	case millrace.AggListagg:
		with := ","
		if agg.Delimiter != "" {
			with = agg.Delimiter
		}
		list := strings.Join([]string{old.(string), next.(string)}, with)
		if c.Type.Kind == millrace.Char && utf8.RuneCountInString(list) > c.Type.Length {
			return nil, errs.ValueOutOfRange
		}
		return list, ""
	case millrace.AggSum, millrace.AggProduct:
		return calculate(c.Type, agg.Function == millrace.AggSum, old, next)
	default: // first_value_ignore_nulls
	}
	return old, ""
}

// calculate adds or multiplies: floats as Go does, other numbers as fractions that are
// then brought to their type.
func calculate(t millrace.DataType, add bool, a, b any) (any, errs.Code) {
	switch a := a.(type) {
	case float32:
		if add {
			return a + b.(float32), ""
		}
		return a * b.(float32), ""
	case float64:
		if add {
			return a + b.(float64), ""
		}
		return a * b.(float64), ""
	}
	exact := new(big.Rat)
	if add {
		exact.Add(fraction(t, a), fraction(t, b))
	} else {
		exact.Mul(fraction(t, a), fraction(t, b))
	}
	// FloatString rounds halves away from zero.
	digits := strings.Replace(exact.FloatString(t.Scale), ".", "", 1)
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		panic("storagetest: " + digits)
	}
	if t.Kind == millrace.Decimal {
		if len(new(big.Int).Abs(n).String()) > t.Precision {
			return nil, errs.IntegerOverflow
		}
		return decimal128.FromBigInt(n), ""
	}
	bits := map[millrace.Kind]uint{millrace.TinyInt: 8, millrace.SmallInt: 16, millrace.Int: 32, millrace.BigInt: 64}[t.Kind]
	most := new(big.Int).Lsh(big.NewInt(1), bits-1)
	if n.Cmp(most) >= 0 || n.Cmp(new(big.Int).Neg(most)) < 0 {
		return nil, errs.IntegerOverflow
	}
	switch v := n.Int64(); t.Kind {
	case millrace.TinyInt:
		return int8(v), ""
	case millrace.SmallInt:
		return int16(v), ""
	case millrace.Int:
		return int32(v), ""
	default:
		return v, ""
	}
}

// fraction is a number that is not a float.
func fraction(t millrace.DataType, v any) *big.Rat {
	switch v := v.(type) {
	case int8:
		return big.NewRat(int64(v), 1)
	case int16:
		return big.NewRat(int64(v), 1)
	case int32:
		return big.NewRat(int64(v), 1)
	case int64:
		return big.NewRat(v, 1)
	case decimal128.Num:
		return new(big.Rat).SetFrac(v.BigInt(), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Scale)), nil))
	}
	panic("storagetest: not a number")
}
