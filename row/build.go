package row

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
)

// NewBuilders makes a builder for each column, in its canonical type. The caller
// releases them.
func NewBuilders(mem memory.Allocator, cols []millrace.Column) []array.Builder {
	out := make([]array.Builder, len(cols))
	for i, c := range cols {
		out[i] = array.NewBuilder(mem, ArrowType(c.Type))
	}
	return out
}

// BuildNulls makes an array of n NULLs of the canonical type of t. The caller
// releases it.
func BuildNulls(mem memory.Allocator, t millrace.DataType, n int) arrow.Array {
	c := newColumn(mem, t)
	for range n {
		c.appendNull()
	}
	d := c.finish()
	defer d.Release()
	return array.MakeFromData(d)
}
