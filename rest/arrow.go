package rest

import (
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/arrowrow"
	"github.com/millrace/millrace/storage/segment"
)

// arrow applies an Arrow stream, one message a chunk.
func (wr *writing) arrow() error {
	b, err := body(wr.r)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // read to its end, or given up
	var messages io.Reader = b
	if wr.hash != nil { // the reader takes no byte before its message's turn
		messages = io.TeeReader(b, wr.hash)
	}
	in, err := arrowrow.NewReader(messages, arrowrow.Limits{})
	if err != nil {
		return bodyError(err)
	}
	plan, err := wr.arrowPlan(in)
	if err != nil {
		return err
	}
	first := int64(0)
	for {
		rec, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		n := rec.NumRows()
		err = wr.batch(plan, rec, first)
		rec.Release()
		if err != nil {
			return err
		}
		first += n
		doneWith(wr.r)
		if err := wr.waitWrite(); err != nil {
			return err
		}
	}
}

// batch applies one record batch of a stream: all of its rows or none, or with
// on_error=continue the good ones.
func (wr *writing) batch(plan *arrowrow.Plan, rec arrow.RecordBatch, first int64) error {
	var rows row.Rows
	var err error
	if wr.goOn {
		var bad arrowrow.Rejected
		rows, bad, err = plan.Sift(rec)
		wr.answer.Rejected += bad.Rows
		wr.answer.Errors = appendFields(wr.answer.Errors, bad.Errors)
	} else {
		rows, err = plan.Conform(rec)
	}
	if err != nil {
		return err
	}
	defer rows.Release()
	if err := wr.rowsRoom(segment.RecordBytes(rows.Record)); err != nil {
		return err
	}
	return wr.withDeadline(func() error { return wr.write(rows, first) })
}

// arrowPlan matches the stream's columns with the table's.
func (wr *writing) arrowPlan(in *arrowrow.Reader) (*arrowrow.Plan, error) {
	t := wr.table
	cols := t.Schema.Columns
	if wr.columns != nil {
		if wr.mode == router.Append {
			return nil, errs.New(errs.WrongTableKind, "table %s is a log table: its rows are whole, columns cannot be named", t.Path)
		}
		var err error
		if cols, err = namedColumns(t, wr.columns); err != nil {
			return nil, err
		}
	}
	p, err := arrowrow.NewPlan(in.Schema(), cols, arrowrow.Options{
		Key: t.Names(t.PrimaryKey), Partial: wr.columns != nil && wr.mode == router.Upsert, KeyOnly: wr.mode == router.Delete,
		AllowChangeType: wr.mode == router.Upsert && wr.columns == nil,
	})
	if err == nil && wr.columns != nil && len(p.Columns()) != len(cols) {
		return nil, errs.New(errs.MissingColumn, "the stream has %d of the %d columns that the request names", len(p.Columns()), len(cols))
	}
	return p, err
}
