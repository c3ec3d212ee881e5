package row

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
)

// Take makes a record of the rows idx of rec, in that order; a row may be taken
// several times. Values are copied, so the result does not hold rec, except when
// idx names every row of rec in order: then it is rec, with one more reference.
// The caller releases the result.
// REQUIRES: the columns are of canonical types; 0 ≤ idx[i] < rec.NumRows().
func Take(mem memory.Allocator, rec arrow.RecordBatch, idx []int32) arrow.RecordBatch {
	if isWhole(idx, rec.NumRows()) {
		rec.Retain()
		return rec
	}
	arrs := make([]arrow.Array, rec.NumCols())
	for i := range arrs {
		d := gather(mem, rec.Column(i), idx)
		arrs[i] = array.MakeFromData(d)
		d.Release()
	}
	out := array.NewRecordBatch(rec.Schema(), arrs, int64(len(idx)))
	for _, a := range arrs {
		a.Release()
	}
	return out
}

func isWhole(idx []int32, rows int64) bool {
	if int64(len(idx)) != rows {
		return false
	}
	for i, v := range idx {
		if int(v) != i {
			return false
		}
	}
	return true
}

// gather copies values idx of arr; the caller owns the result.
func gather(mem memory.Allocator, arr arrow.Array, idx []int32) *array.Data {
	valid, nulls := gatherValidity(mem, arr, idx)
	bufs := []*memory.Buffer{valid}
	var children []arrow.ArrayData
	switch a := arr.(type) {
	case *array.Boolean:
		bufs = append(bufs, gatherBools(mem, a, idx))
	case *array.String:
		bufs = append(bufs, gatherBytes(mem, offsetsOf(a), a.Data().Buffers()[2], idx)...)
	case *array.Binary:
		bufs = append(bufs, gatherBytes(mem, offsetsOf(a), a.Data().Buffers()[2], idx)...)
	case *array.FixedSizeBinary:
		bufs = append(bufs, gatherWide(mem, a, idx))
	case *array.Struct:
		for i := range a.NumField() {
			children = append(children, gather(mem, a.Field(i), idx))
		}
	case *array.List:
		offsets, elems := gatherLists(mem, a, idx)
		bufs, children = append(bufs, offsets), append(children, gather(mem, a.ListValues(), elems))
	case *array.Map:
		offsets, elems := gatherLists(mem, a.List, idx)
		bufs, children = append(bufs, offsets), append(children, gather(mem, a.ListValues(), elems))
	default:
		bufs = append(bufs, gatherFixed(mem, arr, idx))
	}
	d := array.NewData(arr.DataType(), len(idx), bufs, children, nulls, 0)
	for _, b := range bufs {
		if b != nil {
			b.Release()
		}
	}
	for _, c := range children {
		c.Release()
	}
	return d
}

func newBuffer(mem memory.Allocator, size int) *memory.Buffer {
	b := memory.NewResizableBuffer(mem)
	b.Resize(size)
	return b
}

func gatherValidity(mem memory.Allocator, arr arrow.Array, idx []int32) (*memory.Buffer, int) {
	if arr.NullN() == 0 {
		return nil, 0
	}
	from, offset := arr.NullBitmapBytes(), arr.Data().Offset()
	out := newBuffer(mem, bitmapBytes(len(idx)))
	bits := out.Bytes()
	clear(bits)
	nulls := len(idx)
	for i, v := range idx {
		if bitutil.BitIsSet(from, offset+int(v)) {
			bits[i/8] |= 1 << (i % 8)
			nulls--
		}
	}
	return out, nulls
}

func gatherBools(mem memory.Allocator, a *array.Boolean, idx []int32) *memory.Buffer {
	out := newBuffer(mem, bitmapBytes(len(idx)))
	bits := out.Bytes()
	clear(bits)
	for i, v := range idx {
		if a.Value(int(v)) {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return out
}

// gatherFixed copies values of a machine width by their bytes, whatever they mean.
func gatherFixed(mem memory.Allocator, arr arrow.Array, idx []int32) *memory.Buffer {
	dt, ok := arr.DataType().(arrow.FixedWidthDataType)
	if !ok {
		panic(fmt.Sprintf("row: cannot take from %v", arr.DataType()))
	}
	width := dt.BitWidth() / 8
	out := newBuffer(mem, len(idx)*width)
	if len(idx) == 0 {
		return out
	}
	d := arr.Data()
	from, to := d.Buffers()[1].Bytes()[d.Offset()*width:], out.Bytes()
	switch width {
	case 1:
		copyFixed[uint8](to, from, idx)
	case 2:
		copyFixed[uint16](to, from, idx)
	case 4:
		copyFixed[uint32](to, from, idx)
	case 8:
		copyFixed[uint64](to, from, idx)
	default:
		copyWide(to, from, width, idx)
	}
	return out
}

func copyFixed[T arrow.UintType](to, from []byte, idx []int32) {
	out, in := arrow.GetData[T](to), arrow.GetData[T](from)
	for i, v := range idx {
		out[i] = in[v]
	}
}

func copyWide(to, from []byte, width int, idx []int32) {
	for i, v := range idx {
		copy(to[i*width:(i+1)*width], from[int(v)*width:])
	}
}

func gatherWide(mem memory.Allocator, a *array.FixedSizeBinary, idx []int32) *memory.Buffer {
	width := a.DataType().(*arrow.FixedSizeBinaryType).ByteWidth
	out := newBuffer(mem, len(idx)*width)
	if len(idx) > 0 {
		d := a.Data()
		copyWide(out.Bytes(), d.Buffers()[1].Bytes()[d.Offset()*width:], width, idx)
	}
	return out
}

// offsetsOf are the offsets of an array from its first value on. An empty array
// may lack even the one that begins them.
func offsetsOf(a interface {
	Len() int
	ValueOffsets() []int32
},
) []int32 {
	if a.Len() == 0 {
		return nil
	}
	return a.ValueOffsets()
}

// gatherBytes makes the offsets and the bytes of text and bytes.
func gatherBytes(mem memory.Allocator, offsets []int32, data *memory.Buffer, idx []int32) []*memory.Buffer {
	ends := newBuffer(mem, (len(idx)+1)*arrow.Int32SizeBytes)
	out := arrow.GetData[int32](ends.Bytes())
	out[0] = 0
	for i, v := range idx {
		out[i+1] = out[i] + offsets[v+1] - offsets[v]
	}
	vals := newBuffer(mem, int(out[len(idx)]))
	if vals.Len() > 0 {
		from, to := data.Bytes(), vals.Bytes()
		for i, v := range idx {
			copy(to[out[i]:out[i+1]], from[offsets[v]:offsets[v+1]])
		}
	}
	return []*memory.Buffer{ends, vals}
}

// gatherLists makes the offsets of lists and names the elements to gather.
func gatherLists(mem memory.Allocator, a *array.List, idx []int32) (*memory.Buffer, []int32) {
	ends := newBuffer(mem, (len(idx)+1)*arrow.Int32SizeBytes)
	out := arrow.GetData[int32](ends.Bytes())
	out[0] = 0
	span := func(v int32) (int64, int64) {
		if a.IsNull(int(v)) {
			return 0, 0 // whatever lies between its offsets
		}
		return a.ValueOffsets(int(v))
	}
	for i, v := range idx {
		from, to := span(v)
		out[i+1] = out[i] + int32(to-from)
	}
	elems := make([]int32, 0, out[len(idx)])
	for _, v := range idx {
		from, to := span(v)
		for e := from; e < to; e++ {
			elems = append(elems, int32(e))
		}
	}
	return ends, elems
}

// Project makes a record of some columns of rec, in the order of cols, that
// shares their memory. The caller releases it.
func Project(rec arrow.RecordBatch, cols []int) arrow.RecordBatch {
	fields, arrs := make([]arrow.Field, len(cols)), make([]arrow.Array, len(cols))
	for i, c := range cols {
		fields[i], arrs[i] = rec.Schema().Field(c), rec.Column(c)
	}
	md := rec.Schema().Metadata()
	return array.NewRecordBatch(arrow.NewSchema(fields, &md), arrs, rec.NumRows())
}

// TakeStruct makes a struct array of t, a ROW whose fields are the columns of rec in
// order and nullable: value i is row idx[i] of rec, NULL with NULL fields where idx[i]
// is negative. The caller releases it.
// REQUIRES: as Take.
func TakeStruct(mem memory.Allocator, rec arrow.RecordBatch, idx []int32, t millrace.DataType) arrow.Array {
	absent := int32(rec.NumRows()) // where a row of NULLs is put
	missing := 0
	rows := slices.Clone(idx)
	bits := newBuffer(mem, bitmapBytes(len(idx)))
	defer bits.Release()
	clear(bits.Bytes())
	for i, r := range idx {
		if r < 0 {
			rows[i] = absent
			missing++
		} else {
			bits.Bytes()[i/8] |= 1 << (i % 8)
		}
	}
	children := make([]arrow.ArrayData, rec.NumCols())
	for i := range children {
		children[i] = gatherNullable(mem, rec.Column(i), rows, t.Children[i].Type, missing > 0)
		defer children[i].Release()
	}
	d := array.NewData(ArrowType(t), len(idx), []*memory.Buffer{bits}, children, missing, 0)
	defer d.Release()
	return array.MakeFromData(d)
}

// gatherNullable gathers from arr with, when asked for, a NULL behind its values.
func gatherNullable(mem memory.Allocator, arr arrow.Array, idx []int32, t millrace.DataType, withNull bool) *array.Data {
	if !withNull {
		return gather(mem, arr, idx)
	}
	null := BuildNulls(mem, t, 1)
	defer null.Release()
	both, err := array.Concatenate([]arrow.Array{arr, null}, mem)
	if err != nil {
		panic(fmt.Sprintf("row: a column and a NULL of its type do not go together: %v", err)) // a bug: the types are ours
	}
	defer both.Release()
	return gather(mem, both, idx)
}
