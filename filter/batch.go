package filter

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// batch is one evaluation over one record batch: its columns and the row lists
// in use. A row list is a []int32 of row numbers, rising, with room for n.
type batch struct {
	n      int
	arrays []arrow.Array // by column number
	free   [][]int32
}

// take returns a row list of length n; what it holds is anything.
func (b *batch) take() []int32 {
	if last := len(b.free) - 1; last >= 0 {
		rows := b.free[last]
		b.free = b.free[:last]
		return rows[:b.n]
	}
	return make([]int32, b.n)
}

// give takes a row list back; nil is ignored.
func (b *batch) give(rows []int32) {
	if cap(rows) >= b.n {
		b.free = append(b.free, rows)
	}
}

// nulls counts the NULLs of a column. Array.NullN of a slice would note its count
// in the array, which is a race when several filters read one batch.
func (b *batch) nulls(col int) int {
	arr := b.arrays[col]
	if n := arr.Data().NullN(); n >= 0 || len(arr.NullBitmapBytes()) == 0 {
		return max(n, 0)
	}
	return b.n - bitutil.CountSetBits(arr.NullBitmapBytes(), arr.Data().Offset(), b.n)
}

// everyRow returns rows, or the numbers of all rows for nil.
func (b *batch) everyRow(rows []int32) []int32 {
	if rows == nil {
		rows = b.take()
		for i := range rows {
			rows[i] = int32(i)
		}
	}
	return rows
}

// run applies a kernel and drops rows in which a column is NULL. Kernels look at
// NULL too, whose slots hold something of no meaning: the rows that a kernel
// leaves are fewer to test than those it gets.
func (b *batch) run(rows []int32, kernel func(rows []int32) []int32, cols ...int) []int32 {
	for _, col := range cols {
		if b.nulls(col) == b.n { // its values may not be there at all
			return constant(false).narrow(b, rows)
		}
	}
	rows = kernel(rows)
	for _, col := range cols {
		if b.nulls(col) > 0 {
			rows = b.byValidity(b.arrays[col], rows, 1)
		}
	}
	return rows
}

// byValidity keeps the rows whose validity bit is want. The loops here and in
// the kernels write each row and then step over it or not, without a branch that
// depends on data.
func (b *batch) byValidity(arr arrow.Array, rows []int32, want byte) []int32 {
	bits, offset := arr.NullBitmapBytes(), arr.Data().Offset()
	n := 0
	if rows == nil {
		rows = b.take()
		for i := range rows {
			rows[n] = int32(i)
			at := uint(offset + i)
			if bits[at>>3]>>(at&7)&1 == want {
				n++
			}
		}
		return rows[:n]
	}
	for _, i := range rows {
		rows[n] = i
		at := uint(offset + int(i))
		if bits[at>>3]>>(at&7)&1 == want {
			n++
		}
	}
	return rows[:n]
}

// without removes the rows of found, a part of rows, from rows. Nil rows are all.
func (b *batch) without(rows, found []int32) []int32 {
	n, f := 0, 0
	if rows == nil {
		rows = b.take()
		for i := range int32(b.n) {
			if f < len(found) && found[f] == i {
				f++
				continue
			}
			rows[n] = i
			n++
		}
		return rows[:n]
	}
	for _, i := range rows {
		if f < len(found) && found[f] == i {
			f++
			continue
		}
		rows[n] = i
		n++
	}
	return rows[:n]
}

// merge joins two row lists without common rows, and takes both back.
func (b *batch) merge(x, y []int32) []int32 {
	if len(x) == 0 {
		b.give(x)
		return y
	}
	if len(y) == 0 {
		b.give(y)
		return x
	}
	out := b.take()[:0]
	i, j := 0, 0
	for i < len(x) && j < len(y) {
		if x[i] < y[j] {
			out = append(out, x[i])
			i++
		} else {
			out = append(out, y[j])
			j++
		}
	}
	out = append(append(out, x[i:]...), y[j:]...)
	b.give(x)
	b.give(y)
	return out
}
