package filter

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
)

// byteColumn is the values of a text or binary column.
type byteColumn struct {
	data    []byte
	offsets []int32 // of the values, one more than there are; nil for a fixed width
	width   int
}

func newByteColumn(arr arrow.Array) byteColumn {
	var c byteColumn
	values := 2
	switch arr := arr.(type) {
	case *array.String:
		c.offsets = arr.ValueOffsets()
	case *array.Binary:
		c.offsets = arr.ValueOffsets()
	case *array.FixedSizeBinary:
		values = 1
		c.width = arr.DataType().(*arrow.FixedSizeBinaryType).ByteWidth
	default:
		panic("filter: an array without bytes")
	}
	if buf := arr.Data().Buffers()[values]; buf != nil { // nil when all are empty
		c.data = buf.Bytes()[arr.Data().Offset()*c.width:]
	}
	return c
}

func (c *byteColumn) at(i int32) []byte {
	if c.offsets == nil {
		return c.data[int(i)*c.width : (int(i)+1)*c.width]
	}
	return c.data[c.offsets[i]:c.offsets[i+1]]
}

// byteCompare is TRUE for values that compare with a literal as op says, byte by
// byte, which for UTF-8 is by code point.
type byteCompare struct {
	col int
	typ *millrace.Column
	op  compareOp
	lit string
}

func (p byteCompare) cost() int { return costBytes }

func (p byteCompare) narrow(b *batch, rows []int32) []int32 {
	return b.run(rows, func(rows []int32) []int32 {
		c := newByteColumn(b.arrays[p.col])
		switch {
		case p.op != opEqual && p.op != opNotEqual:
			return p.narrowOrder(b, c, rows)
		case rows == nil && c.offsets != nil:
			return p.narrowAllEqual(b, c)
		}
		return p.narrowEqual(b, c, rows)
	}, p.col)
}

func (p byteCompare) narrowOrder(b *batch, c byteColumn, rows []int32) []int32 {
	lit := []byte(p.lit)
	rows = b.everyRow(rows)
	n := 0
	for _, i := range rows {
		rows[n] = i
		if p.op.holds(bytes.Compare(c.at(i), lit)) {
			n++
		}
	}
	return rows[:n]
}

func (p byteCompare) narrowEqual(b *batch, c byteColumn, rows []int32) []int32 {
	not := p.op == opNotEqual
	rows = b.everyRow(rows)
	n := 0
	for _, i := range rows {
		rows[n] = i
		if (string(c.at(i)) == p.lit) != not {
			n++
		}
	}
	return rows[:n]
}

// narrowAllEqual looks at length and tail first, and so rarely at the rest.
func (p byteCompare) narrowAllEqual(b *batch, c byteColumn) []int32 {
	not, want := p.op == opNotEqual, tail([]byte(p.lit))
	rows := b.take()
	n := 0
	from := c.offsets[0]
	for i, to := range c.offsets[1:] {
		rows[n] = int32(i)
		same := int(to-from) == len(p.lit)
		if same {
			v := c.data[from:to]
			same = tail(v) == want && string(v) == p.lit
		}
		if same != not {
			n++
		}
		from = to
	}
	return rows[:n]
}

// byteSet is TRUE for values that are in a set, or with not for the others.
type byteSet struct {
	col int
	typ *millrace.Column
	*byteTable
	not bool
}

func (p byteSet) cost() int { return costBytesSet }

func (p byteSet) narrow(b *batch, rows []int32) []int32 {
	return b.run(rows, func(rows []int32) []int32 {
		c := newByteColumn(b.arrays[p.col])
		rows = b.everyRow(rows)
		n := 0
		for _, i := range rows {
			rows[n] = i
			if p.has(c.at(i)) != p.not {
				n++
			}
		}
		return rows[:n]
	}, p.col)
}

// boolIs is TRUE for one of the two booleans.
type boolIs struct {
	col int
	typ *millrace.Column
	yes bool
}

func (p boolIs) cost() int { return costRange }

func (p boolIs) narrow(b *batch, rows []int32) []int32 {
	return b.run(rows, func(rows []int32) []int32 {
		arr := b.arrays[p.col]
		bits, offset := arr.Data().Buffers()[1].Bytes(), arr.Data().Offset()
		rows = b.everyRow(rows)
		n := 0
		for _, i := range rows {
			rows[n] = i
			at := uint(offset + int(i))
			if (bits[at>>3]>>(at&7)&1 != 0) == p.yes {
				n++
			}
		}
		return rows[:n]
	}, p.col)
}
