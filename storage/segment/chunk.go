package segment

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// node is an Arrow field node.
type node struct{ length, nulls int }

// chunkWriter writes arrays as the field nodes and buffers of Arrow IPC, depth
// first. It is used for chunks of payloads and for bodies of messages alike.
type chunkWriter struct {
	codec   Codec
	comp    *compressor
	nodes   []node
	buffers []int // lengths, without padding
	raw     int   // bytes before compression
	scratch []byte
}

func (w *chunkWriter) reset(codec Codec, comp *compressor) {
	w.codec, w.comp, w.raw = codec, comp, 0
	w.nodes, w.buffers = w.nodes[:0], w.buffers[:0]
}

// buffer appends one buffer and its padding; base is where the chunk or body
// begins in dst.
func (w *chunkWriter) buffer(dst, raw []byte, base int) []byte {
	start := len(dst)
	dst = w.comp.appendBuffer(dst, raw, w.codec)
	w.buffers = append(w.buffers, len(dst)-start)
	w.raw += len(raw)
	return appendZeros(dst, base, bufferAlign)
}

// array appends n values from the absolute position start in data's buffers.
// (The position in a struct's children is relative to their own offset.) What
// lies outside the window is not written, so slices come out as if they stood
// alone; a validity bitmap without nulls is left out.
func (w *chunkWriter) array(dst []byte, data arrow.ArrayData, start, n, base int) []byte {
	bufs := data.Buffers()
	nulls := nullCount(data, start, n)
	w.nodes = append(w.nodes, node{n, nulls})
	if nulls == 0 {
		w.buffers = append(w.buffers, 0)
	} else {
		dst = w.buffer(dst, w.bits(bufs[0].Bytes(), start, n), base)
	}
	switch dt := data.DataType().(type) {
	case *arrow.StructType:
		for _, c := range data.Children() {
			dst = w.array(dst, c, c.Offset()+start, n, base)
		}
	case *arrow.ListType, *arrow.MapType:
		child := data.Children()[0]
		offsets, first, last := w.offsets(bufs[1], start, n)
		dst = w.buffer(dst, offsets, base)
		dst = w.array(dst, child, child.Offset()+first, last-first, base)
	case *arrow.StringType, *arrow.BinaryType:
		offsets, first, last := w.offsets(bufs[1], start, n)
		dst = w.buffer(dst, offsets, base)
		var values []byte
		if last > first {
			values = bufs[2].Bytes()[first:last]
		}
		dst = w.buffer(dst, values, base)
	case *arrow.BooleanType:
		var values []byte
		if n > 0 {
			values = w.bits(bufs[1].Bytes(), start, n)
		}
		dst = w.buffer(dst, values, base)
	case arrow.FixedWidthDataType:
		width := dt.Bytes()
		var values []byte
		if n > 0 {
			values = bufs[1].Bytes()[start*width : (start+n)*width]
		}
		dst = w.buffer(dst, values, base)
	default:
		panic(fmt.Sprintf("segment: a column of Arrow type %s, which is not canonical", dt))
	}
	return dst
}

// nullCount counts the nulls in a window of data.
func nullCount(data arrow.ArrayData, start, n int) int {
	validity := data.Buffers()[0]
	if validity == nil || validity.Len() == 0 || n == 0 {
		return 0
	}
	if start == data.Offset() && n == data.Len() && data.NullN() >= 0 {
		return data.NullN()
	}
	return n - bitutil.CountSetBits(validity.Bytes(), start, n)
}

// bits returns a bitmap that begins at bit start; bits after the n-th are zero.
func (w *chunkWriter) bits(b []byte, start, n int) []byte {
	size := int(bitutil.BytesForBits(int64(n)))
	if start%8 == 0 && n%8 == 0 {
		return b[start/8:][:size]
	}
	w.scratch = append(w.scratch[:0], make([]byte, size)...)
	bitutil.CopyBitmap(b, start, n, w.scratch, 0)
	return w.scratch
}

// offsets returns the n+1 offsets of n lists or strings from the position start,
// moved so that the first is zero, and the range of child values or bytes. Arrow
// lets an array without values go without its one offset; polars stumbles then.
func (w *chunkWriter) offsets(b interface{ Bytes() []byte }, start, n int) (out []byte, first, last int) {
	if n == 0 {
		return zeros[:4], 0, 0
	}
	window := b.Bytes()[4*start : 4*(start+n+1)]
	first, last = int(le.Uint32(window)), int(le.Uint32(window[4*n:]))
	if first == 0 {
		return window, 0, last
	}
	w.scratch = append(w.scratch[:0], window...)
	for o := arrow.Int32Traits.CastFromBytes(w.scratch); len(o) > 0; o = o[1:] {
		o[0] -= int32(first)
	}
	return w.scratch, first, last
}

// windowBytes is how many bytes array would write before compression.
func windowBytes(data arrow.ArrayData, start, n int) int {
	bufs := data.Buffers()
	size := 0
	if v := bufs[0]; v != nil && v.Len() > 0 {
		size = int(bitutil.BytesForBits(int64(n)))
	}
	span := func() (first, last int) {
		if n == 0 {
			return 0, 0
		}
		b := bufs[1].Bytes()
		return int(le.Uint32(b[4*start:])), int(le.Uint32(b[4*(start+n):]))
	}
	switch dt := data.DataType().(type) {
	case *arrow.StructType:
		for _, c := range data.Children() {
			size += windowBytes(c, c.Offset()+start, n)
		}
	case *arrow.ListType, *arrow.MapType:
		child := data.Children()[0]
		first, last := span()
		size += 4*(n+1) + windowBytes(child, child.Offset()+first, last-first)
	case *arrow.StringType, *arrow.BinaryType:
		first, last := span()
		size += 4*(n+1) + last - first
	case *arrow.BooleanType:
		size += int(bitutil.BytesForBits(int64(n)))
	case arrow.FixedWidthDataType:
		size += n * dt.Bytes()
	}
	return size
}
