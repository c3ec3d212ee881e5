package iceberg

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// align makes an array of a file one of the canonical type that is wanted, which the
// caller releases. Buffers that fit are shared.
type align func(arrow.ArrayData) (arrow.ArrayData, error)

// leavesOf are the leaves of a file's field that an array of the wanted type takes,
// nested fields matched by id.
func leavesOf(f *pqarrow.SchemaField, want millrace.DataType) ([]int, error) {
	switch {
	case want.Nested() && f.IsLeaf():
		return nil, mismatch(f.Field.Type, want)
	case want.Kind == millrace.Row:
		var out []int
		for i := range f.Children {
			child := &f.Children[i]
			w := slices.IndexFunc(want.Children, func(c millrace.Column) bool { return c.ID == fieldID(child.Field) })
			if w < 0 {
				out = append(out, mapLeaves(child)...)
				continue
			}
			leaves, err := leavesOf(child, want.Children[w].Type)
			if err != nil {
				return nil, err
			}
			out = append(out, leaves...)
		}
		if len(out) == 0 { // what says whether the ROW itself is NULL
			out = allLeaves(f)[:1]
		}
		return out, nil
	case want.Kind == millrace.Array && len(f.Children) == 1:
		return leavesOf(&f.Children[0], want.Children[0].Type)
	}
	return allLeaves(f), nil // arrow-go reads maps whole
}

// mapLeaves are the leaves of the maps in a field, which arrow-go reads whether they
// are asked for or not.
func mapLeaves(f *pqarrow.SchemaField) []int {
	if f.Field.Type.ID() == arrow.MAP {
		return allLeaves(f)
	}
	var out []int
	for i := range f.Children {
		out = append(out, mapLeaves(&f.Children[i])...)
	}
	return out
}

func allLeaves(f *pqarrow.SchemaField) []int {
	if f.IsLeaf() {
		return []int{f.ColIndex}
	}
	var out []int
	for i := range f.Children {
		out = append(out, allLeaves(&f.Children[i])...)
	}
	return out
}

// pruned is the type of the arrays that arrow-go makes of a field when it reads some
// leaves; what it says itself forgets about nested fields that are left out.
func pruned(f *pqarrow.SchemaField, leaves []int) arrow.DataType {
	switch t := f.Field.Type.(type) {
	case *arrow.StructType:
		var fields []arrow.Field
		for i := range f.Children {
			c := &f.Children[i]
			if !slices.ContainsFunc(allLeaves(c), func(l int) bool { return slices.Contains(leaves, l) }) {
				continue
			}
			field := *c.Field
			field.Type = pruned(c, leaves)
			fields = append(fields, field)
		}
		return arrow.StructOf(fields...)
	case *arrow.ListType:
		return arrow.ListOf(pruned(&f.Children[0], leaves))
	default:
		return t
	}
}

func mismatch(have arrow.DataType, want millrace.DataType) error {
	return fmt.Errorf("its values are %s, which cannot be read as %s", have, want)
}

// newAlign makes what turns arrays of a file's type into the wanted one.
func newAlign(have arrow.DataType, want millrace.DataType) (align, error) {
	dt := row.ArrowType(want)
	switch want.Kind {
	case millrace.Row:
		if st, ok := have.(*arrow.StructType); ok {
			return alignStruct(st, want, dt)
		}
	case millrace.Array:
		if lt, ok := have.(*arrow.ListType); ok {
			return alignVector(lt.Elem(), want.Children[0].Type, dt)
		}
	case millrace.Map:
		if mt, ok := have.(*arrow.MapType); ok {
			return alignMap(mt, want, dt)
		}
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt:
		if a := alignInts(have, dt); a != nil {
			return a, nil
		}
	case millrace.Double:
		if have.ID() == arrow.FLOAT32 {
			return convertTo(dt, func(v float32) (float64, bool) { return float64(v), true }), nil
		}
	case millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		if a := alignTimes(have, dt); a != nil {
			return a, nil
		}
	case millrace.Char, millrace.String, millrace.Bytes:
		if have.ID() == arrow.STRING || have.ID() == arrow.BINARY {
			return retype(dt), nil
		}
	case millrace.Decimal:
		if d, ok := have.(*arrow.Decimal128Type); ok && int(d.Scale) == want.Scale {
			return retype(dt), nil
		}
	default: // BOOLEAN, FLOAT, BINARY and DATE have one form.
	}
	if have.ID() == dt.ID() && arrow.TypeEqual(have, dt) {
		return retype(dt), nil
	}
	return nil, mismatch(have, want)
}

// retype gives the same values another type.
func retype(dt arrow.DataType) align {
	return func(d arrow.ArrayData) (arrow.ArrayData, error) {
		return array.NewData(dt, d.Len(), d.Buffers(), nil, d.NullN(), d.Offset()), nil
	}
}

// convertTo makes each value another one; a value that is not NULL must convert.
func convertTo[S, D arrow.FixedWidthType](dt arrow.DataType, one func(S) (D, bool)) align {
	return func(d arrow.ArrayData) (arrow.ArrayData, error) {
		n := d.Offset() + d.Len()
		out := make([]D, n)
		valid := d.Buffers()[0]
		for i, v := range arrow.GetValues[S](d, 1) {
			i += d.Offset()
			var ok bool
			out[i], ok = one(v)
			if !ok && (valid == nil || bitutil.BitIsSet(valid.Bytes(), i)) {
				return nil, fmt.Errorf("the value %v cannot be a %s", v, dt)
			}
		}
		bufs := []*memory.Buffer{valid, memory.NewBufferBytes(arrow.GetBytes(out))}
		return array.NewData(dt, d.Len(), bufs, nil, d.NullN(), d.Offset()), nil
	}
}

// alignInts is for integers, narrower ones of ours in INT columns of the lake, and
// wider ones than the file has; nil when have is no integer, or is what is wanted.
func alignInts(have, dt arrow.DataType) align {
	switch have.ID() {
	case dt.ID():
		return nil
	case arrow.INT8:
		return intsFrom[int8](dt)
	case arrow.INT16:
		return intsFrom[int16](dt)
	case arrow.INT32:
		return intsFrom[int32](dt)
	case arrow.INT64:
		return intsFrom[int64](dt)
	default:
		return nil
	}
}

type signed interface{ int8 | int16 | int32 | int64 }

func intsFrom[S signed](dt arrow.DataType) align {
	switch dt.ID() {
	case arrow.INT8:
		return convertTo(dt, cast[S, int8])
	case arrow.INT16:
		return convertTo(dt, cast[S, int16])
	case arrow.INT32:
		return convertTo(dt, cast[S, int32])
	default:
		return convertTo(dt, cast[S, int64])
	}
}

func cast[S, D signed](v S) (D, bool) { return D(v), int64(D(v)) == int64(v) }

// alignTimes is for times and timestamps of another unit; nil when have is neither.
// What a unit cannot hold is cut off downwards, as everywhere.
func alignTimes(have, dt arrow.DataType) align {
	from, to := perSecond(have), perSecond(dt)
	if from == 0 || (have.ID() == arrow.TIMESTAMP) != (dt.ID() == arrow.TIMESTAMP) {
		return nil
	}
	change := func(v int64) (int64, bool) { return v, true }
	switch {
	case from > to:
		by := from / to
		change = func(v int64) (int64, bool) { return floorDiv(v, by), true }
	case from < to:
		by := to / from
		change = func(v int64) (int64, bool) { return v * by, v*by/by == v }
	case have.ID() == dt.ID():
		return retype(dt)
	}
	switch {
	case have.ID() == arrow.TIME32 && dt.ID() == arrow.TIME32:
		return convertTo(dt, func(v int32) (int32, bool) { w, ok := change(int64(v)); return int32(w), ok && int64(int32(w)) == w })
	case have.ID() == arrow.TIME32:
		return convertTo(dt, func(v int32) (int64, bool) { return change(int64(v)) })
	case dt.ID() == arrow.TIME32:
		return convertTo(dt, func(v int64) (int32, bool) { w, ok := change(v); return int32(w), ok && int64(int32(w)) == w })
	}
	return convertTo(dt, change)
}

// perSecond is how many units of a time or timestamp are a second; 0: it is neither.
func perSecond(dt arrow.DataType) int64 {
	t, ok := dt.(arrow.TemporalWithUnit)
	if !ok || dt.ID() == arrow.DURATION {
		return 0
	}
	switch t.TimeUnit() {
	case arrow.Second:
		return 1
	case arrow.Millisecond:
		return 1e3
	case arrow.Microsecond:
		return 1e6
	default: // arrow.Nanosecond
		return 1e9
	}
}

func floorDiv(v, by int64) int64 {
	q := v / by
	if v%by < 0 {
		q--
	}
	return q
}

// alignVector is for lists: dt around aligned elements.
func alignVector(have arrow.DataType, want millrace.DataType, dt arrow.DataType) (align, error) {
	elem, err := newAlign(have, want)
	if err != nil {
		return nil, err
	}
	return func(d arrow.ArrayData) (arrow.ArrayData, error) {
		child, err := elem(d.Children()[0])
		if err != nil {
			return nil, err
		}
		defer child.Release()
		return array.NewData(dt, d.Len(), d.Buffers(), []arrow.ArrayData{child}, d.NullN(), d.Offset()), nil
	}, nil
}

// alignMap is for maps, whose entries are structs of two fields by position.
func alignMap(have *arrow.MapType, want millrace.DataType, dt arrow.DataType) (align, error) {
	var both [2]align
	for i, t := range []arrow.DataType{have.KeyType(), have.ItemType()} {
		var err error
		if both[i], err = newAlign(t, want.Children[i].Type); err != nil {
			return nil, err
		}
	}
	entries := dt.(*arrow.MapType).Elem()
	return func(d arrow.ArrayData) (arrow.ArrayData, error) {
		pairs := d.Children()[0]
		children := make([]arrow.ArrayData, 2)
		defer releaseAll(children)
		for i := range children {
			var err error
			if children[i], err = both[i](pairs.Children()[i]); err != nil {
				return nil, err
			}
		}
		pair := array.NewData(entries, pairs.Len(), []*memory.Buffer{nil}, children, 0, pairs.Offset())
		defer pair.Release()
		return array.NewData(dt, d.Len(), d.Buffers(), []arrow.ArrayData{pair}, d.NullN(), d.Offset()), nil
	}, nil
}

// alignStruct is for rows: fields by id, NULL for those that the file does not have.
func alignStruct(have *arrow.StructType, want millrace.DataType, dt arrow.DataType) (align, error) {
	from, fields := make([]int, len(want.Children)), make([]align, len(want.Children))
	for i, c := range want.Children {
		from[i] = slices.IndexFunc(have.Fields(), func(f arrow.Field) bool { return fieldID(&f) == c.ID })
		if from[i] < 0 {
			if !c.Nullable {
				return nil, fmt.Errorf("it lacks field %q, which is NOT NULL", c.Name)
			}
			continue
		}
		var err error
		if fields[i], err = newAlign(have.Field(from[i]).Type, c.Type); err != nil {
			return nil, fmt.Errorf("field %q: %w", c.Name, err)
		}
	}
	return func(d arrow.ArrayData) (arrow.ArrayData, error) {
		children := make([]arrow.ArrayData, len(fields))
		defer releaseAll(children)
		for i, field := range fields {
			if field == nil {
				children[i] = nulls(want.Children[i].Type, d.Offset()+d.Len())
				continue
			}
			var err error
			if children[i], err = field(d.Children()[from[i]]); err != nil {
				return nil, err
			}
		}
		return array.NewData(dt, d.Len(), d.Buffers()[:1], children, d.NullN(), d.Offset()), nil
	}, nil
}

// nulls are n values NULL, which the caller releases.
func nulls(t millrace.DataType, n int) arrow.ArrayData {
	arr := row.BuildNulls(memory.DefaultAllocator, t, n)
	defer arr.Release()
	arr.Data().Retain()
	return arr.Data()
}

func releaseAll(data []arrow.ArrayData) {
	for _, d := range data {
		if d != nil {
			d.Release()
		}
	}
}
