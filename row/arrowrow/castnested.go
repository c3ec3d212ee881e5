package arrowrow

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// listLayout is the layout of a list type, and its element type.
func listLayout(in arrow.DataType) (elem arrow.DataType, ok bool) {
	switch t := in.(type) {
	case *arrow.ListType:
		return t.Elem(), true
	case *arrow.LargeListType:
		return t.Elem(), true
	case *arrow.FixedSizeListType:
		return t.Elem(), true
	case *arrow.ListViewType:
		return t.Elem(), true
	case *arrow.LargeListViewType:
		return t.Elem(), true
	}
	return nil, false
}

func (c *cast) arrayCast(in arrow.DataType, path string) *errs.FieldError {
	elem, ok := listLayout(in)
	if !ok {
		return nil
	}
	child, fault := newCast(elem, c.column.Type.Children[0], path+"[]")
	c.children, c.do = []*cast{child}, castArray
	return fault
}

// mapCast takes maps, and lists of structs of "key" and "value", which is how those
// write a map who have none.
func (c *cast) mapCast(in arrow.DataType, path string) *errs.FieldError {
	entries, ok := listLayout(in)
	names := []string{millrace.KeyName, millrace.ValueName}
	if m, isMap := in.(*arrow.MapType); isMap {
		entries, ok = m.Elem(), true
		names = []string{m.Elem().(*arrow.StructType).Field(0).Name, m.Elem().(*arrow.StructType).Field(1).Name}
	}
	s, isStruct := entries.(*arrow.StructType)
	if !ok || !isStruct || s.NumFields() != 2 {
		return nil
	}
	// Entries are cast like a ROW of the two, which may not be NULL.
	fields := slices.Clone(c.column.Type.Children)
	for i := range fields {
		fields[i].Name = names[i]
		if s.Field(i).Name != names[i] && s.Field(1-i).Name != names[i] {
			return nil
		}
	}
	child, fault := newCast(s, millrace.Column{Type: millrace.DataType{Kind: millrace.Row, Children: fields}}, path+"[]")
	if child != nil {
		child.out = c.out.(*arrow.MapType).Elem()
	}
	c.children, c.do = []*cast{child}, castMap
	return fault
}

// rowCast matches fields by name, as a plan does columns.
func (c *cast) rowCast(in arrow.DataType, path string) *errs.FieldError {
	s, ok := in.(*arrow.StructType)
	if !ok {
		return nil
	}
	known := 0
	for _, f := range c.column.Type.Children {
		i, ok := s.FieldIdx(f.Name)
		if !ok {
			if !f.Nullable {
				return &errs.FieldError{Field: path + "." + f.Name, Code: errs.MissingColumn, Message: "the field is missing, and it is NOT NULL"}
			}
			c.children, c.from = append(c.children, nil), append(c.from, -1)
			continue
		}
		known++
		child, fault := newCast(s.Field(i).Type, f, path+"."+f.Name)
		if fault != nil {
			return fault
		}
		c.children, c.from = append(c.children, child), append(c.from, i)
	}
	if known < s.NumFields() {
		for _, f := range s.Fields() {
			if !slices.ContainsFunc(c.column.Type.Children, func(o millrace.Column) bool { return o.Name == f.Name }) {
				return &errs.FieldError{Field: path + "." + clip(f.Name), Code: errs.UnknownField, Message: "no such field"}
			}
		}
	}
	c.do = castRow
	return nil
}

func castRow(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	children := make([]arrow.ArrayData, len(c.children))
	defer release(children)
	for i, child := range c.children {
		var err error
		f := c.column.Type.Children[i]
		if c.from[i] < 0 {
			children[i], err = x.nulls(in.Len(), c.out.(*arrow.StructType).Field(i).Type)
		} else {
			children[i], err = child.run(x, in.Children()[c.from[i]], at.field(f.Name, in))
		}
		if err != nil {
			return nil, err
		}
	}
	return array.NewData(c.out, in.Len(), []*memory.Buffer{in.Buffers()[0]}, children, in.NullN(), 0), nil
}

func release(data []arrow.ArrayData) {
	for _, d := range data {
		if d != nil {
			d.Release()
		}
	}
}

func castArray(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	return x.lists(c, in, at)
}

// castMap casts lists of entries, and looks for keys that stand twice.
func castMap(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	out, err := x.lists(c, in, at)
	if err != nil {
		return nil, err
	}
	entries := out.Children()[0]
	if entries.NullN() > 0 || entries.Children()[0].NullN() > 0 {
		with := out
		out = c.withoutNulls(with)
		with.Release()
	}
	keys := newKeys(c.column.Type.Children[0].Type, out.Children()[0].Children()[0])
	offsets := arrow.GetData[int32](out.Buffers()[1].Bytes())
	for i := range out.Len() {
		if !isNull(out, i) && keys.duplicate(int(offsets[i]), int(offsets[i+1])) {
			x.fail(at, i, errs.DuplicateField, "two entries have the same key")
		}
	}
	return out, nil
}

// lists casts lists of every layout to one with 32-bit offsets.
func (x *run) lists(c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	n := in.Len()
	var offsets []int32
	var buffer *memory.Buffer
	var err error
	switch t := in.DataType().(type) {
	case *arrow.ListType, *arrow.MapType:
		buffer = in.Buffers()[1]
		offsets = arrow.GetData[int32](buffer.Bytes())[:n+1]
	case *arrow.LargeListType:
		var b []byte
		if b, offsets, err = room[int32](x, n+1); err == nil {
			for i, o := range arrow.GetData[int64](in.Buffers()[1].Bytes())[:n+1] {
				offsets[i] = int32(o)
			}
		}
		buffer = memory.NewBufferBytes(b)
	case *arrow.FixedSizeListType:
		var b []byte
		if b, offsets, err = room[int32](x, n+1); err == nil {
			for i := range offsets {
				offsets[i] = int32(i) * t.Len()
			}
		}
		buffer = memory.NewBufferBytes(b)
	case *arrow.ListViewType:
		return listViews[int32](x, c, in, at)
	case *arrow.LargeListViewType:
		return listViews[int64](x, c, in, at)
	default:
		panic(fmt.Sprintf("arrowrow: %s is no list", in.DataType().Name()))
	}
	if err != nil {
		return nil, err
	}
	child, err := c.children[0].run(x, in.Children()[0], at.elements(offsets, in))
	if err != nil {
		return nil, err
	}
	defer child.Release()
	return array.NewData(c.out, n, []*memory.Buffer{in.Buffers()[0], buffer}, []arrow.ArrayData{child}, in.NullN(), 0), nil
}
