package row

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
)

// Rows are decoded rows of one table on their way in, before they are given to
// buckets: what the JSON and Arrow decoders make and the router takes.
//
// Ownership: whoever holds a Rows owns one reference to Record and gives it back
// with Release, once. Handing a Rows to a function hands the reference over only
// where that function says so; who wants to keep the rows beyond that calls
// Retain. Columns and Changes are immutable once made and need no release.
type Rows struct {
	// Record holds the values, in the canonical types of [ArrowType], one column
	// for each of Columns, in their order. Values are valid for their columns:
	// NOT NULL columns hold no NULL, CHAR(n) no longer text, and so on.
	Record arrow.RecordBatch
	// Columns are the columns that were given, in schema order: all columns of a
	// whole row, or the named ones of a partial row.
	Columns []millrace.Column
	// Changes is the change type of each row; nil when none were given.
	Changes []millrace.ChangeType
	// Numbers are those of the rows in the request that they came in, rising; nil while
	// they follow one another without a gap.
	Numbers []int64
}

// Keep is the rows at idx, rising. first is the number of the first row where the rows
// have no Numbers. The caller owns what it returns.
func (r Rows) Keep(idx []int32, first int64) Rows {
	out := Rows{Record: Take(memory.DefaultAllocator, r.Record, idx), Columns: r.Columns, Numbers: make([]int64, len(idx))}
	if r.Changes != nil {
		out.Changes = make([]millrace.ChangeType, len(idx))
	}
	for j, i := range idx {
		out.Numbers[j] = r.Number(int(i), first)
		if r.Changes != nil {
			out.Changes[j] = r.Changes[i]
		}
	}
	return out
}

// Number is the number of row i in its request; first is that of the first row where
// the rows have no Numbers.
func (r Rows) Number(i int, first int64) int64 {
	if r.Numbers == nil {
		return first + int64(i)
	}
	return r.Numbers[i]
}

// Len is the number of rows; 0 for the zero Rows.
func (r Rows) Len() int {
	if r.Record == nil {
		return 0
	}
	return int(r.Record.NumRows())
}

// Retain takes another reference, which a further Release gives back.
func (r Rows) Retain() {
	if r.Record != nil {
		r.Record.Retain()
	}
}

// Release gives the reference to Record back; the rows may not be used after it.
func (r Rows) Release() {
	if r.Record != nil {
		r.Record.Release()
	}
}
