package arrowrow

import (
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/millrace/millrace/errs"
)

// listViews makes lists of list views, whose values may lie in any order and
// overlap. The values are cast first, once each; then those that are not in order
// already are put in order, after it is known how much that takes.
func listViews[T int32 | int64](x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	n, child := in.Len(), in.Children()[0]
	out, offsets, err := room[int32](x, n+1)
	if err != nil {
		return nil, err
	}
	caught := &catch{}
	if err := x.spend(int64(child.Len())); err != nil {
		return nil, err
	}
	caught.bad = make([]bool, child.Len())
	caught.faults = map[int]errs.FieldError{}
	whole, err := c.children[0].run(x, child, &place{catch: caught})
	if err != nil {
		return nil, err
	}
	defer func() { whole.Release() }()

	var cuts [][2]int // parts of the values, in order
	total := int64(0)
	from, sizes := values[T](in), viewSizes[T](in)
	next, err := x.nextBad(caught)
	if err != nil {
		return nil, err
	}
	for i := range n {
		if !isNull(in, i) && sizes[i] > 0 {
			lo, hi := int(from[i]), int(from[i])+int(sizes[i])
			if next != nil && int(next[lo]) < hi {
				bad := int(next[lo])
				x.failBelow(at, i, "["+strconv.Itoa(bad-lo)+"]", func() errs.FieldError { return caught.fault(bad) })
			}
			if k := len(cuts) - 1; k >= 0 && cuts[k][1] == lo {
				cuts[k][1] = hi
			} else {
				cuts = append(cuts, [2]int{lo, hi})
			}
			if total += int64(sizes[i]); total > maxElements {
				return nil, x.spend(1 << 62)
			}
		}
		offsets[i+1] = int32(total)
	}
	if whole, err = x.reorder(whole, cuts); err != nil {
		return nil, err
	}
	return array.NewData(c.out, n, []*memory.Buffer{in.Buffers()[0], memory.NewBufferBytes(out)}, []arrow.ArrayData{whole}, in.NullN(), 0), nil
}

// maxElements is the most values that lists with 32-bit offsets have.
const maxElements = 1<<31 - 1

func viewSizes[T int32 | int64](in arrow.ArrayData) []T {
	return arrow.GetData[T](in.Buffers()[2].Bytes())[:in.Len()]
}

// nextBad is, for each value, the first at fault from it on; nil when there is
// none. Lists that overlap may each be as long as all values, so they are not
// walked.
func (x *run) nextBad(c *catch) ([]int32, error) {
	if !c.any {
		return nil, nil
	}
	if err := x.spend(4 * int64(len(c.bad))); err != nil {
		return nil, err
	}
	next := make([]int32, len(c.bad))
	last := int32(maxElements)
	for i := len(c.bad) - 1; i >= 0; i-- {
		if c.bad[i] {
			last = int32(i)
		}
		next[i] = last
	}
	return next, nil
}

// fault is what is wrong with a value.
func (c *catch) fault(i int) errs.FieldError {
	if f, ok := c.faults[i]; ok {
		return f
	}
	return errs.FieldError{Code: errs.InvalidValue, Message: "the value is at fault, as others are"}
}

// reorder is parts of an array behind one another. It takes over whole.
func (x *run) reorder(whole arrow.ArrayData, cuts [][2]int) (arrow.ArrayData, error) {
	if len(cuts) == 1 && cuts[0] == [2]int{0, whole.Len()} {
		return whole, nil
	}
	size := int64(0)
	for _, cut := range cuts {
		if size += sizeOf(whole, cut[0], cut[1]); size > int64(x.budget) {
			break
		}
	}
	// Each part costs some memory while it is one.
	if err := x.spend(size + 200*int64(len(cuts))); err != nil {
		return whole, err
	}
	arr := array.MakeFromData(whole)
	defer arr.Release()
	if len(cuts) == 0 {
		cuts = [][2]int{{0, 0}}
	}
	parts := make([]arrow.Array, len(cuts))
	for i, cut := range cuts {
		parts[i] = array.NewSlice(arr, int64(cut[0]), int64(cut[1]))
		defer parts[i].Release()
	}
	ordered, err := array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		return whole, err
	}
	whole.Release()
	whole = ordered.Data()
	settle(whole)
	whole.Retain()
	ordered.Release()
	return whole, nil
}

// sizeOf is the bytes that values [from, to) of an array of our types take.
func sizeOf(data arrow.ArrayData, from, to int) int64 {
	n := int64(to - from)
	switch t := data.DataType().(type) {
	case *arrow.StringType, *arrow.BinaryType:
		offsets := arrow.GetData[int32](data.Buffers()[1].Bytes())
		return 5*n + int64(offsets[to]-offsets[from])
	case *arrow.ListType, *arrow.MapType:
		offsets := arrow.GetData[int32](data.Buffers()[1].Bytes())
		return 5*n + sizeOf(data.Children()[0], int(offsets[from]), int(offsets[to]))
	case *arrow.StructType:
		size := n
		for _, c := range data.Children() {
			size += sizeOf(c, from, to)
		}
		return size
	case arrow.FixedWidthDataType:
		return n * int64(t.Bytes()+1)
	}
	return n
}

// settle counts the NULLs that arrow-go leaves uncounted when it puts arrays
// together.
func settle(d arrow.ArrayData) {
	if d.NullN() < 0 {
		nulls := 0
		if b := d.Buffers()[0]; b != nil {
			nulls = d.Len() - bitutil.CountSetBits(b.Bytes(), d.Offset(), d.Len())
		}
		d.(*array.Data).SetNullN(nulls)
	}
	for _, c := range d.Children() {
		settle(c)
	}
}
