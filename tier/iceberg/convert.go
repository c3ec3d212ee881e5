package iceberg

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// toLake gives the data of a column in the Arrow type that Iceberg's is written as:
// integers of 32 bits at least, times and timestamps in microseconds. Buffers are shared
// where the type is the same. The caller releases the data.
func toLake(in arrow.ArrayData, to arrow.DataType) (arrow.ArrayData, error) {
	switch to := to.(type) {
	case *arrow.Int32Type:
		switch in.DataType().ID() {
		case arrow.INT8:
			return convert(in, to, func(v int8) int32 { return int32(v) }), nil
		case arrow.INT16:
			return convert(in, to, func(v int16) int32 { return int32(v) }), nil
		default: // as it is
		}
	case *arrow.Time64Type:
		if in.DataType().ID() == arrow.TIME32 {
			return convert(in, to, func(v arrow.Time32) arrow.Time64 { return arrow.Time64(v) * 1000 }), nil
		}
	case *arrow.TimestampType:
		if t, ok := in.DataType().(*arrow.TimestampType); ok && t.Unit < to.Unit {
			n := arrow.Timestamp(t.Unit.Multiplier() / to.Unit.Multiplier())
			return convert(in, to, func(v arrow.Timestamp) arrow.Timestamp { return v * n }), nil
		}
	case arrow.NestedType:
		return nestedToLake(in, to)
	}
	if !arrow.TypeEqual(in.DataType(), to) {
		return nil, fmt.Errorf("a column of Arrow type %s cannot be written as %s", in.DataType(), to)
	}
	return array.NewData(to, in.Len(), in.Buffers(), nil, in.NullN(), in.Offset()), nil
}

// nestedToLake converts what is in lists, maps and structs.
func nestedToLake(in arrow.ArrayData, to arrow.NestedType) (arrow.ArrayData, error) {
	if in.DataType().ID() != to.ID() {
		return nil, fmt.Errorf("a column of Arrow type %s cannot be written as %s", in.DataType(), to)
	}
	fields := to.Fields()
	children := make([]arrow.ArrayData, 0, len(fields))
	defer func() {
		for _, c := range children {
			c.Release()
		}
	}()
	if len(in.Children()) != len(fields) {
		return nil, fmt.Errorf("a column of Arrow type %s cannot be written as %s", in.DataType(), to)
	}
	for i, c := range in.Children() {
		conv, err := toLake(c, fields[i].Type)
		if err != nil {
			return nil, err
		}
		children = append(children, conv)
	}
	return array.NewData(to, in.Len(), in.Buffers(), children, in.NullN(), in.Offset()), nil
}

// convert makes the values of a column of fixed width anew; NULLs stay where they are.
func convert[From, To arrow.FixedWidthType](in arrow.ArrayData, to arrow.DataType, f func(From) To) arrow.ArrayData {
	out := make([]To, in.Offset()+in.Len())
	for i, v := range arrow.GetValues[From](in, 1) {
		out[in.Offset()+i] = f(v)
	}
	values := memory.NewBufferBytes(arrow.GetBytes(out))
	defer values.Release()
	return array.NewData(to, in.Len(), []*memory.Buffer{in.Buffers()[0], values}, nil, in.NullN(), in.Offset())
}
