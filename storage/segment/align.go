package segment

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// aligner makes arrays of a type that a column had in one schema arrays of the type
// that it has in another: fields of a ROW are found by id, those that are not stored
// are NULL, numbers are widened. A reader that began before a column was widened asks
// for the narrower type: it gets the values, or errs.SchemaChanged when one does not
// fit.
type aligner struct {
	mem    memory.Allocator
	column millrace.ColumnID
}

// align makes data, which begins at offset 0 on all levels, one of dt, the Arrow type
// of to. outer says which positions can hold values at all; nil: all. The caller
// releases the result.
func (a *aligner) align(data arrow.ArrayData, outer []byte, from, to *millrace.DataType, dt arrow.DataType) (arrow.ArrayData, error) {
	n, bufs := data.Len(), data.Buffers()
	switch {
	case from.Kind == to.Kind && to.Kind == millrace.Row:
		return a.row(data, a.within(data, outer), from, to, dt.(*arrow.StructType))
	case from.Kind == to.Kind && (to.Kind == millrace.Array || to.Kind == millrace.Map):
		return a.list(data, from, to, dt)
	case sameLayout(from, to):
		return array.NewData(dt, n, bufs, nil, data.NullN(), 0), nil
	case from.Kind == millrace.Decimal && to.Kind == millrace.Decimal && from.Scale == to.Scale:
		if err := a.checkDecimals(data, a.within(data, outer), to); err != nil {
			return nil, err
		}
		return array.NewData(dt, n, bufs, nil, data.NullN(), 0), nil
	}
	values := memory.NewResizableBuffer(a.mem)
	defer values.Release()
	if width, ok := dt.(arrow.FixedWidthDataType); ok {
		values.Resize(n * width.Bytes())
	}
	if err := a.cast(values.Bytes(), data, a.within(data, outer), from, to); err != nil {
		return nil, err
	}
	return array.NewData(dt, n, []*memory.Buffer{bufs[0], values}, nil, data.NullN(), 0), nil
}

// within is which positions hold values: those of data, where there is something
// around them. What lies elsewhere may be anything.
func (a *aligner) within(data arrow.ArrayData, outer []byte) []byte {
	v := data.Buffers()[0]
	switch {
	case data.NullN() == 0 || v == nil || v.Len() == 0:
		return outer
	case outer == nil:
		return v.Bytes()
	}
	out := make([]byte, bitutil.BytesForBits(int64(data.Len())))
	bitutil.BitmapAnd(v.Bytes(), outer, 0, 0, out, 0, int64(data.Len()))
	return out
}

func (a *aligner) row(data arrow.ArrayData, valid []byte, from, to *millrace.DataType, dt *arrow.StructType) (arrow.ArrayData, error) {
	n := data.Len()
	children := make([]arrow.ArrayData, 0, len(to.Children))
	defer func() {
		for _, c := range children {
			c.Release()
		}
	}()
	for i := range to.Children {
		want := &to.Children[i]
		j := fieldOf(from, to, i)
		if j < 0 {
			nulls, err := a.nulls(&want.Type, dt.Field(i).Type, n)
			if err != nil {
				return nil, err
			}
			children = append(children, nulls)
			continue
		}
		c, err := a.align(data.Children()[j], valid, &from.Children[j].Type, &want.Type, dt.Field(i).Type)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	return array.NewData(dt, n, data.Buffers()[:1], children, data.NullN(), 0), nil
}

func (a *aligner) nulls(t *millrace.DataType, dt arrow.DataType, n int) (arrow.ArrayData, error) {
	if size := nullBytes(t, n); size > MaxPayloadBytes {
		return nil, errs.New(errs.TooLarge, "%d NULLs of %s, a field of column %d, do not fit in a batch", n, *t, a.column)
	}
	arr := array.MakeArrayOfNull(a.mem, dt, n)
	defer arr.Release()
	d := arr.Data()
	d.Retain()
	return d, nil
}

// list aligns an ARRAY or a MAP, whose elements are entries of a key and a value.
func (a *aligner) list(data arrow.ArrayData, from, to *millrace.DataType, dt arrow.DataType) (arrow.ArrayData, error) {
	elems := data.Children()[0]
	var child arrow.ArrayData
	var err error
	if to.Kind == millrace.Array {
		child, err = a.align(elems, nil, &from.Children[0].Type, &to.Children[0].Type, dt.(*arrow.ListType).Elem())
	} else {
		child, err = a.entries(elems, from, to, dt.(*arrow.MapType).Elem().(*arrow.StructType))
	}
	if err != nil {
		return nil, err
	}
	defer child.Release()
	return array.NewData(dt, data.Len(), data.Buffers(), []arrow.ArrayData{child}, data.NullN(), 0), nil
}

func (a *aligner) entries(data arrow.ArrayData, from, to *millrace.DataType, dt *arrow.StructType) (arrow.ArrayData, error) {
	key, err := a.align(data.Children()[0], nil, &from.Children[0].Type, &to.Children[0].Type, dt.Field(0).Type)
	if err != nil {
		return nil, err
	}
	defer key.Release()
	value, err := a.align(data.Children()[1], nil, &from.Children[1].Type, &to.Children[1].Type, dt.Field(1).Type)
	if err != nil {
		return nil, err
	}
	defer value.Release()
	return array.NewData(dt, data.Len(), data.Buffers()[:1], []arrow.ArrayData{key, value}, data.NullN(), 0), nil
}

func (a *aligner) checkDecimals(data arrow.ArrayData, valid []byte, to *millrace.DataType) error {
	if data.Len() == 0 {
		return nil
	}
	for i, v := range arrow.Decimal128Traits.CastFromBytes(data.Buffers()[1].Bytes())[:data.Len()] {
		if holds := valid == nil || bitutil.BitIsSet(valid, i); holds && !v.FitsInPrecision(int32(to.Precision)) {
			return a.tooNarrow(v.ToString(int32(to.Scale)), to)
		}
	}
	return nil
}

// cast casts integers to integers and floats to floats of another width.
func (a *aligner) cast(dst []byte, data arrow.ArrayData, valid []byte, from, to *millrace.DataType) error {
	if from.Kind == millrace.Float && to.Kind == millrace.Double || from.Kind == millrace.Double && to.Kind == millrace.Float {
		return a.castFloats(dst, data, valid, to)
	}
	if !integer(from.Kind) || !integer(to.Kind) {
		return errs.New(errs.SchemaChanged, "column %d was written as %s and cannot be read as %s", a.column, *from, *to)
	}
	if data.Len() == 0 {
		return nil
	}
	src := data.Buffers()[1].Bytes()
	switch from.Kind {
	case millrace.TinyInt:
		return castIntegers(a, dst, arrow.Int8Traits.CastFromBytes(src), valid, to)
	case millrace.SmallInt:
		return castIntegers(a, dst, arrow.Int16Traits.CastFromBytes(src), valid, to)
	case millrace.Int:
		return castIntegers(a, dst, arrow.Int32Traits.CastFromBytes(src), valid, to)
	default:
		return castIntegers(a, dst, arrow.Int64Traits.CastFromBytes(src), valid, to)
	}
}

func integer(k millrace.Kind) bool { return k >= millrace.TinyInt && k <= millrace.BigInt }

func castIntegers[S int8 | int16 | int32 | int64](a *aligner, dst []byte, src []S, valid []byte, to *millrace.DataType) error {
	switch to.Kind {
	case millrace.TinyInt:
		return castInto(a, arrow.Int8Traits.CastFromBytes(dst), src, valid, to)
	case millrace.SmallInt:
		return castInto(a, arrow.Int16Traits.CastFromBytes(dst), src, valid, to)
	case millrace.Int:
		return castInto(a, arrow.Int32Traits.CastFromBytes(dst), src, valid, to)
	default:
		return castInto(a, arrow.Int64Traits.CastFromBytes(dst), src, valid, to)
	}
}

func (a *aligner) castFloats(dst []byte, data arrow.ArrayData, valid []byte, to *millrace.DataType) error {
	if data.Len() == 0 {
		return nil
	}
	src := data.Buffers()[1].Bytes()
	if to.Kind == millrace.Double {
		return castInto(a, arrow.Float64Traits.CastFromBytes(dst), arrow.Float32Traits.CastFromBytes(src), valid, to)
	}
	return castInto(a, arrow.Float32Traits.CastFromBytes(dst), arrow.Float64Traits.CastFromBytes(src), valid, to)
}

type number interface {
	int8 | int16 | int32 | int64 | float32 | float64
}

// castInto casts value after value; one that does not come out as it was is an error,
// unless it is not there.
func castInto[D, S number](a *aligner, dst []D, src []S, valid []byte, to *millrace.DataType) error {
	for i := range dst {
		v := src[i]
		dst[i] = D(v)
		if S(dst[i]) != v && v == v && (valid == nil || bitutil.BitIsSet(valid, i)) {
			return a.tooNarrow(fmt.Sprint(v), to)
		}
	}
	return nil
}

func (a *aligner) tooNarrow(value string, to *millrace.DataType) error {
	return errs.New(errs.SchemaChanged, "column %d: the value %s does not fit into %s, which the column was when the read began: start the read again with the newer schema", a.column, value, *to)
}
