package row

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// listColumn holds ARRAYs and MAPs, whose elements are (key, value) structs.
type listColumn struct {
	validity
	dt      arrow.DataType
	offsets buffer[int32]
	elems   int32 // in elem so far
	elem    column
}

func newListColumn(v validity, dt arrow.DataType, mem memory.Allocator, elem column) *listColumn {
	return &listColumn{validity: v, dt: dt, offsets: buffer[int32]{mem: mem}, elem: elem}
}

// append adds a list of the n elements that were appended to elem.
func (c *listColumn) append(n int) {
	begin(&c.offsets)
	c.elems += int32(n)
	c.offsets.push(c.elems)
	c.add()
}

func (c *listColumn) appendNull() {
	begin(&c.offsets)
	c.offsets.push(c.elems)
	c.addNull()
}

func (c *listColumn) finish() *array.Data {
	begin(&c.offsets)
	c.elems = 0
	return c.data(c.dt, []*memory.Buffer{c.offsets.take()}, c.elem.finish())
}

func (c *listColumn) release() {
	c.offsets.release()
	c.bits.release()
	c.elem.release()
	c.n, c.nulls, c.elems = 0, 0, 0
}

type structColumn struct {
	validity
	dt     arrow.DataType
	fields []column
}

func newStructColumn(v validity, dt arrow.DataType, mem memory.Allocator, fields []millrace.Column) *structColumn {
	c := &structColumn{validity: v, dt: dt, fields: make([]column, len(fields))}
	for i, f := range fields {
		c.fields[i] = newColumn(mem, f.Type)
	}
	return c
}

func (c *structColumn) appendNull() {
	for _, f := range c.fields {
		f.appendNull()
	}
	c.addNull()
}

func (c *structColumn) finish() *array.Data {
	children := make([]arrow.ArrayData, len(c.fields))
	for i, f := range c.fields {
		children[i] = f.finish()
	}
	return c.data(c.dt, nil, children...)
}

func (c *structColumn) release() {
	for _, f := range c.fields {
		f.release()
	}
	c.bits.release()
	c.n, c.nulls = 0, 0
}

// vectorDecoder appends vectors to the column of their elements.
type vectorDecoder struct {
	decoder
	col     column
	layout  *layout // as stored
	spread  int     // bytes that an element takes in Arrow, even when it is NULL
	notNull bool
	budget  *int
}

// vector decodes n elements from the start of v and returns what follows them.
func (d *vectorDecoder) vector(v []byte, n int) ([]byte, error) {
	head := bitmapBytes(n) + n*d.layout.slotBytes()
	if head > len(v) {
		return nil, errs.New(errs.CorruptData, "a row's value of %d bytes claims %d elements", len(v), n)
	}
	if *d.budget -= n * d.spread; *d.budget < 0 {
		return nil, tooWide()
	}
	slots, vars, at := v[bitmapBytes(n):head], v[head:], 0
	for k := range n {
		null := v[k/8]&(1<<(k%8)) != 0
		if null && d.notNull {
			return nil, errs.New(errs.CorruptData, "a row holds a NULL key in a MAP")
		}
		var elem []byte
		if w := d.layout.width; w != 0 {
			elem = slots[k*w : k*w+w]
		} else {
			e := end(slots, k*endBytes)
			if e < at || e > len(vars) {
				return nil, errs.New(errs.CorruptData, "a row's element lies at [%d, %d) of %d bytes", at, e, len(vars))
			}
			elem, at = vars[at:e], e
		}
		if null {
			d.col.appendNull()
		} else if err := d.decode(elem); err != nil {
			return nil, err
		}
	}
	return vars[at:], nil
}

// count reads the number of elements that begins an ARRAY or MAP.
func count(v []byte) (int, []byte, error) {
	if len(v) < 4 {
		return 0, nil, errs.New(errs.CorruptData, "a row's ARRAY or MAP has %d bytes", len(v))
	}
	return int(binary.LittleEndian.Uint32(v)), v[4:], nil
}

func trailing(rest []byte) error {
	if len(rest) != 0 {
		return errs.New(errs.CorruptData, "%d bytes follow a row's value", len(rest))
	}
	return nil
}

type listDecoder struct {
	col  *listColumn
	elem vectorDecoder
}

func (d *listDecoder) decode(v []byte) error {
	n, v, err := count(v)
	if err != nil {
		return err
	}
	rest, err := d.elem.vector(v, n)
	if err != nil {
		return err
	}
	d.col.append(n)
	return trailing(rest)
}

type mapDecoder struct {
	col        *listColumn
	entries    *structColumn
	key, value vectorDecoder
}

func (d *mapDecoder) decode(v []byte) error {
	n, v, err := count(v)
	if err != nil {
		return err
	}
	rest, err := d.key.vector(v, n)
	if err != nil {
		return err
	}
	rest, err = d.value.vector(rest, n)
	if err != nil {
		return err
	}
	d.entries.n += n // entries are never NULL
	d.col.append(n)
	return trailing(rest)
}

type structDecoder struct {
	col    *structColumn
	fields tupleDecoder
}

func (d *structDecoder) decode(v []byte) error {
	if _, err := d.fields.decode(v); err != nil {
		return err
	}
	d.col.add()
	return nil
}
