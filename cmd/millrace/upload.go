package main

import (
	"bufio"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// errAnswered ends a body that nobody reads any more.
var errAnswered = errors.New("the server has answered")

func isAnswered(err error) bool {
	return errors.Is(err, errAnswered) || errors.Is(err, io.ErrClosedPipe)
}

func isBadRow(err error) bool {
	_, ok := errors.AsType[*badRow](err)
	return ok
}

// Bounds of an Arrow message that is sent; the server writes each as one.
const (
	messageRows  = 10_000
	messageBytes = 4 << 20
)

// picker says which columns of a file are loaded, by position, and their names.
type picker func(file []string) (positions []int, names []string, err error)

// arrowBody writes batches as an Arrow stream: the picked columns, cut into
// messages of bounded size.
type arrowBody struct {
	out       *bufio.Writer
	w         *ipc.Writer
	schema    *arrow.Schema
	positions []int
}

func newArrowBody(w io.Writer, file *arrow.Schema, pick picker) (*arrowBody, error) {
	names := make([]string, file.NumFields())
	for i, f := range file.Fields() {
		names[i] = f.Name
	}
	positions, picked, err := pick(names)
	if err != nil {
		return nil, err
	}
	fields := make([]arrow.Field, len(positions))
	for i, p := range positions {
		f := file.Field(p)
		fields[i] = arrow.Field{Name: picked[i], Type: f.Type, Nullable: true}
	}
	b := &arrowBody{out: bufio.NewWriterSize(w, 256<<10), schema: arrow.NewSchema(fields, nil), positions: positions}
	b.w = ipc.NewWriter(b.out, ipc.WithSchema(b.schema))
	return b, nil
}

// write sends a batch of the file.
func (b *arrowBody) write(rec arrow.RecordBatch) error {
	cols := make([]arrow.Array, len(b.positions))
	for i, p := range b.positions {
		cols[i] = rec.Column(p)
	}
	picked := array.NewRecordBatch(b.schema, cols, rec.NumRows())
	defer picked.Release()
	rows := rec.NumRows()
	step := int64(messageRows)
	size := int64(0)
	for _, c := range cols {
		size += int64(c.Data().SizeInBytes())
	}
	if size > messageBytes {
		step = max(1, min(step, rows*messageBytes/size))
	}
	for i := int64(0); i < rows; i += step {
		part := picked.NewSlice(i, min(i+step, rows))
		err := b.w.Write(part)
		part.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends the stream well.
func (b *arrowBody) close() error {
	if err := b.w.Close(); err != nil {
		return err
	}
	return b.out.Flush()
}
