package jsonrow

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
)

// EncodeOptions say how values are written.
type EncodeOptions struct {
	// Int64AsString writes every BIGINT as a string, for readers whose numbers are
	// floats.
	Int64AsString bool

	plusZero bool // write -0 as 0
}

// Encoder writes rows of given columns as JSON. It does not allocate once dst has
// room.
type Encoder struct {
	cols    []*writer
	strings [][]byte // `"name":` of each column
}

// NewEncoder returns an encoder of rows of these columns, system columns
// included.
func NewEncoder(cols []millrace.Column, opts EncodeOptions) *Encoder {
	e := &Encoder{}
	for _, c := range cols {
		e.cols = append(e.cols, newWriter(c, opts))
		e.strings = append(e.strings, append(appendText(nil, []byte(c.Name)), ':'))
	}
	return e
}

// Bind makes rec the record whose rows are written. Its columns are the encoder's,
// in order, in the types of row.ArrowType; it must stay alive while rows are
// written.
func (e *Encoder) Bind(rec arrow.RecordBatch) {
	if int(rec.NumCols()) != len(e.cols) {
		panic(fmt.Sprintf("jsonrow: a record of %d columns for an encoder of %d", rec.NumCols(), len(e.cols)))
	}
	for i, w := range e.cols {
		w.bind(rec.Column(i).Data(), 0)
	}
}

// AppendObject appends row i as an object, fields in column order.
func (e *Encoder) AppendObject(dst []byte, i int) []byte {
	dst = append(dst, '{')
	for j, w := range e.cols {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, e.strings[j]...)
		dst = w.append(dst, i)
	}
	return append(dst, '}')
}

// AppendArray appends row i as an array, in column order.
func (e *Encoder) AppendArray(dst []byte, i int) []byte {
	dst = append(dst, '[')
	for j, w := range e.cols {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = w.append(dst, i)
	}
	return append(dst, ']')
}

// AppendValue appends the value of one column of row i.
func (e *Encoder) AppendValue(dst []byte, column, i int) []byte {
	return e.cols[column].append(dst, i)
}

// AppendObject appends one row of rec as an object. For more than a few rows an
// Encoder costs less.
func AppendObject(dst []byte, cols []millrace.Column, rec arrow.RecordBatch, i int, opts EncodeOptions) []byte {
	e := NewEncoder(cols, opts)
	e.Bind(rec)
	return e.AppendObject(dst, i)
}

// AppendValue appends value i of arr, which is of type t. For more than a few
// values an Encoder costs less.
func AppendValue(dst []byte, t millrace.DataType, arr arrow.Array, i int, opts EncodeOptions) []byte {
	w := newWriter(millrace.Column{Type: t}, opts)
	w.bind(arr.Data(), 0)
	return w.append(dst, i)
}
