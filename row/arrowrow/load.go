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

// content reads the buffers behind the bitmap, and the children.
func (l *loader) content(n *node, size int, valid *memory.Buffer) (buffers []*memory.Buffer, children []arrow.ArrayData, err error) {
	one := func(b *memory.Buffer, err error) ([]*memory.Buffer, []arrow.ArrayData, error) {
		return []*memory.Buffer{b}, nil, err
	}
	switch t := n.typ.(type) {
	case *arrow.BooleanType:
		return one(l.buffer(bitBytes(size)))
	case *arrow.BinaryType, *arrow.StringType:
		return l.binary(size, 4)
	case *arrow.LargeBinaryType, *arrow.LargeStringType:
		return l.binary(size, 8)
	case *arrow.BinaryViewType, *arrow.StringViewType:
		buffers, err = l.views(size, valid)
		return buffers, nil, err
	case *arrow.ListType, *arrow.MapType:
		return l.list(n, size, 4)
	case *arrow.LargeListType:
		return l.list(n, size, 8)
	case *arrow.ListViewType:
		return l.listView(n, size, 4)
	case *arrow.LargeListViewType:
		return l.listView(n, size, 8)
	case *arrow.FixedSizeListType:
		if size > l.d.limits.maxValues()/int(t.Len()) {
			return nil, nil, fmt.Errorf("%d lists of %d values are too many", size, t.Len())
		}
		children, err = l.children(n, size*int(t.Len()))
		return nil, children, err
	case *arrow.StructType:
		children, err = l.children(n, size)
		return nil, children, err
	case arrow.FixedWidthDataType:
		return one(l.buffer(size * t.Bytes()))
	}
	return nil, nil, fmt.Errorf("type %s is not taken", n.typ.Name())
}

// children loads the children, all of the same number of values.
func (l *loader) children(n *node, size int) ([]arrow.ArrayData, error) {
	var out []arrow.ArrayData
	for _, c := range n.children {
		data, err := l.load(c, size)
		if err != nil {
			return nil, err
		}
		out = append(out, data)
	}
	return out, nil
}

// binary reads offsets and data of strings.
func (l *loader) binary(size, width int) ([]*memory.Buffer, []arrow.ArrayData, error) {
	offsets, err := l.offsets(size, width)
	if err != nil {
		return nil, nil, err
	}
	data, err := l.buffer(0)
	if err != nil {
		return nil, nil, err
	}
	if err := checkOffsets(offsets, size, width, data.Len()); err != nil {
		return nil, nil, err
	}
	return []*memory.Buffer{offsets, data}, nil, nil
}

// list reads the offsets and the child of lists and maps.
func (l *loader) list(n *node, size, width int) ([]*memory.Buffer, []arrow.ArrayData, error) {
	offsets, err := l.offsets(size, width)
	if err != nil {
		return nil, nil, err
	}
	children, err := l.children(n, -1)
	if err != nil {
		return nil, nil, err
	}
	if err := checkOffsets(offsets, size, width, children[0].Len()); err != nil {
		return nil, nil, err
	}
	if n.typ.ID() == arrow.MAP {
		if children[0].NullN() > 0 || children[0].Children()[0].NullN() > 0 {
			return nil, nil, fmt.Errorf("a map has an entry or a key that is null")
		}
	}
	return []*memory.Buffer{offsets}, children, nil
}

// offsets reads size+1 offsets. An empty array need not have been sent one, but has
// one here.
func (l *loader) offsets(size, width int) (*memory.Buffer, error) {
	if size == 0 {
		l.skip()
		return memory.NewBufferBytes(make([]byte, width)), l.f.err
	}
	return l.buffer((size + 1) * width)
}

// listView reads the offsets, sizes and child of list views.
func (l *loader) listView(n *node, size, width int) ([]*memory.Buffer, []arrow.ArrayData, error) {
	offsets, err := l.buffer(size * width)
	if err != nil {
		return nil, nil, err
	}
	sizes, err := l.buffer(size * width)
	if err != nil {
		return nil, nil, err
	}
	children, err := l.children(n, -1)
	if err != nil {
		return nil, nil, err
	}
	if width == 4 {
		err = checkListViews[int32](offsets.Bytes(), sizes.Bytes(), size, children[0].Len())
	} else {
		err = checkListViews[int64](offsets.Bytes(), sizes.Bytes(), size, children[0].Len())
	}
	return []*memory.Buffer{offsets, sizes}, children, err
}

// views reads the 16-byte headers of string views and the buffers they point to.
func (l *loader) views(size int, valid *memory.Buffer) ([]*memory.Buffer, error) {
	count := l.variadic.i64(l.nextVariadic, 0)
	l.nextVariadic++
	if l.f.err != nil {
		return nil, l.f.err
	}
	if count < 0 || count > int64(l.buffers.n-l.nextBuffer) {
		return nil, fmt.Errorf("it has %d buffers of views", count)
	}
	headers, err := l.buffer(size * arrow.ViewHeaderSizeBytes)
	if err != nil {
		return nil, err
	}
	out := []*memory.Buffer{headers}
	for range count {
		b, err := l.buffer(0)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, checkViews(headers.Bytes(), size, valid, out[1:])
}

func bitBytes(bits int) int { return (bits + 7) / 8 }
