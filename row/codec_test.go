package row_test

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// A record that goes through compact rows comes back as the record that stock
// Arrow builders made, for random schemas of all types nested up to four levels,
// random NULLs and records that are slices.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &millrace.Schema{ID: 3, Columns: drawColumns(t, 4)}
		rec := drawRecord(t, s.Columns, true)
		defer rec.Release()
		c := row.NewCodec(s)
		rows := make([][]byte, rec.NumRows())
		for i := range rows {
			rows[i] = c.AppendRow([]byte("before"), rec, i)[6:]
			if err := c.Check(rows[i]); err != nil {
				t.Fatal(err)
			}
			for j := range s.Columns {
				if c.IsNull(rows[i], j) != rec.Column(j).IsNull(i) {
					t.Fatalf("IsNull of column %d is %v", j, c.IsNull(rows[i], j))
				}
			}
		}
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		r := row.NewReader(mem, oneSchema(s), s.Columns)
		for range 2 { // the second time with buffers handed over
			for _, b := range rows {
				if err := r.Append(b); err != nil {
					t.Fatal(err)
				}
			}
			got := r.Record()
			if err := equalRecords(rec, got); err != nil {
				t.Fatal(err)
			}
			again := make([]byte, 0, 64)
			for i, b := range rows {
				if again = c.AppendRow(again[:0], got, i); !bytes.Equal(again, b) {
					t.Fatalf("row %d is\n%x and was\n%x", i, again, b)
				}
			}
			got.Release()
		}
		mem.AssertSize(fataler{t}, 0)
	})
}

type fataler struct{ *rapid.T }

func (f fataler) Errorf(format string, args ...any) { f.Fatalf(format, args...) }

// Any columns can be read alone, in any order, and the others are not needed.
func TestProjection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &millrace.Schema{ID: 1, Columns: drawColumns(t, 2)}
		rec := drawRecord(t, s.Columns, true)
		defer rec.Release()
		cols := rapid.Permutation(indexes(len(s.Columns))).Draw(t, "order")
		cols = cols[:rapid.IntRange(0, len(cols)).Draw(t, "n")]
		want := make([]millrace.Column, len(cols))
		for i, c := range cols {
			want[i] = s.Columns[c]
		}
		got := mustRead(t, s, want, encodeAll(row.NewCodec(s), rec))
		defer got.Release()
		expect := row.Project(rec, cols)
		defer expect.Release()
		if err := equalRecords(expect, got); err != nil {
			t.Fatal(err)
		}
	})
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func encodeAll(c *row.Codec, rec arrow.RecordBatch) [][]byte {
	rows := make([][]byte, rec.NumRows())
	for i := range rows {
		rows[i] = c.AppendRow(nil, rec, i)
	}
	return rows
}

// A merged row is the row that has, column by column, the value of the row the
// flags name; a partial row has NULL in the columns it does not name. The model
// picks columns of records and encodes the result from the start.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &millrace.Schema{ID: 9, Columns: drawColumns(t, 2)}
		c := row.NewCodec(s)
		old, patch := drawRecord(t, s.Columns, true), drawRecord(t, s.Columns, true)
		defer old.Release()
		defer patch.Release()
		var named []int
		set := make([]bool, len(s.Columns))
		for j := range set {
			if set[j] = rapid.Bool().Draw(t, "set"); set[j] {
				named = append(named, j)
			}
		}
		some := row.Project(patch, named)
		defer some.Release()

		partial := c.AppendPartial(nil, some, named, 0)
		merged := c.AppendMerged([]byte{7}, c.AppendRow(nil, old, 0), partial, set)[1:]
		inserted := c.AppendMerged(nil, nil, partial, set)
		whole := c.AppendMerged(nil, c.AppendRow(nil, old, 0), c.AppendRow(nil, patch, 0), set)
		if !row.Equal(merged, whole) {
			t.Fatalf("merged with a partial row\n%x and with a whole one\n%x", merged, whole)
		}
		if !row.Equal(partial, inserted) {
			t.Fatalf("merged into nothing\n%x and partial\n%x", inserted, partial)
		}
		got := mustRead(t, s, s.Columns, [][]byte{merged, partial})
		defer got.Release()
		for j := range s.Columns {
			from := old
			if set[j] {
				from = patch
			}
			one := row.Project(from, []int{j})
			expect := one.NewSlice(0, 1)
			one.Release()
			gotCol := row.Project(got, []int{j})
			mergedCol, partialCol := gotCol.NewSlice(0, 1), gotCol.NewSlice(1, 2)
			if err := equalRecords(expect, mergedCol); err != nil {
				t.Fatalf("column %d: %v", j, err)
			}
			if set[j] {
				if err := equalRecords(expect, partialCol); err != nil {
					t.Fatalf("partial, column %d: %v", j, err)
				}
			} else if !partialCol.Column(0).IsNull(0) {
				t.Fatalf("partial, column %d: %v", j, partialCol.Column(0))
			}
		}
		if err := c.Check(merged); err != nil {
			t.Fatal(err)
		}
	})
}
