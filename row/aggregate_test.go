package row_test

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// column1 is the codec of a key and one column, which rows of a test are about.
func column1(t testing.TB, typ string) (*row.Codec, millrace.Column) {
	t.Helper()
	dt, err := millrace.ParseType(typ)
	require.NoError(t, err)
	key, err := millrace.ParseType("BIGINT")
	require.NoError(t, err)
	c := millrace.Column{ID: 2, Name: "v", Type: dt, Nullable: true}
	return row.NewCodec(&millrace.Schema{ID: 1, Columns: []millrace.Column{{ID: 1, Name: "k", Type: key}, c}}), c
}

// rowOf is a row with a value; nil is NULL.
func rowOf(t testing.TB, codec *row.Codec, v any) []byte {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(codec.Schema().Columns))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(7)
	switch f := b.Field(1).(type) {
	case *array.Decimal128Builder:
		if v == nil {
			f.AppendNull()
		} else {
			f.Append(decimal128.FromBigInt(v.(*big.Int)))
		}
	case *array.Float64Builder:
		f.Append(v.(float64))
	case *array.Float32Builder:
		f.Append(v.(float32))
	default:
		if v == nil {
			f.AppendNull()
		} else {
			require.NoError(t, f.AppendValueFromString(fmt.Sprint(v)))
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	return codec.AppendRow(nil, rec, 0)
}

// textOf is the value of a row as text.
func textOf(t testing.TB, codec *row.Codec, r []byte) string {
	t.Helper()
	require.NoError(t, codec.Check(r))
	rd := row.NewReader(memory.DefaultAllocator, func(millrace.SchemaID) *millrace.Schema { return codec.Schema() }, codec.Schema().Columns)
	require.NoError(t, rd.Append(r))
	rec := rd.Record()
	defer rec.Release()
	require.EqualValues(t, 7, rec.Column(0).(*array.Int64).Value(0))
	if d, ok := rec.Column(1).(*array.Decimal128); ok && !d.IsNull(0) {
		return d.Value(0).BigInt().String()
	}
	if f, ok := rec.Column(1).(*array.Float32); ok {
		return fmt.Sprintf("%g %t", f.Value(0), math.Signbit(float64(f.Value(0))))
	}
	if f, ok := rec.Column(1).(*array.Float64); ok {
		return fmt.Sprintf("%g %t", f.Value(0), math.Signbit(f.Value(0)))
	}
	return rec.Column(1).ValueStr(0)
}

func aggregator(t testing.TB, codec *row.Codec, agg millrace.Aggregate) *row.Aggregator {
	t.Helper()
	a, err := row.NewAggregator(codec, []bool{true, false}, map[millrace.ColumnID]millrace.Aggregate{2: agg})
	require.NoError(t, err)
	return a
}

// Shows by hand-computed cases what each function makes of two values.
func TestAggregate(t *testing.T) {
	for _, c := range []struct {
		typ, fn  string
		old, new any
		want     string // or a code
	}{
		{"INT", "sum", 2, 3, "5"},
		{"INT", "sum", nil, 3, "3"},
		{"INT", "sum", 2, nil, "2"},
		{"INT", "sum", nil, nil, array.NullValueStr},
		{"INT", "product", -2, 3, "-6"},
		{"INT", "product", nil, 3, "3"},
		{"DATE", "min", "2026-01-02", "2026-01-01", "2026-01-01"},
		{"DATE", "max", "2026-01-02", "2026-01-01", "2026-01-02"},
		{"DATE", "max", nil, "2026-01-01", "2026-01-01"},
		{"TIME(3)", "max", "10:00:00.123", "10:00:00.124", "10:00:00.124"},
		{"TIME(6)", "min", "10:00:00.123", "09:00:00.124", "09:00:00.124000"},
		{"TIMESTAMP(3)", "min", "1969-12-31T23:59:59.999", "1970-01-01T00:00:00", "1969-12-31T23:59:59.999"},
		{"TIMESTAMP_LTZ(6)", "max", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"},
		{"STRING", "max", "b", "ü", "ü"},
		{"STRING", "min", "b", "", ""},
		{"CHAR(3)", "max", "abc", "abd", "abd"},
		{"DOUBLE", "max", 1.5, math.NaN(), "NaN false"},
		{"DOUBLE", "min", math.NaN(), 1.5, "1.5 false"},
		{"DOUBLE", "max", 0.0, math.Copysign(0, -1), "0 false"},
		{"DOUBLE", "min", 0.0, math.Copysign(0, -1), "0 false"},
		{"DOUBLE", "max", math.Copysign(0, -1), 0.0, "-0 true"},
		{"DOUBLE", "sum", math.MaxFloat64, math.MaxFloat64, "+Inf false"},
		{"DOUBLE", "sum", math.Inf(1), math.Inf(-1), "NaN false"},
		{"DOUBLE", "product", 0.9, 0.8, "0.7200000000000001 false"},
		{"FLOAT", "sum", float32(16777216), float32(1), "1.6777216e+07 false"},
		{"FLOAT", "product", float32(0.1), float32(3), "0.3 false"},
		{"FLOAT", "max", float32(2), float32(3), "3 false"},
		{"STRING", "listagg", "a", "b", "a,b"},
		{"STRING", "listagg", "", "", ","},
		{"STRING", "listagg", nil, "", ""},
		{"STRING", "listagg", "a", nil, "a"},
		{"CHAR(3)", "listagg", "ü", "ü", "ü,ü"},
		{"CHAR(3)", "listagg", "ü", "üü", "value_out_of_range"},
		{"BOOLEAN", "bool_and", true, false, "false"},
		{"BOOLEAN", "bool_and", true, true, "true"},
		{"BOOLEAN", "bool_and", false, nil, "false"},
		{"BOOLEAN", "bool_or", false, true, "true"},
		{"BOOLEAN", "bool_or", false, false, "false"},
		{"BOOLEAN", "bool_or", nil, true, "true"},
		{"STRING", "last_value", "a", nil, array.NullValueStr},
		{"STRING", "last_value", "a", "b", "b"},
		{"STRING", "last_value_ignore_nulls", "a", nil, "a"},
		{"STRING", "last_value_ignore_nulls", "a", "b", "b"},
		{"STRING", "first_value", nil, "b", array.NullValueStr},
		{"STRING", "first_value", "a", "b", "a"},
		{"STRING", "first_value_ignore_nulls", nil, "b", "b"},
		{"STRING", "first_value_ignore_nulls", "a", "b", "a"},
		{"DECIMAL(5,2)", "sum", big.NewInt(10050), big.NewInt(20075), "30125"},
		{"DECIMAL(5,2)", "sum", big.NewInt(99999), big.NewInt(1), "integer_overflow"},
		{"DECIMAL(5,2)", "sum", big.NewInt(-99999), big.NewInt(-1), "integer_overflow"},
		{"DECIMAL(5,2)", "product", big.NewInt(150), big.NewInt(1), "2"},         // 1.50 × 0.01 = 0.015
		{"DECIMAL(5,2)", "product", big.NewInt(149), big.NewInt(1), "1"},         // 0.0149
		{"DECIMAL(5,2)", "product", big.NewInt(-150), big.NewInt(1), "-2"},       // -0.015
		{"DECIMAL(5,2)", "product", big.NewInt(99999), big.NewInt(100), "99999"}, // × 1.00
		{"DECIMAL(5,2)", "product", big.NewInt(99999), big.NewInt(101), "integer_overflow"},
		{"DECIMAL(5,2)", "max", big.NewInt(-3), big.NewInt(2), "2"},
		{"DECIMAL(5,2)", "min", big.NewInt(-3), nil, "-3"},
	} {
		t.Run(fmt.Sprintf("%s/%s/%v/%v", c.fn, c.typ, c.old, c.new), func(t *testing.T) {
			codec, _ := column1(t, c.typ)
			a := aggregator(t, codec, millrace.Aggregate{Function: millrace.AggregateFunction(c.fn)})
			old, patch := rowOf(t, codec, c.old), rowOf(t, codec, c.new)
			got, err := a.Append(nil, old, patch, nil)
			if err != nil {
				require.EqualValues(t, c.want, errs.CodeOf(err), "%v", err)
				require.ErrorContains(t, err, `"v"`)
				return
			}
			require.Equal(t, c.want, textOf(t, codec, got))
			// A column that is not named keeps its value, whatever the patch holds.
			kept, err := a.Append([]byte("before"), old, patch, []bool{true, false})
			require.NoError(t, err)
			require.Equal(t, "before"+string(old), string(kept))
		})
	}
}

// Shows that sums and products of numbers are exact or refused: for all pairs of
// values at the edges of a type, the result is that of arithmetic without bounds.
func TestAggregateAtEdges(t *testing.T) {
	for _, c := range []struct {
		typ  string
		bits uint // of an integer type
	}{{"TINYINT", 8}, {"SMALLINT", 16}, {"INT", 32}, {"BIGINT", 64}, {"DECIMAL(1,0)", 0}, {"DECIMAL(18,2)", 0}, {"DECIMAL(38,0)", 0}, {"DECIMAL(38,19)", 0}, {"DECIMAL(38,38)", 0}} {
		t.Run(c.typ, func(t *testing.T) {
			codec, col := column1(t, c.typ)
			low, high := bounds(col.Type, c.bits)
			var edges []*big.Int
			for _, at := range []*big.Int{low, high, new(big.Int).Quo(low, big.NewInt(2)), new(big.Int).Quo(high, big.NewInt(2)), new(big.Int).Sqrt(high), new(big.Int)} {
				for d := int64(-2); d <= 2; d++ {
					if v := new(big.Int).Add(at, big.NewInt(d)); v.Cmp(low) >= 0 && v.Cmp(high) <= 0 {
						edges = append(edges, v, new(big.Int).Neg(v))
					}
				}
			}
			if c.typ == "DECIMAL(38,0)" { // whose sum is 1<<127
				edges = append(edges, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 127), high))
			}
			scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(col.Type.Scale)), nil)
			for _, fn := range []millrace.AggregateFunction{millrace.AggSum, millrace.AggProduct} {
				agg := aggregator(t, codec, millrace.Aggregate{Function: fn})
				for _, a := range edges {
					for _, b := range edges {
						if a.Cmp(low) < 0 || a.Cmp(high) > 0 || b.Cmp(low) < 0 || b.Cmp(high) > 0 {
							continue // -low
						}
						want := new(big.Int).Add(a, b)
						if fn == millrace.AggProduct {
							r := new(big.Rat).SetFrac(new(big.Int).Mul(a, b), new(big.Int).Mul(scale, scale))
							want.SetString(strings.Replace(r.FloatString(col.Type.Scale), ".", "", 1), 10)
						}
						got, err := agg.Append(nil, rowOf(t, codec, a), rowOf(t, codec, b), nil)
						if want.Cmp(low) < 0 || want.Cmp(high) > 0 {
							require.Equal(t, errs.IntegerOverflow, errs.CodeOf(err), "%s of %v and %v", fn, a, b)
							continue
						}
						require.NoError(t, err, "%s of %v and %v", fn, a, b)
						require.Equal(t, want.String(), textOf(t, codec, got), "%s of %v and %v", fn, a, b)
					}
				}
			}
		})
	}
}

// bounds are the lowest and highest unscaled value of a type.
func bounds(t millrace.DataType, bits uint) (low, high *big.Int) {
	if t.Kind == millrace.Decimal {
		high = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Precision)), nil)
		high.Sub(high, big.NewInt(1))
		return new(big.Int).Neg(high), high
	}
	high = new(big.Int).Lsh(big.NewInt(1), bits-1)
	return new(big.Int).Neg(high), new(big.Int).Sub(high, big.NewInt(1))
}

// Shows that Compare orders as it says, by a list in rising order of each type.
func TestCompare(t *testing.T) {
	for typ, rising := range map[string][]any{
		"INT":              {nil, math.MinInt32, -1, 0, 1, math.MaxInt32},
		"TINYINT":          {nil, -128, 127},
		"SMALLINT":         {nil, -129, 128},
		"BIGINT":           {nil, math.MinInt64, -1, 0, math.MaxInt64},
		"DOUBLE":           {math.Inf(-1), -1.5, 0.0, 1e300, math.Inf(1), math.NaN()},
		"FLOAT":            {float32(-1), float32(0), float32(math.Inf(1)), float32(math.NaN())},
		"DECIMAL(20,2)":    {nil, big.NewInt(-5), new(big.Int), big.NewInt(math.MaxInt64), new(big.Int).Lsh(big.NewInt(1), 64)},
		"STRING":           {nil, "", "a", "aa", "b", "ü"},
		"BOOLEAN":          {nil, false, true},
		"DATE":             {nil, "1969-12-31", "1970-01-01"},
		"TIMESTAMP(9)":     {nil, "1969-12-31T23:59:59.999999999", "1970-01-01T00:00:00"},
		"TIMESTAMP_LTZ(0)": {nil, "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"},
		"BYTES":            {nil, "YQ==", "YWE=", "/w=="},
	} {
		codec, _ := column1(t, typ)
		for i, a := range rising {
			for j, b := range rising {
				got := codec.Compare(rowOf(t, codec, a), rowOf(t, codec, b), 1)
				switch {
				case i < j:
					require.Negative(t, got, "%s: %v and %v", typ, a, b)
				case i > j:
					require.Positive(t, got, "%s: %v and %v", typ, a, b)
				default:
					require.Zero(t, got, "%s: %v and %v", typ, a, b)
				}
			}
		}
	}
	codec, _ := column1(t, "DOUBLE")
	require.Zero(t, codec.Compare(rowOf(t, codec, 0.0), rowOf(t, codec, math.Copysign(0, -1)), 1))
}

// Shows that a table whose function is not known, or is not for its column, is an
// error and no panic.
func TestAggregatorRefuses(t *testing.T) {
	for _, c := range []struct{ typ, fn string }{{"INT", "median"}, {"STRING", "sum"}, {"INT", "listagg"}, {"BOOLEAN", "max"}, {"INT", "bool_or"}, {"ARRAY<INT>", "min"}} {
		codec, _ := column1(t, c.typ)
		_, err := row.NewAggregator(codec, []bool{true, false}, map[millrace.ColumnID]millrace.Aggregate{2: {Function: millrace.AggregateFunction(c.fn)}})
		require.Equal(t, errs.Internal, errs.CodeOf(err))
		require.ErrorContains(t, err, `"v"`)
	}
}

// Shows that nested values are kept or taken whole.
func TestAggregateNested(t *testing.T) {
	codec, col := column1(t, "ARRAY<STRING>")
	list := func(vals ...string) []byte {
		b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(codec.Schema().Columns))
		defer b.Release()
		b.Field(0).(*array.Int64Builder).Append(7)
		l := b.Field(1).(*array.ListBuilder)
		if vals == nil {
			l.AppendNull()
		} else {
			l.Append(true)
		}
		for _, v := range vals {
			l.ValueBuilder().(*array.StringBuilder).Append(v)
		}
		rec := b.NewRecordBatch()
		defer rec.Release()
		return codec.AppendRow(nil, rec, 0)
	}
	require.Equal(t, arrow.LIST, row.ArrowType(col.Type).ID())
	for fn, want := range map[millrace.AggregateFunction][]byte{
		millrace.AggLastValueIgnoreNulls: list("c"), millrace.AggLastValue: list("c"), millrace.AggFirstValue: list("a", "b"), millrace.AggFirstValueIgnoreNulls: list("a", "b"),
	} {
		got, err := aggregator(t, codec, millrace.Aggregate{Function: fn}).Append(nil, list("a", "b"), list("c"), nil)
		require.NoError(t, err)
		require.Equal(t, want, got, fn)
	}
	got, err := aggregator(t, codec, millrace.Aggregate{Function: millrace.AggLastValueIgnoreNulls}).Append(nil, list("a", "b"), list(), nil)
	require.NoError(t, err)
	require.Equal(t, list("a", "b"), got)
}

// Shows that a number that is set is read back, in place of a NULL and of another.
func TestSetInt(t *testing.T) {
	for _, typ := range []string{"INT", "BIGINT"} {
		codec, _ := column1(t, typ)
		for _, v := range []any{nil, 5} {
			r := rowOf(t, codec, v)
			codec.SetInt(r, 1, math.MaxInt32)
			require.Equal(t, rowOf(t, codec, math.MaxInt32), r)
		}
	}
}
