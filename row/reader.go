package row

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// maxArrowBytes is the most memory that one row may take as columns. A few bytes
// of a row can stand for much more in Arrow, where a NULL takes its width: one
// byte of an ARRAY<BINARY(1048576)> can name eight NULLs of a MiB. A row beyond
// this would not fit into any message to a client either.
const maxArrowBytes = 64 << 20

// Reader turns compact rows, of any versions of one table's schema, into a
// record of the columns that are wanted. Columns are matched by id; one that a
// row's schema lacks is NULL; a value of a narrower type (INT, FLOAT, a DECIMAL
// of lower precision) is widened.
//
// A Reader belongs to one goroutine. Its memory goes with the records it makes;
// Close gives back what is in none.
type Reader struct {
	schemas func(millrace.SchemaID) *millrace.Schema
	want    []millrace.Column
	schema  *arrow.Schema
	cols    []column
	width   int // Arrow bytes of a row without what has any length
	plans   map[millrace.SchemaID]*tupleDecoder
	// The plan of the last row, since neighbours mostly have one version.
	lastID millrace.SchemaID
	last   *tupleDecoder
	budget int // of maxArrowBytes, what the row being read has left
	rows   int
	bytes  int
	input  int // bytes of rows appended: bounds every int32 offset
}

// NewReader makes a reader of the columns want. schemas gives the versions of
// the table's schema, nil for one that is not known; it is asked once for each.
// Arrow memory comes from mem.
// REQUIRES: the columns have ids.
func NewReader(mem memory.Allocator, schemas func(millrace.SchemaID) *millrace.Schema, want []millrace.Column) *Reader {
	r := &Reader{
		schemas: schemas, want: want, schema: ArrowSchema(want), cols: make([]column, len(want)),
		plans: make(map[millrace.SchemaID]*tupleDecoder),
	}
	for i, c := range want {
		if c.ID == 0 {
			panic(fmt.Sprintf("row: column %q has no id", c.Name))
		}
		r.cols[i] = newColumn(mem, c.Type)
		r.width = min(r.width+arrowBytes(c.Type), maxArrowBytes+1)
	}
	return r
}

// Append adds a row, which is not kept. On an error the Reader is empty: the rows
// since the last Record are lost too. Bytes that are not a row are
// errs.CorruptData; a stored column that cannot be read as the type wanted is
// errs.SchemaChanged; a row too large for Arrow is errs.TooLarge.
func (r *Reader) Append(row []byte) error {
	if err := r.append(row); err != nil {
		r.Close()
		return err
	}
	return nil
}

func (r *Reader) append(row []byte) error {
	id := SchemaIDOf(row)
	if id != r.lastID || r.last == nil {
		if err := r.plan(id, row); err != nil {
			return err
		}
	}
	if r.input += len(row); r.input > math.MaxInt32 {
		return errs.New(errs.TooLarge, "a batch of more than 2 GiB of rows")
	}
	if r.budget = maxArrowBytes - r.width; r.budget < 0 {
		return tooWide()
	}
	n, err := r.last.decode(row[headerBytes:])
	if err != nil {
		return err
	}
	r.rows++
	r.bytes += n + maxArrowBytes - r.budget
	return nil
}

// plan makes or finds the plan for rows of schema id.
func (r *Reader) plan(id millrace.SchemaID, row []byte) error {
	if id == 0 {
		if len(row) >= headerBytes && row[3] != formatV1 {
			return errs.New(errs.CorruptData, "a row of format %d, written by a newer release", row[3])
		}
		return errs.New(errs.CorruptData, "a row of %d bytes without a schema", len(row))
	}
	p, ok := r.plans[id]
	if !ok {
		s := r.schemas(id)
		if s == nil {
			return errs.New(errs.CorruptData, "a row of schema %d, which the table never had", id)
		}
		var err error
		if p, err = newTupleDecoder(newTuple(s.Columns), r.want, r.cols, &r.budget); err != nil {
			return err
		}
		r.plans[id] = p
	}
	r.lastID, r.last = id, p
	return nil
}

// AppendNull adds a row of NULLs: the answer for a key without a row.
func (r *Reader) AppendNull() {
	for _, c := range r.cols {
		c.appendNull()
	}
	r.rows++
	r.bytes += r.width
}

// Len is the number of rows since the last Record.
func (r *Reader) Len() int { return r.rows }

// Bytes is about the size of the Arrow memory of the rows since the last Record.
func (r *Reader) Bytes() int { return r.bytes }

// Record makes a record of the rows so far, which the caller owns and releases,
// and starts again.
func (r *Reader) Record() arrow.RecordBatch {
	arrs := make([]arrow.Array, len(r.cols))
	for i, c := range r.cols {
		d := c.finish()
		arrs[i] = array.MakeFromData(d)
		d.Release()
	}
	rec := array.NewRecordBatch(r.schema, arrs, int64(r.rows))
	for _, a := range arrs {
		a.Release()
	}
	r.rows, r.bytes, r.input = 0, 0, 0
	return rec
}

// Close drops the rows since the last Record and gives their memory back. The
// Reader may be used again.
func (r *Reader) Close() {
	for _, c := range r.cols {
		c.release()
	}
	r.rows, r.bytes, r.input = 0, 0, 0
}

func tooWide() error {
	return errs.New(errs.TooLarge, "a row takes more than %d MiB as Arrow columns", maxArrowBytes>>20)
}
