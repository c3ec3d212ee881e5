package arrowrow

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/millrace/millrace/errs"
)

// loader makes arrays of the body of one RecordBatch message, walking the fields
// of the schema and the nodes and buffers of the message side by side.
type loader struct {
	d                                  *Decoder
	f                                  *fbuf
	nodes                              vector // length i64, nulls i64
	buffers                            vector // offset i64, length i64
	variadic                           vector // i64: buffers of a view column
	nextNode, nextBuffer, nextVariadic int

	body  []byte
	codec codec
}

func (d *Decoder) batch(t table, body []byte) (arrow.RecordBatch, error) {
	l, rows, err := d.loader(t, body)
	if err != nil {
		return nil, err
	}
	if rows > int64(d.limits.MaxRows) {
		return nil, errs.New(errs.TooLarge, "an Arrow record batch has %d rows; at most %d are allowed", rows, d.limits.MaxRows)
	}
	arrays := make([]arrow.Array, len(d.nodes))
	defer func() {
		for _, a := range arrays {
			if a != nil {
				a.Release()
			}
		}
	}()
	for i, n := range d.nodes {
		data, err := l.load(n, int(rows))
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", n.path(), err)
		}
		arrays[i] = array.MakeFromData(data)
		data.Release()
	}
	if err := l.finished(); err != nil {
		return nil, err
	}
	return array.NewRecordBatch(d.schema, arrays, rows), nil
}

// loader checks the buffers of a message against its body, before any is used.
func (d *Decoder) loader(t table, body []byte) (*loader, int64, error) {
	l := &loader{d: d, f: t.f, nodes: t.vector(1, 16), buffers: t.vector(2, 16), variadic: t.vector(4, 8), body: body}
	rows := t.i64(0)
	if c, ok := t.table(3); ok {
		l.codec = codec(1 + c.u8(0))
		if c.u8(1) != 0 || l.codec > codecZSTD {
			return nil, 0, fmt.Errorf("it is compressed in a way that is not known")
		}
	}
	if l.f.err != nil {
		return nil, 0, l.f.err
	}
	if rows < 0 {
		return nil, 0, fmt.Errorf("it has a batch of %d rows", rows)
	}
	total, plain := int64(0), int64(0)
	for i := range l.buffers.n {
		off, n := l.buffers.i64(i, 0), l.buffers.i64(i, 8)
		if off < 0 || n < 0 || off > int64(len(body))-n {
			return nil, 0, fmt.Errorf("buffer %d is bytes %d to %d of a body of %d", i, off, off+n, len(body))
		}
		if off%8 != 0 {
			return nil, 0, fmt.Errorf("buffer %d begins at byte %d, which is not aligned", i, off)
		}
		if total += n; total > int64(len(body)) {
			return nil, 0, fmt.Errorf("its buffers overlap")
		}
		if l.codec == codecNone || n == 0 {
			continue
		}
		size, err := l.codec.statedSize(body[off : off+n])
		if err != nil {
			return nil, 0, fmt.Errorf("buffer %d: %w", i, err)
		}
		if plain += size; plain > int64(d.limits.MaxMessageBytes) {
			return nil, 0, errs.New(errs.TooLarge, "an Arrow message has more than %d bytes once decompressed", d.limits.MaxMessageBytes)
		}
	}
	l.align()
	return l, rows, l.f.err
}

// align copies a body that does not lie on 8 bytes, so that all buffers do. What
// the Reader and gRPC allocate does.
func (l *loader) align() {
	if len(l.body) > 0 && uintptr(unsafe.Pointer(&l.body[0]))%8 != 0 {
		b := make([]byte, len(l.body))
		copy(b, l.body)
		l.body = b
	}
}

// finished checks that the message had no more than the schema has fields.
func (l *loader) finished() error {
	if l.f.err != nil {
		return l.f.err
	}
	if l.nextNode != l.nodes.n || l.nextBuffer != l.buffers.n || l.nextVariadic != l.variadic.n {
		return fmt.Errorf("a batch has %d arrays and %d buffers where its schema has %d and %d", l.nodes.n, l.buffers.n, l.nextNode, l.nextBuffer)
	}
	return nil
}

// buffer is the next buffer, decompressed. It must have at least size bytes.
func (l *loader) buffer(size int) (*memory.Buffer, error) {
	i := l.nextBuffer
	l.nextBuffer++
	off, n := l.buffers.i64(i, 0), l.buffers.i64(i, 8)
	if l.f.err != nil {
		return nil, l.f.err
	}
	b := l.body[off : off+n : off+n]
	if l.codec != codecNone && n > 0 {
		stated, err := l.codec.statedSize(b)
		if err != nil {
			return nil, err
		}
		if stated < int64(size) {
			return nil, fmt.Errorf("a buffer has %d bytes, not %d", stated, size)
		}
		if b, err = l.d.decompress(l.codec, b); err != nil {
			return nil, err
		}
	}
	if len(b) < size {
		return nil, fmt.Errorf("a buffer has %d bytes, not %d", len(b), size)
	}
	return memory.NewBufferBytes(b), nil
}

// load makes the array of one field. want is the number of its values, or -1 when
// that is for the field to say.
func (l *loader) load(n *node, want int) (arrow.ArrayData, error) {
	length, nulls := l.nodes.i64(l.nextNode, 0), l.nodes.i64(l.nextNode, 8)
	l.nextNode++
	switch {
	case l.f.err != nil:
		return nil, l.f.err
	case length < 0 || length > int64(l.d.limits.maxValues()) || want >= 0 && length != int64(want):
		return nil, fmt.Errorf("it has %d values, not %d", length, want)
	case nulls < -1 || nulls > length:
		return nil, fmt.Errorf("it has %d values and %d of them are null", length, nulls)
	}
	size := int(length)
	if n.typ.ID() == arrow.NULL {
		return array.NewData(n.typ, size, []*memory.Buffer{nil}, nil, size, 0), nil
	}
	valid, nullCount, err := l.validity(size, int(nulls))
	if err != nil {
		return nil, err
	}
	if n.dict != nil {
		return l.dictionary(n, size, valid, nullCount)
	}
	buffers, children, err := l.content(n, size, valid)
	if err != nil {
		return nil, err
	}
	data := array.NewData(n.typ, size, append([]*memory.Buffer{valid}, buffers...), children, nullCount, 0)
	for _, c := range children {
		c.Release()
	}
	return data, nil
}

// validity reads the bitmap. Its nulls are counted, not believed; a sender that
// says that there are none need not have sent one.
func (l *loader) validity(size, nulls int) (*memory.Buffer, int, error) {
	if nulls == 0 {
		l.skip()
		return nil, 0, l.f.err
	}
	b, err := l.buffer(0)
	if err == nil && b.Len() > 0 && b.Len() < bitBytes(size) {
		err = fmt.Errorf("its bitmap has %d bytes for %d values", b.Len(), size)
	}
	if err != nil || b.Len() == 0 {
		if err == nil && nulls > 0 {
			err = fmt.Errorf("it has nulls and no bitmap")
		}
		return nil, 0, err
	}
	nulls = size - bitutil.CountSetBits(b.Bytes(), 0, size)
	if nulls == 0 {
		return nil, 0, nil
	}
	return b, nulls, nil
}

// skip passes over a buffer that is not looked at.
func (l *loader) skip() {
	l.buffers.i64(l.nextBuffer, 8) // it must be there
	l.nextBuffer++
}
