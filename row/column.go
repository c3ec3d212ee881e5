package row

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// column gathers the values of one column, or of one level of a nested one, in
// Arrow's layout. These stand in for the stock builders where rows become
// columns: a slot's bytes are an Arrow value's bytes, so one type serves all
// kinds of a width, and a validity bitmap is made only when there is a NULL.
type column interface {
	appendNull()
	// finish hands the values over and starts again; the caller releases them.
	finish() *array.Data
	// release drops the values and starts again.
	release()
}

// decoder appends values as they lie in rows, a slot's bytes or the bytes in the
// variable section, to its column. It never fails for a slot but a BOOLEAN's.
type decoder interface {
	decode(v []byte) error
}

var _ = []decoder{&column8{}, &column16{}, &column32{}, &column64{}, &wideColumn{}, &boolColumn{}, &bytesColumn{}}

// newColumn makes the column for values of t.
func newColumn(mem memory.Allocator, t millrace.DataType) column {
	dt := ArrowType(t)
	v := validity{bits: buffer[uint8]{mem: mem}}
	switch t.Kind {
	case millrace.Boolean:
		return &boolColumn{validity: v, dt: dt, vals: buffer[uint8]{mem: mem}}
	case millrace.Binary:
		return &wideColumn{validity: v, dt: dt, vals: buffer[uint8]{mem: mem}, width: t.Length}
	case millrace.Decimal:
		return &wideColumn{validity: v, dt: dt, vals: buffer[uint8]{mem: mem}, width: 16}
	case millrace.Char, millrace.String, millrace.Bytes:
		return newBytesColumn(v, dt, mem)
	case millrace.Array:
		return newListColumn(v, dt, mem, newColumn(mem, t.Children[0].Type))
	case millrace.Map:
		entries := newStructColumn(v, dt.(*arrow.MapType).Elem(), mem, t.Children)
		return newListColumn(v, dt, mem, entries)
	case millrace.Row:
		return newStructColumn(v, dt, mem, t.Children)
	default:
	}
	switch slotWidth(t) {
	case 1:
		return &column8{fixedColumn[uint8]{validity: v, dt: dt, vals: buffer[uint8]{mem: mem}}}
	case 2:
		return &column16{fixedColumn[uint16]{validity: v, dt: dt, vals: buffer[uint16]{mem: mem}}}
	case 4:
		return &column32{fixedColumn[uint32]{validity: v, dt: dt, vals: buffer[uint32]{mem: mem}}}
	case 8:
		return &column64{fixedColumn[uint64]{validity: v, dt: dt, vals: buffer[uint64]{mem: mem}}}
	}
	panic(fmt.Sprintf("row: no column for %v", t))
}

// fixedColumn holds values of a machine width, whatever they mean.
type fixedColumn[T uint8 | uint16 | uint32 | uint64] struct {
	validity
	dt   arrow.DataType
	vals buffer[T]
}

func (c *fixedColumn[T]) appendNull() {
	c.addNull()
	c.vals.push(0)
}

func (c *fixedColumn[T]) finish() *array.Data {
	return c.data(c.dt, []*memory.Buffer{c.vals.take()})
}

func (c *fixedColumn[T]) release() { c.finish().Release() }

type (
	column8  struct{ fixedColumn[uint8] }
	column16 struct{ fixedColumn[uint16] }
	column32 struct{ fixedColumn[uint32] }
	column64 struct{ fixedColumn[uint64] }
)

func (c *column8) decode(v []byte) error {
	c.add()
	c.vals.push(v[0])
	return nil
}

func (c *column16) decode(v []byte) error {
	c.add()
	c.vals.push(binary.LittleEndian.Uint16(v))
	return nil
}

func (c *column32) decode(v []byte) error {
	c.add()
	c.vals.push(binary.LittleEndian.Uint32(v))
	return nil
}

func (c *column64) decode(v []byte) error {
	c.add()
	c.vals.push(binary.LittleEndian.Uint64(v))
	return nil
}

// wideColumn holds values of any one width.
type wideColumn struct {
	validity
	dt    arrow.DataType
	vals  buffer[uint8]
	width int
}

func (c *wideColumn) decode(v []byte) error {
	if len(v) != c.width {
		return errs.New(errs.CorruptData, "a row's value has %d bytes where %d should be", len(v), c.width)
	}
	c.add()
	pushBytes(&c.vals, v)
	return nil
}

func (c *wideColumn) appendNull() {
	c.addNull()
	if c.width > len(c.vals.vals)-c.vals.n {
		c.vals.grow(c.width)
	}
	clear(c.vals.vals[c.vals.n : c.vals.n+c.width])
	c.vals.n += c.width
}

func (c *wideColumn) finish() *array.Data {
	return c.data(c.dt, []*memory.Buffer{c.vals.take()})
}

func (c *wideColumn) release() { c.finish().Release() }

type boolColumn struct {
	validity
	dt   arrow.DataType
	vals buffer[uint8]
}

func (c *boolColumn) decode(v []byte) error {
	if v[0] > 1 {
		return errs.New(errs.CorruptData, "a row's BOOLEAN is %d", v[0])
	}
	c.bit(v[0])
	c.add()
	return nil
}

// bit is called before the value is counted.
func (c *boolColumn) bit(b uint8) {
	if c.n%8 == 0 {
		c.vals.push(b)
		return
	}
	c.vals.vals[c.n/8] |= b << (c.n % 8)
}

func (c *boolColumn) appendNull() {
	c.bit(0)
	c.addNull()
}

func (c *boolColumn) finish() *array.Data {
	return c.data(c.dt, []*memory.Buffer{c.vals.take()})
}

func (c *boolColumn) release() { c.finish().Release() }

// bytesColumn holds values of any length. Its bytes stay below 2 GiB because
// those of the rows do.
type bytesColumn struct {
	validity
	dt      arrow.DataType
	offsets buffer[int32]
	vals    buffer[uint8]
}

func newBytesColumn(v validity, dt arrow.DataType, mem memory.Allocator) *bytesColumn {
	return &bytesColumn{validity: v, dt: dt, offsets: buffer[int32]{mem: mem}, vals: buffer[uint8]{mem: mem}}
}

// begin puts the offset 0 before the first value.
func begin(offsets *buffer[int32]) {
	if offsets.n == 0 {
		offsets.push(0)
	}
}

func (c *bytesColumn) decode(v []byte) error {
	begin(&c.offsets)
	pushBytes(&c.vals, v)
	c.offsets.push(int32(c.vals.n))
	c.add()
	return nil
}

func (c *bytesColumn) appendNull() {
	begin(&c.offsets)
	c.offsets.push(int32(c.vals.n))
	c.addNull()
}

func (c *bytesColumn) finish() *array.Data {
	begin(&c.offsets)
	return c.data(c.dt, []*memory.Buffer{c.offsets.take(), c.vals.take()})
}

func (c *bytesColumn) release() { c.finish().Release() }
