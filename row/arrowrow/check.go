package arrowrow

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// checkOffsets checks that size+1 offsets rise and end within limit.
func checkOffsets(b *memory.Buffer, size, width, limit int) error {
	if width == 4 {
		return rising(arrow.GetData[int32](b.Bytes()[:(size+1)*4]), limit)
	}
	return rising(arrow.GetData[int64](b.Bytes()[:(size+1)*8]), limit)
}

func rising[T int32 | int64](offsets []T, limit int) error {
	last := offsets[0]
	if last < 0 {
		return fmt.Errorf("its first offset is %d", last)
	}
	for i, o := range offsets {
		if o < last {
			return fmt.Errorf("its offsets fall from %d to %d at value %d", last, o, i)
		}
		last = o
	}
	if int64(last) > int64(limit) {
		return fmt.Errorf("its offsets end at %d of %d", last, limit)
	}
	return nil
}

// checkListViews checks that each list lies within a child of limit values. Null
// lists are no exception: no writer leaves garbage there.
func checkListViews[T int32 | int64](offsets, sizes []byte, size, limit int) error {
	o, n := arrow.GetData[T](offsets[:size*widthOf[T]()]), arrow.GetData[T](sizes[:size*widthOf[T]()])
	for i := range size {
		if n[i] < 0 || o[i] < 0 || int64(o[i]) > int64(limit)-int64(n[i]) {
			return fmt.Errorf("list %d is %d values from %d on, of %d", i, n[i], o[i], limit)
		}
	}
	return nil
}

func widthOf[T int32 | int64]() int {
	var v T
	return binary.Size(v)
}

// checkViews checks that each string lies within its buffer and that its prefix is
// what the buffer has. Those that are null may be anything.
func checkViews(headers []byte, size int, valid *memory.Buffer, data []*memory.Buffer) error {
	for i := range size {
		if valid != nil && !bitutil.BitIsSet(valid.Bytes(), i) {
			continue
		}
		h := headers[i*arrow.ViewHeaderSizeBytes:]
		n := int32(binary.LittleEndian.Uint32(h))
		if n < 0 {
			return fmt.Errorf("value %d has %d bytes", i, n)
		}
		if n <= inlineView {
			for _, c := range h[4+n : arrow.ViewHeaderSizeBytes] {
				if c != 0 {
					return fmt.Errorf("value %d is followed by something in its header", i)
				}
			}
			continue
		}
		b, off := int32(binary.LittleEndian.Uint32(h[8:])), int32(binary.LittleEndian.Uint32(h[12:]))
		if b < 0 || int(b) >= len(data) || off < 0 || int64(off) > int64(data[b].Len())-int64(n) {
			return fmt.Errorf("value %d is %d bytes from %d on of buffer %d", i, n, off, b)
		}
		if !bytes.Equal(h[4:8], data[b].Bytes()[off:off+4]) {
			return fmt.Errorf("value %d does not begin as its header says", i)
		}
	}
	return nil
}

// inlineView is the longest string that a view holds in its header.
const inlineView = 12

// checkIndices checks that each index is one of limit dictionary values. Those
// that are null may be anything.
func checkIndices(typ arrow.DataType, b *memory.Buffer, size int, valid *memory.Buffer, limit int) error {
	switch typ.ID() {
	case arrow.INT8:
		return within[int8](b, size, valid, limit)
	case arrow.INT16:
		return within[int16](b, size, valid, limit)
	case arrow.INT32:
		return within[int32](b, size, valid, limit)
	case arrow.INT64:
		return within[int64](b, size, valid, limit)
	case arrow.UINT8:
		return within[uint8](b, size, valid, limit)
	case arrow.UINT16:
		return within[uint16](b, size, valid, limit)
	case arrow.UINT32:
		return within[uint32](b, size, valid, limit)
	default:
		return within[uint64](b, size, valid, limit)
	}
}

func within[T integer](b *memory.Buffer, size int, valid *memory.Buffer, limit int) error {
	for i, v := range arrow.GetData[T](b.Bytes())[:size] {
		// A negative index becomes a huge one.
		if uint64(v) >= uint64(limit) && (valid == nil || bitutil.BitIsSet(valid.Bytes(), i)) {
			return fmt.Errorf("value %d is number %d of a dictionary of %d", i, v, limit)
		}
	}
	return nil
}

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}
