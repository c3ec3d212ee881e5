package sql

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// Result is what a statement gives: rows, or the number of rows it changed.
type Result struct {
	// Columns are those of the rows; nil when the statement gives none. Names are
	// distinct.
	Columns []millrace.Column
	// Affected is how many rows were written or deleted.
	Affected int64
	// Replayed says that all of them had been before, under the same key.
	Replayed bool

	schema *arrow.Schema
	in     batches
}

// batches are rows on their way: records of the same columns, one after the other.
type batches interface {
	// next is the next record, io.EOF at the end. The caller releases it.
	next(ctx context.Context) (arrow.RecordBatch, error)
	// stats say what reading cost so far.
	stats() router.Stats
	close() error
}

// done is the result of a statement that has nothing to tell.
func done() *Result { return &Result{} }

// rows is the result that hands out in.
func rows(cols []millrace.Column, in batches) *Result {
	cols = slices.Clone(cols)
	for i := range cols {
		cols[i].ID = max(cols[i].ID, 0) // system columns have none that clients know
	}
	return &Result{Columns: cols, schema: row.ArrowSchema(cols), in: in}
}

// unnumbered are columns that are none of a table.
func unnumbered(cols []millrace.Column) []millrace.Column {
	cols = slices.Clone(cols)
	for i := range cols {
		cols[i].ID = 0
	}
	return cols
}

// Schema is the Arrow schema of the rows.
func (r *Result) Schema() *arrow.Schema { return r.schema }

// Next is the next batch of rows, in Columns; io.EOF at the end. The caller
// releases it.
func (r *Result) Next(ctx context.Context) (arrow.RecordBatch, error) {
	if r.in == nil {
		return nil, io.EOF
	}
	rec, err := r.in.next(ctx)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return array.NewRecordBatch(r.schema, rec.Columns(), rec.NumRows()), nil
}

// Stats say what reading cost so far.
func (r *Result) Stats() router.Stats {
	if r.in == nil {
		return router.Stats{}
	}
	return r.in.stats()
}

// Close ends the reading.
func (r *Result) Close() error {
	if r.in == nil {
		return nil
	}
	return r.in.close()
}

// scan are the rows of a plan.
type scan struct {
	rd   *router.Reader
	last *router.Chunk // of which the rows were given; its memory counts until the next
}

func (s *scan) next(ctx context.Context) (arrow.RecordBatch, error) {
	s.done()
	c, err := s.rd.Next(ctx, 0)
	if err != nil {
		return nil, err
	}
	s.last = c
	return c.Record()
}

func (s *scan) done() {
	if s.last != nil {
		s.last.Release()
		s.last = nil
	}
}

func (s *scan) stats() router.Stats { return *s.rd.Stats() }

func (s *scan) close() error {
	s.done()
	return s.rd.Close()
}

// held is one record in memory, and what it cost to read.
type held struct {
	rec  arrow.RecordBatch // nil when it was given
	cost router.Stats
	from int64 // the next row
}

// heldRows is how many rows of a held record are given at once.
const heldRows = 8192

func (h *held) next(ctx context.Context) (arrow.RecordBatch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h.rec == nil || h.from >= h.rec.NumRows() {
		return nil, io.EOF
	}
	to := min(h.from+heldRows, h.rec.NumRows())
	rec := h.rec.NewSlice(h.from, to)
	h.from = to
	return rec, nil
}

func (h *held) stats() router.Stats { return h.cost }

func (h *held) close() error {
	if h.rec != nil {
		h.rec.Release()
		h.rec = nil
	}
	return nil
}

// built is a result whose rows are built here; fill appends to a builder a column.
func built(cols []millrace.Column, fill func(b []array.Builder)) *Result {
	bs := row.NewBuilders(memory.DefaultAllocator, cols)
	fill(bs)
	arrs := make([]arrow.Array, len(bs))
	for i, b := range bs {
		arrs[i] = b.NewArray()
		b.Release()
	}
	rec := array.NewRecordBatch(row.ArrowSchema(cols), arrs, int64(arrs[0].Len()))
	for _, a := range arrs {
		a.Release()
	}
	return rows(cols, &held{rec: rec})
}

// projected are some columns of other batches, in another order.
type projected struct {
	batches
	columns []int
}

func (p *projected) next(ctx context.Context) (arrow.RecordBatch, error) {
	rec, err := p.batches.next(ctx)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return row.Project(rec, p.columns), nil
}

// limited are the first rows of other batches.
type limited struct {
	batches
	left int64
}

func (l *limited) next(ctx context.Context) (arrow.RecordBatch, error) {
	if l.left == 0 {
		return nil, io.EOF
	}
	rec, err := l.batches.next(ctx)
	if err != nil {
		return nil, err
	}
	if rec.NumRows() > l.left {
		defer rec.Release()
		rec = rec.NewSlice(0, l.left)
	}
	l.left -= rec.NumRows()
	return rec, nil
}

// each hands every batch to take, and closes them. What is in memory comes whole.
func each(ctx context.Context, in batches, take func(arrow.RecordBatch) error) (cost router.Stats, err error) {
	defer func() {
		cost = in.stats()
		err = errors.Join(err, in.close())
	}()
	if h, ok := in.(*held); ok {
		if h.rec == nil {
			return cost, nil
		}
		return cost, take(h.rec)
	}
	for {
		rec, err := in.next(ctx)
		if errors.Is(err, io.EOF) {
			return cost, nil
		}
		if err != nil {
			return cost, err
		}
		err = take(rec)
		rec.Release()
		if err != nil {
			return cost, err
		}
	}
}
