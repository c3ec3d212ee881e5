package arrowrow

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// cast makes values of one column or nested field of an Arrow type. What it does is
// settled once for a stream.
type cast struct {
	column millrace.Column
	out    arrow.DataType
	dict   bool // the values come as a dictionary
	do     kernel

	children []*cast
	from     []int // of a ROW: for each child its field in the struct, or -1
}

// kernel does the work of a cast. The arrays it gets have no offset; what it
// returns is the caller's to release. It reports values at fault and goes on.
type kernel func(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error)

// newCast finds the cast from an Arrow type to a column's, or says that there is
// none.
func newCast(in arrow.DataType, column millrace.Column, path string) (*cast, *errs.FieldError) {
	c := &cast{column: column, out: row.ArrowType(column.Type)}
	if d, ok := in.(*arrow.DictionaryType); ok {
		c.dict, in = true, d.ValueType
	}
	if in.ID() == arrow.NULL {
		c.do = castNull
		return c, nil
	}
	var fault *errs.FieldError
	switch column.Type.Kind {
	case millrace.Boolean:
		if in.ID() == arrow.BOOL {
			c.do = castSame
		}
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt:
		c.do = intKernel(in)
	case millrace.Float, millrace.Double:
		if c.do = intKernel(in); c.do == nil {
			c.do = floatKernel(in, c.out)
		}
	case millrace.Decimal:
		if c.do = intKernel(in); c.do == nil {
			c.do = decimalKernel(in)
		}
	case millrace.Char, millrace.String:
		c.do = textKernel(in)
	case millrace.Binary, millrace.Bytes:
		c.do = bytesKernel(in, c.out)
	case millrace.Date, millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		c.do = timeKernel(in, column.Type)
	case millrace.Array:
		fault = c.arrayCast(in, path)
	case millrace.Map:
		fault = c.mapCast(in, path)
	case millrace.Row:
		fault = c.rowCast(in, path)
	}
	if fault == nil && c.do == nil {
		fault = &errs.FieldError{Field: path, Code: errs.TypeMismatch, Message: fmt.Sprintf("Arrow type %s cannot be cast to %s", clip(in.String()), clip(column.Type.String()))}
	}
	return c, fault
}

// run casts one array. NULL is judged here, whatever the type.
func (c *cast) run(x *run, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	if in.Offset() != 0 {
		panic("arrowrow: an array with an offset, which no reader of this package makes")
	}
	if c.dict {
		plain, err := x.undict(in)
		if err != nil {
			return nil, err
		}
		defer plain.Release()
		in = plain
	}
	if !c.column.Nullable && in.NullN() > 0 {
		for i := range in.Len() {
			if isNull(in, i) && !at.exempts(i) && !x.counted(at, i) {
				x.fail(at, i, errs.NullNotAllowed, "NULL where the type is NOT NULL")
			}
		}
	}
	return c.do(x, c, in, at)
}

// castNull makes NULLs of an array that has nothing else.
func castNull(x *run, c *cast, in arrow.ArrayData, _ *place) (arrow.ArrayData, error) {
	return x.nulls(in.Len(), c.out)
}

// castSame takes values as they are.
func castSame(_ *run, c *cast, in arrow.ArrayData, _ *place) (arrow.ArrayData, error) {
	return array.NewData(c.out, in.Len(), in.Buffers(), nil, in.NullN(), 0), nil
}

// fresh is an array of new values with the NULLs of in.
func (c *cast) fresh(in arrow.ArrayData, buffers ...[]byte) arrow.ArrayData {
	out := []*memory.Buffer{in.Buffers()[0]}
	for _, b := range buffers {
		out = append(out, memory.NewBufferBytes(b))
	}
	return array.NewData(c.out, in.Len(), out, nil, in.NullN(), 0)
}

// values are the values of a fixed-width array.
func values[T arrow.FixedWidthType](in arrow.ArrayData) []T {
	return arrow.GetData[T](in.Buffers()[1].Bytes())[:in.Len()]
}
