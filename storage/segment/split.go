package segment

import (
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
)

// RowRange is the rows [Start, End) of a record batch.
type RowRange struct{ Start, End int }

// recordBytes is how many bytes the rows [start, end) take in Arrow buffers.
func recordBytes(rec arrow.RecordBatch, start, end int) int {
	size := 0
	for _, c := range rec.Columns() {
		d := c.Data()
		size += windowBytes(d, d.Offset()+start, end-start)
	}
	return size
}

// RecordBytes is how many bytes a record batch takes in Arrow buffers.
func RecordBytes(rec arrow.RecordBatch) int64 { return int64(recordBytes(rec, 0, int(rec.NumRows()))) }

// SplitRows cuts a record batch into ranges of rows of about equal size that
// hold at most targetBytes of Arrow buffers each; a single row may hold more.
// Batches are measured before compression because a reader may ask for them
// uncompressed.
func SplitRows(rec arrow.RecordBatch, targetBytes int) []RowRange {
	rows := int(rec.NumRows())
	var out []RowRange
	for start := 0; start < rows; {
		left := recordBytes(rec, start, rows)
		goal := targetBytes
		if parts := (left + targetBytes - 1) / targetBytes; parts > 0 {
			// An even share, and an average row for what does not divide evenly.
			goal = min(goal, left/parts+left/(rows-start)+1)
		}
		// One row less than the smallest number of rows that is too many.
		n := sort.Search(min(rows-start, MaxPayloadRows), func(n int) bool { return recordBytes(rec, start, start+n+1) > goal })
		end := start + max(n, 1)
		out = append(out, RowRange{start, end})
		start = end
	}
	return out
}
