package filter

import (
	"encoding/json"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Filter is a compiled filter. It is immutable and safe for concurrent use.
type Filter struct {
	cols []*millrace.Column // the named ones, in order of first mention
	root predicate
}

// Compile reads a filter text and checks it. cols are the columns that may be
// named, system columns among them; params are the JSON values for the question
// marks, in order; now is what CURRENT_TIMESTAMP stands for. Errors are
// invalid_filter, unknown_column and type_mismatch.
func Compile(text string, params []json.RawMessage, cols []millrace.Column, now time.Time) (*Filter, error) {
	e, want, err := parse(text)
	if err != nil {
		return nil, err
	}
	values, err := readParams(params, want)
	if err != nil {
		return nil, err
	}
	p := newPlanner(text, values, cols, now)
	root, err := p.condition(e, false)
	if err != nil {
		return nil, err
	}
	return &Filter{cols: p.used, root: root}, nil
}

// ColumnNames returns the columns that the text names, each once, in order of
// first mention.
func (f *Filter) ColumnNames() []string {
	names := make([]string, len(f.cols))
	for i, c := range f.cols {
		names[i] = c.Name
	}
	return names
}

// Select returns the numbers of the rows for which the filter is TRUE, rising.
// rec has at least the named columns, found by name, in the Arrow types of
// row.ArrowType; it is neither retained nor released. The answer is the caller's.
func (f *Filter) Select(rec arrow.RecordBatch) ([]int32, error) {
	b := batch{n: int(rec.NumRows()), arrays: make([]arrow.Array, len(f.cols))}
	for i, c := range f.cols {
		at := rec.Schema().FieldIndices(c.Name)
		if len(at) != 1 {
			return nil, errs.New(errs.Internal, "filter: the batch has %d columns %q", len(at), c.Name)
		}
		arr := rec.Column(at[0])
		if !heldAs(arr.DataType(), c.Type) {
			return nil, errs.New(errs.Internal, "filter: column %q is %s, but its batch holds %s", c.Name, c.Type, arr.DataType())
		}
		b.arrays[i] = arr
	}
	if b.n == 0 {
		return []int32{}, nil
	}
	return f.root.narrow(&b, nil), nil
}

// heldAs says whether values of type t are held in arrays of Arrow type dt.
func heldAs(dt arrow.DataType, t millrace.DataType) bool {
	switch dt := dt.(type) {
	case *arrow.Decimal128Type:
		return t.Kind == millrace.Decimal && int(dt.Scale) == t.Scale
	case *arrow.FixedSizeBinaryType:
		return t.Kind == millrace.Binary && dt.ByteWidth == t.Length
	case *arrow.TimestampType:
		return (t.Kind == millrace.Timestamp || t.Kind == millrace.TimestampLTZ) &&
			int64(dt.Unit.Multiplier()) == unitNanos(t)
	case *arrow.Time32Type:
		return t.Kind == millrace.Time && int64(dt.Unit.Multiplier()) == unitNanos(t)
	case *arrow.Time64Type:
		return t.Kind == millrace.Time && int64(dt.Unit.Multiplier()) == unitNanos(t)
	}
	return arrowIDs[dt.ID()] == t.Kind || dt.ID() == arrow.STRING && t.Kind == millrace.Char
}

var arrowIDs = map[arrow.Type]millrace.Kind{
	arrow.BOOL: millrace.Boolean, arrow.INT8: millrace.TinyInt, arrow.INT16: millrace.SmallInt,
	arrow.INT32: millrace.Int, arrow.INT64: millrace.BigInt, arrow.FLOAT32: millrace.Float,
	arrow.FLOAT64: millrace.Double, arrow.STRING: millrace.String, arrow.BINARY: millrace.Bytes,
	arrow.DATE32: millrace.Date, arrow.LIST: millrace.Array, arrow.MAP: millrace.Map, arrow.STRUCT: millrace.Row,
}
