package segment

import (
	"bytes"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/row"
)

// boundOf is one value as a bound, read through arrow's own accessors.
func boundOf(a any, i int) filter.Bound {
	switch a := a.(type) {
	case *array.Boolean:
		if a.Value(i) {
			return filter.Bound{Int: 1}
		}
		return filter.Bound{}
	case *array.Int8:
		return filter.Bound{Int: int64(a.Value(i))}
	case *array.Int16:
		return filter.Bound{Int: int64(a.Value(i))}
	case *array.Int32:
		return filter.Bound{Int: int64(a.Value(i))}
	case *array.Int64:
		return filter.Bound{Int: a.Value(i)}
	case *array.Date32:
		return filter.Bound{Int: int64(a.Value(i))}
	case *array.Time32:
		return filter.Bound{Int: int64(a.Value(i))}
	case *array.Time64:
		return filter.Bound{Int: int64(a.Value(i))}
	case *array.Timestamp:
		return filter.Bound{Int: int64(a.Value(i))}
	case *array.Float32:
		return filter.Bound{Float: float64(a.Value(i))}
	case *array.Float64:
		return filter.Bound{Float: a.Value(i)}
	case *array.Decimal128:
		return filter.Bound{Dec: a.Value(i)}
	case *array.String:
		return filter.Bound{Bytes: []byte(a.Value(i))}
	case *array.Binary:
		return filter.Bound{Bytes: a.Value(i)}
	case *array.FixedSizeBinary:
		return filter.Bound{Bytes: a.Value(i)}
	}
	panic("not a scalar")
}

func less(a, b filter.Bound) bool {
	if c := bytes.Compare(a.Bytes, b.Bytes); c != 0 {
		return c < 0
	}
	if a.Dec != b.Dec {
		return a.Dec.Less(b.Dec)
	}
	return a.Int < b.Int || a.Float < b.Float
}

// Shows that statistics are what a plain loop over the values finds, for every
// scalar type, with and without NULLs, in slices too; nested columns have none.
func TestStats(t *testing.T) {
	s := makeSchema(1, allTypes...)
	for _, nulls := range []int{0, 4, 9, 10} {
		whole := randomRecord(newRand(uint64(nulls)), s, 333, nulls)
		for _, r := range []RowRange{{0, 333}, {5, 6}, {13, 300}, {8, 8}} {
			rec := whole.NewSlice(int64(r.Start), int64(r.End))
			p, err := OpenBytes(encoded(t, s, rec, nil, LZ4))
			require.NoError(t, err)
			for i, c := range s.Columns {
				got, ok := p.Stats(c.ID)
				require.Equal(t, !c.Type.Nested(), ok, c.Type)
				if !ok {
					continue
				}
				a := rec.Column(i)
				want := filter.Stats{Rows: int64(a.Len()), Nulls: int64(a.NullN())}
				for k := range a.Len() {
					if a.IsNull(k) {
						continue
					}
					v := boundOf(a, k)
					if !want.HasMin || less(v, want.Min) {
						want.Min = v
					}
					if !want.HasMin || less(want.Max, v) {
						want.Max = v
					}
					want.HasMin, want.HasMax = true, true
				}
				if len(want.Min.Bytes) > 32 {
					want.Min.Bytes = want.Min.Bytes[:32]
				}
				if len(want.Max.Bytes) > 32 {
					want.Max.Bytes = want.Max.Bytes[:32]
					want.Max.Bytes[31]++
				}
				for _, b := range []*filter.Bound{&want.Min, &want.Max, &got.Min, &got.Max} {
					if len(b.Bytes) == 0 {
						b.Bytes = nil
					}
				}
				require.Equal(t, want, got, "%s %s", c.Name, c.Type)
			}
			rec.Release()
		}
		whole.Release()
	}
	p, err := OpenBytes(encoded(t, s, randomRecord(newRand(1), s, 3, 0), nil, None))
	require.NoError(t, err)
	absent, ok := p.Stats(9999)
	require.True(t, ok)
	require.Equal(t, filter.Stats{Rows: 3, Nulls: 3}, absent)
}

// Shows the hard cases by hand-computed values: NaN is counted and never a bound,
// infinities are; a long upper bound is raised where it can be and dropped where
// it cannot; extremes of integers and decimals keep their sign.
func TestStatsByHand(t *testing.T) {
	s := makeSchema(1, "DOUBLE", "FLOAT", "STRING", "BYTES", "BIGINT", "DECIMAL(38,0)", "BOOLEAN", "DOUBLE")
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(s.Columns))
	defer b.Release()
	huge, err := decimal128.FromString("99999999999999999999999999999999999999", 38, 0)
	require.NoError(t, err)
	ff := bytes.Repeat([]byte{0xff}, 33)
	long := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\xff-cut"
	for i, f := range []float64{nan, math.Inf(-1), 2, nan, math.Inf(1)} {
		b.Field(0).(*array.Float64Builder).Append(f)
		b.Field(1).(*array.Float32Builder).Append(float32(i) - 0.5)
		b.Field(2).(*array.StringBuilder).Append(long)
		b.Field(3).(*array.BinaryBuilder).Append(ff[:29+i])
		b.Field(4).(*array.Int64Builder).Append([]int64{math.MinInt64, math.MaxInt64, -1, 0, 1}[i])
		b.Field(5).(*array.Decimal128Builder).Append([]decimal128.Num{huge, huge.Negate(), decimal128.FromI64(-1), {}, {}}[i])
		b.Field(6).(*array.BooleanBuilder).Append(true)
		b.Field(7).(*array.Float64Builder).Append(nan)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	p, err := OpenBytes(encoded(t, s, rec, nil, LZ4))
	require.NoError(t, err)
	want := []filter.Stats{
		{Rows: 5, NaNs: 2, HasMin: true, HasMax: true, Min: filter.Bound{Float: math.Inf(-1)}, Max: filter.Bound{Float: math.Inf(1)}},
		{Rows: 5, HasMin: true, HasMax: true, Min: filter.Bound{Float: -0.5}, Max: filter.Bound{Float: 3.5}},
		{Rows: 5, HasMin: true, HasMax: true, Min: filter.Bound{Bytes: []byte(long[:32])}, Max: filter.Bound{Bytes: []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")}},
		{Rows: 5, HasMin: true, HasMax: false, Min: filter.Bound{Bytes: ff[:29]}},
		{Rows: 5, HasMin: true, HasMax: true, Min: filter.Bound{Int: math.MinInt64}, Max: filter.Bound{Int: math.MaxInt64}},
		{Rows: 5, HasMin: true, HasMax: true, Min: filter.Bound{Dec: huge.Negate()}, Max: filter.Bound{Dec: huge}},
		{Rows: 5, HasMin: true, HasMax: true, Min: filter.Bound{Int: 1}, Max: filter.Bound{Int: 1}},
		{Rows: 5, NaNs: 5},
	}
	for i, c := range s.Columns {
		got, ok := p.Stats(c.ID)
		require.True(t, ok)
		require.Equal(t, want[i], got, "%s", c.Type)
	}
	require.Equal(t, millrace.ColumnID(8), s.Columns[7].ID)
}
