package jsonrow

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
)

// finish gives the values away and starts again.
func (c *column) finish() arrow.ArrayData {
	d := c.peek()
	c.restart()
	return d
}

// peek is the values so far. It is good until the next append.
func (c *column) peek() arrow.ArrayData {
	var validity *memory.Buffer
	nulls := 0
	if c.hasNull {
		nulls = c.n - bitutil.CountSetBits(c.valid, 0, c.n)
		if nulls > 0 {
			validity = memory.NewBufferBytes(c.valid)
		}
	}
	buffers := []*memory.Buffer{validity}
	var children []arrow.ArrayData
	switch c.kind {
	case millrace.Array:
		buffers = append(buffers, offsetBuffer(c.offsets))
		children = []arrow.ArrayData{c.children[0].peek()}
	case millrace.Map:
		buffers = append(buffers, offsetBuffer(c.offsets))
		entries := int(c.offsets[c.n])
		k, v := c.children[0].peek(), c.children[1].peek()
		children = []arrow.ArrayData{array.NewData(c.dt.(*arrow.MapType).Elem(), entries, []*memory.Buffer{nil}, []arrow.ArrayData{k, v}, 0, 0)}
	case millrace.Row:
		for _, ch := range c.children {
			children = append(children, ch.peek())
		}
	case millrace.Char, millrace.String, millrace.Bytes:
		buffers = append(buffers, offsetBuffer(c.offsets), memory.NewBufferBytes(c.data))
	default:
		buffers = append(buffers, memory.NewBufferBytes(c.fixed))
	}
	d := array.NewData(c.dt, c.n, buffers, children, nulls, 0)
	for _, ch := range children {
		ch.Release()
	}
	return d
}

func (c *column) restart() {
	c.hint = hint{fixed: len(c.fixed), data: len(c.data), offsets: len(c.offsets)}
	if c.offsets != nil {
		c.offsets = []int32{0}
	}
	c.fixed, c.data, c.valid, c.hasNull, c.n = nil, nil, nil, false, 0
	for _, ch := range c.children {
		ch.restart()
	}
}

// hint is the size of the values given away last, a guess at the next ones'.
type hint struct{ fixed, data, offsets int }

// reserve makes room for as many values as were given away last. It waits for
// the first row, since the last chunk of a stream is followed by none.
func (c *column) reserve() {
	room := func(n int) int { return n + n/8 }
	c.fixed = slices.Grow(c.fixed, room(c.hint.fixed))
	c.data = slices.Grow(c.data, room(c.hint.data))
	if c.offsets != nil {
		c.offsets = slices.Grow(c.offsets, room(c.hint.offsets))
	}
	for _, ch := range c.children {
		ch.reserve()
	}
}

func offsetBuffer(o []int32) *memory.Buffer {
	return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(o))
}
