package row

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// buffer is a growing Arrow buffer of values of one width.
type buffer[T uint8 | uint16 | uint32 | uint64 | int32] struct {
	mem  memory.Allocator
	buf  *memory.Buffer
	vals []T // all of buf; the first n are set
	n    int
	hint int // bytes that the last values took: the next batch is likely as large
}

const minBufferBytes = 64

func (b *buffer[T]) push(v T) {
	if b.n == len(b.vals) {
		b.grow(1)
	}
	b.vals[b.n] = v
	b.n++
}

// grow makes room for k more values.
func (b *buffer[T]) grow(k int) {
	need := (b.n + k) * b.width()
	if b.buf == nil {
		b.buf = memory.NewResizableBuffer(b.mem)
		need = max(need, b.hint, minBufferBytes)
	}
	b.buf.Reserve(max(need, 2*b.buf.Cap()))
	b.vals = arrow.GetData[T](b.buf.Buf())
}

func (*buffer[T]) width() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// take hands the buffer over; it may be empty, never nil.
func (b *buffer[T]) take() *memory.Buffer {
	out := b.buf
	if out == nil {
		out = memory.NewResizableBuffer(b.mem)
	}
	b.hint = b.n * b.width()
	out.ResizeNoShrink(b.hint)
	b.buf, b.vals, b.n = nil, nil, 0
	return out
}

func (b *buffer[T]) release() { b.take().Release() }

func pushBytes(b *buffer[uint8], v []byte) {
	if len(v) > len(b.vals)-b.n {
		b.grow(len(v))
	}
	copy(b.vals[b.n:], v)
	b.n += len(v)
}

// validity counts values and keeps their bitmap, from the first NULL on.
type validity struct {
	bits  buffer[uint8]
	n     int
	nulls int
}

func (v *validity) add() {
	if v.nulls > 0 {
		v.addBit(1)
	}
	v.n++
}

func (v *validity) addNull() {
	if v.nulls == 0 {
		for range v.n / 8 {
			v.bits.push(0xff)
		}
		if v.n%8 != 0 {
			v.bits.push(1<<(v.n%8) - 1)
		}
	}
	v.addBit(0)
	v.nulls++
	v.n++
}

func (v *validity) addBit(bit uint8) {
	if v.n%8 == 0 {
		v.bits.push(bit)
		return
	}
	v.bits.vals[v.n/8] |= bit << (v.n % 8)
}

// data makes the array's data of the values and starts again. It takes over the
// buffers and children.
func (v *validity) data(dt arrow.DataType, values []*memory.Buffer, children ...arrow.ArrayData) *array.Data {
	bufs := make([]*memory.Buffer, 1, 3)
	if v.nulls > 0 {
		bufs[0] = v.bits.take()
	}
	bufs = append(bufs, values...)
	d := array.NewData(dt, v.n, bufs, children, v.nulls, 0)
	for _, b := range bufs {
		if b != nil {
			b.Release()
		}
	}
	for _, c := range children {
		c.Release()
	}
	v.n, v.nulls = 0, 0
	return d
}
