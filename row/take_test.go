package row_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/row"
)

// Rows that are taken are the rows of the record: the same as Arrow makes by
// slicing out each one and concatenating, for all types and nesting, with
// repetition and in any order. Nothing of the source is held or leaked.
func TestTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cols := drawColumns(t, 4)
		rec := drawRecord(t, cols, true)
		defer rec.Release()
		idx := rapid.SliceOfN(rapid.Int32Range(0, int32(rec.NumRows())-1), 0, 10).Draw(t, "idx")
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		got := row.Take(mem, rec, idx)
		want := takeBySlices(t, rec, idx)
		defer want.Release()
		if err := equalRecords(want, got); err != nil {
			t.Fatal(err)
		}
		for i := range cols {
			if v, ok := got.Column(i).(interface{ ValidateFull() error }); ok {
				if err := v.ValidateFull(); err != nil {
					t.Fatalf("column %d: %v", i, err)
				}
			}
		}
		got.Release()
		mem.AssertSize(fataler{t}, 0)
	})
}

func takeBySlices(t *rapid.T, rec arrow.RecordBatch, idx []int32) arrow.RecordBatch {
	arrs := make([]arrow.Array, rec.NumCols())
	for i := range arrs {
		col := rec.Column(i)
		parts := []arrow.Array{array.NewSlice(col, 0, 0)}
		for _, v := range idx {
			parts = append(parts, array.NewSlice(col, int64(v), int64(v)+1))
		}
		arr, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		arrs[i] = arr
	}
	return array.NewRecordBatch(rec.Schema(), arrs, int64(len(idx)))
}

// Taking every row in order costs nothing: it is the record itself.
func TestTakeWhole(t *testing.T) {
	rec := fromJSON(t, columnsOf(parse("INT")), `[{"c0": 1}, {"c0": 2}]`)
	defer rec.Release()
	got := row.Take(memory.DefaultAllocator, rec, []int32{0, 1})
	defer got.Release()
	if got != rec {
		t.Error("a copy was made")
	}
}

// NULLs of any type are all NULL, of the canonical type, and survive a row.
func TestBuildNulls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 3)
		n := rapid.IntRange(0, 20).Draw(t, "n")
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		got := row.BuildNulls(mem, typ, n)
		if got.Len() != n || got.NullN() != n {
			t.Fatalf("%d values, %d NULL", got.Len(), got.NullN())
		}
		want := array.MakeArrayOfNull(memory.DefaultAllocator, row.ArrowType(typ), n)
		defer want.Release()
		if !array.Equal(want, got) || !arrow.TypeEqual(got.DataType(), row.ArrowType(typ), arrow.CheckMetadata()) {
			t.Fatalf("%v, want %v", got, want)
		}
		got.Release()
		mem.AssertSize(fataler{t}, 0)
	})
}
