package row

import (
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// tupleDecoder appends the fields of tuples of one stored layout to columns.
type tupleDecoder struct {
	tuple  *tuple
	fields []fieldDecoder
}

type fieldDecoder struct {
	decoder
	col    column // where the values go
	from   field  // as stored
	absent bool   // it is not stored, so it is NULL
}

// decode appends one tuple and returns the bytes of its values in the variable
// section. After an error the columns are of unequal length.
func (d *tupleDecoder) decode(b []byte) (int, error) {
	t := d.tuple
	size := t.head
	if len(b) < size {
		return 0, errs.New(errs.CorruptData, "a row of %d bytes where its columns need %d at least", len(b), size)
	}
	if t.last >= 0 {
		size += end(b, t.last)
	}
	if len(b) != size {
		return 0, errs.New(errs.CorruptData, "a row of %d bytes where its values end at %d", len(b), size)
	}
	variable := 0
	for i := range d.fields {
		fd := &d.fields[i]
		f := &fd.from
		if fd.absent || b[f.nullAt]&f.nullBit != 0 {
			fd.col.appendNull()
			continue
		}
		if f.width != 0 {
			if err := fd.decode(b[f.at : f.at+f.width]); err != nil {
				return 0, err
			}
			continue
		}
		v, err := t.variable(b, f)
		if err != nil {
			return 0, err
		}
		if err := fd.decode(v); err != nil {
			return 0, err
		}
		variable += len(v)
	}
	return variable, nil
}

// newTupleDecoder plans how tuples stored as t become the columns cols, of the
// types and ids in want. A field is matched by id, or by position when want's has
// none: the fields of a ROW are numbered by the catalog, those of a type that was
// only parsed are not.
func newTupleDecoder(t *tuple, want []millrace.Column, cols []column, budget *int) (*tupleDecoder, error) {
	d := &tupleDecoder{tuple: t, fields: make([]fieldDecoder, len(want))}
	for i, w := range want {
		d.fields[i].col = cols[i]
		from := t.find(w.ID, i)
		if from == nil {
			d.fields[i].absent = true
			continue
		}
		dec, err := newDecoder(from.layout, w.Type, cols[i], budget)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", w.Name, err)
		}
		d.fields[i].from, d.fields[i].decoder = *from, dec
	}
	return d, nil
}

func (t *tuple) find(id millrace.ColumnID, position int) *field {
	if id == 0 {
		if position < len(t.fields) {
			return &t.fields[position]
		}
		return nil
	}
	for i := range t.fields {
		if t.fields[i].id == id {
			return &t.fields[i]
		}
	}
	return nil
}

// newDecoder plans how values stored as l become values of want in col.
func newDecoder(l *layout, want millrace.DataType, col column, budget *int) (decoder, error) {
	if !readable(l.typ, want) {
		return nil, errs.New(errs.SchemaChanged, "values stored as %v cannot be read as %v", l.typ, want)
	}
	switch want.Kind {
	case millrace.Array:
		c := col.(*listColumn)
		elem, err := newVectorDecoder(l.elem, want.Children[0], c.elem, budget)
		if err != nil {
			return nil, err
		}
		return &listDecoder{col: c, elem: elem}, nil
	case millrace.Map:
		c := col.(*listColumn)
		entries := c.elem.(*structColumn)
		key, err := newVectorDecoder(l.key, want.Children[0], entries.fields[0], budget)
		if err != nil {
			return nil, err
		}
		key.notNull = true
		value, err := newVectorDecoder(l.elem, want.Children[1], entries.fields[1], budget)
		if err != nil {
			return nil, err
		}
		return &mapDecoder{col: c, entries: entries, key: key, value: value}, nil
	case millrace.Row:
		c := col.(*structColumn)
		fields, err := newTupleDecoder(l.tuple, want.Children, c.fields, budget)
		if err != nil {
			return nil, err
		}
		return &structDecoder{col: c, fields: *fields}, nil
	default:
	}
	return castDecoder(l.typ, want, col), nil
}

func newVectorDecoder(l *layout, want millrace.Column, col column, budget *int) (vectorDecoder, error) {
	dec, err := newDecoder(l, want.Type, col, budget)
	return vectorDecoder{decoder: dec, col: col, layout: l, spread: arrowBytes(want.Type), budget: budget}, err
}

// arrowBytes is what a value of t takes in Arrow at least, as when it is NULL;
// beyond maxArrowBytes it does not say how much.
func arrowBytes(t millrace.DataType) int {
	switch t.Kind {
	case millrace.Binary:
		return t.Length
	case millrace.Char, millrace.String, millrace.Bytes, millrace.Array, millrace.Map:
		return 4
	case millrace.Row:
		n := 1
		for _, c := range t.Children {
			n = min(n+arrowBytes(c.Type), maxArrowBytes+1)
		}
		return n
	default:
		return slotWidth(t)
	}
}
