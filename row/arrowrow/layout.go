package arrowrow

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

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
