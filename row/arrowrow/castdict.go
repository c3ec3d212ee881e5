package arrowrow

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// undict is the values that a dictionary array stands for, in the dictionary's own
// type. Its indices were checked by the decoder.
func (x *run) undict(in arrow.ArrayData) (arrow.ArrayData, error) {
	index, err := x.indices(in)
	if err != nil {
		return nil, err
	}
	dict := in.(*array.Data).Dictionary()
	n := in.Len()
	valid, nulls := in.Buffers()[0], in.NullN()
	if dict.DataType().ID() == arrow.NULL {
		return array.NewData(arrow.Null, n, []*memory.Buffer{nil}, nil, n, 0), nil
	}
	if dict.NullN() > 0 {
		b, err := x.bytes(bitBytes(n))
		if err != nil {
			return nil, err
		}
		nulls = 0
		for i, v := range index {
			if isNull(in, i) || isNull(dict, int(v)) {
				nulls++
			} else {
				bitutil.SetBit(b, i)
			}
		}
		valid = memory.NewBufferBytes(b)
	}
	buffers, err := x.take(dict, index)
	if err != nil {
		return nil, err
	}
	return array.NewData(dict.DataType(), n, append([]*memory.Buffer{valid}, buffers...), nil, nulls, 0), nil
}

// indices are the indices as one type; those that are NULL are 0, if only there is
// a value 0.
func (x *run) indices(in arrow.ArrayData) ([]uint32, error) {
	if err := x.spend(4 * int64(in.Len())); err != nil {
		return nil, err
	}
	out := make([]uint32, in.Len())
	switch in.DataType().(*arrow.DictionaryType).IndexType.ID() {
	case arrow.INT8, arrow.UINT8:
		widenIndices[uint8](out, in)
	case arrow.INT16, arrow.UINT16:
		widenIndices[uint16](out, in)
	case arrow.INT32, arrow.UINT32:
		widenIndices[uint32](out, in)
	default:
		widenIndices[uint64](out, in)
	}
	return out, nil
}

func widenIndices[T uint8 | uint16 | uint32 | uint64](out []uint32, in arrow.ArrayData) {
	for i, v := range values[T](in) {
		if !isNull(in, i) {
			out[i] = uint32(v)
		}
	}
}

// take is the buffers, but for the bitmap, of the dictionary values with these
// numbers.
func (x *run) take(dict arrow.ArrayData, index []uint32) ([]*memory.Buffer, error) {
	if len(index) == 0 || dict.Len() == 0 { // of nothing, only NULL can be taken
		return x.takeNothing(dict.DataType(), len(index))
	}
	switch t := dict.DataType().(type) {
	case *arrow.BooleanType:
		out, err := x.bytes(bitBytes(len(index)))
		if err != nil {
			return nil, err
		}
		bits := dict.Buffers()[1].Bytes()
		for i, v := range index {
			bitutil.SetBitTo(out, i, bitutil.BitIsSet(bits, int(v)))
		}
		return []*memory.Buffer{memory.NewBufferBytes(out)}, nil
	case *arrow.BinaryType, *arrow.StringType:
		return takeText[int32](x, dict, index)
	case *arrow.LargeBinaryType, *arrow.LargeStringType:
		return takeText[int64](x, dict, index)
	case *arrow.BinaryViewType, *arrow.StringViewType:
		headers, err := x.takeFixed(dict, index, arrow.ViewHeaderSizeBytes)
		return append(headers, dict.Buffers()[2:]...), err
	default:
		return x.takeFixed(dict, index, t.(arrow.FixedWidthDataType).Bytes())
	}
}

func (x *run) takeNothing(t arrow.DataType, n int) ([]*memory.Buffer, error) {
	arr, err := x.nulls(n, t)
	if err != nil {
		return nil, err
	}
	return arr.Buffers()[1:], nil
}

func (x *run) takeFixed(dict arrow.ArrayData, index []uint32, width int) ([]*memory.Buffer, error) {
	out, err := x.bytes(len(index) * width)
	if err != nil {
		return nil, err
	}
	src := dict.Buffers()[1].Bytes()
	for i, v := range index {
		copy(out[i*width:(i+1)*width], src[int(v)*width:])
	}
	return []*memory.Buffer{memory.NewBufferBytes(out)}, nil
}

// takeText copies texts. A short batch may name a long one many times, so the sum
// is known before any is copied. What is NULL takes the text of value 0, which is
// not looked at.
func takeText[T int32 | int64](x *run, dict arrow.ArrayData, index []uint32) ([]*memory.Buffer, error) {
	offsets := arrow.GetData[T](dict.Buffers()[1].Bytes())
	total := int64(0)
	for _, v := range index {
		total += int64(offsets[v+1] - offsets[v])
	}
	if err := x.spend(total); err != nil {
		return nil, err
	}
	out, dst, err := room[T](x, len(index)+1)
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, total)
	src := dict.Buffers()[2].Bytes()
	for i, v := range index {
		data = append(data, src[offsets[v]:offsets[v+1]]...)
		dst[i+1] = T(len(data))
	}
	return []*memory.Buffer{memory.NewBufferBytes(out), memory.NewBufferBytes(data)}, nil
}
