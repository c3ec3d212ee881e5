package row

import (
	"encoding/binary"
	"fmt"
	"math"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Converter rewrites compact rows of one schema version as rows of a later one of
// the same table: columns and nested fields are matched by id, what the row lacks
// is NULL, what the later version dropped is left out, and values of narrower types
// are widened. It is immutable, so any number of goroutines may use it.
type Converter struct {
	from, to *Codec
	plan     *tupleConverter
}

// NewConverter plans how rows of from become rows of to. A column that cannot be
// read as its later type is errs.SchemaChanged.
func NewConverter(from, to *millrace.Schema) (*Converter, error) {
	c := &Converter{from: NewCodec(from), to: NewCodec(to)}
	var err error
	c.plan, err = newTupleConverter(c.from.tuple, c.to.tuple, to.Columns)
	return c, err
}

// Append appends the row, rewritten, to dst. A row that is none of the schema it
// was made for is errs.CorruptData.
func (c *Converter) Append(dst, row []byte) ([]byte, error) {
	if err := c.from.Check(row); err != nil {
		return dst, err
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(c.to.schema.ID))
	return c.plan.append(dst, row[headerBytes:])
}

// tupleConverter rewrites the columns of a row or the fields of a ROW.
type tupleConverter struct {
	from, to *tuple
	fields   []fieldConverter // by field of to
}

type fieldConverter struct {
	valueConverter
	from *field // nil: there is none, so it is NULL
}

// valueConverter rewrites the values of one type. Only one of its parts is set;
// none when a value's bytes stay as they are.
type valueConverter struct {
	slot      func(dst, src []byte) // of a value that lies in its slot
	tuple     *tupleConverter       // of a ROW
	key, elem *vectorConverter      // of a MAP, the elements of an ARRAY too
}

type vectorConverter struct {
	valueConverter
	from, to *layout
}

func newTupleConverter(from, to *tuple, cols []millrace.Column) (*tupleConverter, error) {
	t := &tupleConverter{from: from, to: to, fields: make([]fieldConverter, len(cols))}
	for i := range cols {
		f := from.find(cols[i].ID, i)
		if f == nil {
			continue
		}
		v, err := newValueConverter(f.layout, to.fields[i].layout)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", cols[i].Name, err)
		}
		t.fields[i] = fieldConverter{valueConverter: v, from: f}
	}
	return t, nil
}

func newValueConverter(from, to *layout) (v valueConverter, err error) {
	if !readable(from.typ, to.typ) || narrower(from.typ, to.typ) {
		return v, errs.New(errs.SchemaChanged, "values stored as %v cannot be rewritten as %v", from.typ, to.typ)
	}
	switch to.typ.Kind {
	case millrace.Row:
		v.tuple, err = newTupleConverter(from.tuple, to.tuple, to.typ.Children)
	case millrace.Array:
		v.elem, err = newVectorConverter(from.elem, to.elem)
	case millrace.Map:
		if v.key, err = newVectorConverter(from.key, to.key); err == nil {
			v.elem, err = newVectorConverter(from.elem, to.elem)
		}
	case millrace.Double:
		if from.typ.Kind == millrace.Float {
			v.slot = func(dst, src []byte) {
				f := float64(math.Float32frombits(binary.LittleEndian.Uint32(src)))
				binary.LittleEndian.PutUint64(dst, float64Bits(f))
			}
		}
	default:
		if from.width < to.width { // integers
			v.slot = func(dst, src []byte) { putSigned(dst, signed(src)) }
		}
	}
	return v, err
}

func newVectorConverter(from, to *layout) (*vectorConverter, error) {
	v, err := newValueConverter(from, to)
	return &vectorConverter{valueConverter: v, from: from, to: to}, err
}

// append appends the tuple in src, rewritten.
func (t *tupleConverter) append(dst, src []byte) ([]byte, error) {
	if err := t.from.check(src); err != nil {
		return dst, err
	}
	dst, at := t.to.begin(dst)
	for j := range t.fields {
		f := &t.fields[j]
		if f.from == nil || src[f.from.nullAt]&f.from.nullBit != 0 {
			t.to.putNull(dst, at, j)
			continue
		}
		to := &t.to.fields[j]
		if to.width != 0 {
			f.putSlot(dst[at+to.at:at+to.at+to.width], src[f.from.at:f.from.at+f.from.width])
			continue
		}
		v, err := t.from.variable(src, f.from)
		if err != nil {
			return dst, err
		}
		if dst, err = f.appendVariable(dst, v); err != nil {
			return dst, err
		}
		t.to.putEnd(dst, at, to)
	}
	return dst, nil
}

func (v *valueConverter) putSlot(dst, src []byte) {
	if v.slot == nil {
		copy(dst, src)
		return
	}
	v.slot(dst, src)
}

// appendVariable appends a value of the variable section, rewritten.
func (v *valueConverter) appendVariable(dst, src []byte) ([]byte, error) {
	switch {
	case v.tuple != nil:
		return v.tuple.append(dst, src)
	case v.elem == nil:
		return append(dst, src...), nil
	}
	n, rest, err := count(src)
	if err != nil {
		return dst, err
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	if v.key != nil {
		if dst, rest, err = v.key.append(dst, rest, n); err != nil {
			return dst, err
		}
	}
	if dst, rest, err = v.elem.append(dst, rest, n); err != nil {
		return dst, err
	}
	return dst, trailing(rest)
}

// append appends the vector of n elements that src begins with, rewritten, and
// returns what follows it in src.
func (v *vectorConverter) append(dst, src []byte, n int) ([]byte, []byte, error) {
	bits := bitmapBytes(n)
	head := bits + n*v.from.slotBytes()
	if head > len(src) {
		return dst, nil, errs.New(errs.CorruptData, "a row's value of %d bytes claims %d elements", len(src), n)
	}
	slots, vars, from := src[bits:head], src[head:], 0
	dst = append(dst, src[:bits]...)
	toSlots := len(dst)
	dst = append(dst, make([]byte, n*v.to.slotBytes())...)
	toVars := len(dst)
	for k := range n {
		null := src[k/8]&(1<<(k%8)) != 0
		if w := v.from.width; w != 0 {
			if !null {
				v.putSlot(dst[toSlots+k*v.to.width:toSlots+(k+1)*v.to.width], slots[k*w:(k+1)*w])
			}
			continue
		}
		to := end(slots, k*endBytes)
		if to < from || to > len(vars) {
			return dst, nil, errs.New(errs.CorruptData, "a row's element lies at [%d, %d) of %d bytes", from, to, len(vars))
		}
		if !null {
			var err error
			if dst, err = v.appendVariable(dst, vars[from:to]); err != nil {
				return dst, nil, err
			}
		}
		from = to
		binary.LittleEndian.PutUint32(dst[toSlots+k*endBytes:], uint32(len(dst)-toVars))
	}
	return dst, vars[from:], nil
}
