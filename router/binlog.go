package router

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// The binlog view has a row a change: a record of the log that stands alone, or a -U
// with its +U. A chunk of it names in sel the last record of each change.

// What a change did, as the binlog says it.
const (
	changeInsert = "insert"
	changeUpdate = "update"
	changeDelete = "delete"
)

// imageColumn is the column `before` or `after`: a ROW of the columns asked for, NULL
// when the change has no such image. Its fields are nullable, since those of a NULL
// image are NULL.
func imageColumn(id millrace.ColumnID, data []millrace.Column) millrace.Column {
	fields := slices.Clone(data)
	for i := range fields {
		fields[i].Nullable = true
	}
	name := millrace.ColBefore
	if id == idAfter {
		name = millrace.ColAfter
	}
	return millrace.Column{ID: id, Name: name, Type: millrace.DataType{Kind: millrace.Row, Children: fields}, Nullable: true}
}

// before is the row of the batch that holds the image before the change whose last
// record is row r, or -1.
func (c *Chunk) before(r int32) int32 {
	switch {
	case c.changes == nil || c.batch == nil:
		return -1
	case c.changes[r] == millrace.Delete:
		return r
	case c.changes[r] == millrace.UpdateAfter && r > 0 && c.changes[r-1] == millrace.UpdateBefore:
		return r - 1
	}
	return -1
}

// after is the row of the batch that holds the image after that change, or -1.
func (c *Chunk) after(r int32) int32 {
	if c.changes != nil && c.changes[r] == millrace.Delete {
		return -1
	}
	return r
}

// first is the record that the change of row r begins with; outside the binlog every
// record is by itself.
func (c *Chunk) first(r int32) int32 {
	if b := c.before(r); b >= 0 {
		return b
	}
	return r
}

// foldChanges turns the chunk's records into changes. One of whose images the filter
// took one is there whole.
func (c *Chunk) foldChanges() {
	records := c.sel
	if records == nil && c.Rows > 0 {
		records = make([]int32, 0, c.hi-c.lo)
		for r := c.lo; r < c.hi; r++ {
			records = append(records, int32(r))
		}
	}
	c.sel = make([]int32, 0, len(records))
	for _, r := range records {
		if c.changes != nil && c.changes[r] == millrace.UpdateBefore {
			r++ // a -U and its +U are never parted in a batch
		}
		if int(r) < c.hi && (len(c.sel) == 0 || c.sel[len(c.sel)-1] != r) {
			c.sel = append(c.sel, r)
		}
	}
	c.Rows = len(c.sel)
}

// images decodes the chunk into changes with their images.
func (c *Chunk) images() (arrow.RecordBatch, error) {
	mem := memory.DefaultAllocator
	rec, changes, err := c.imageSource()
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	before, after := make([]int32, len(changes)), make([]int32, len(changes))
	for i, r := range changes {
		before[i], after[i] = c.before(r), c.after(r)
	}
	cols := c.rd.plan.Columns
	arrs := make([]arrow.Array, len(cols))
	for i, col := range cols {
		switch col.ID {
		case idBefore:
			arrs[i] = row.TakeStruct(mem, rec, before, col.Type)
		case idAfter:
			arrs[i] = row.TakeStruct(mem, rec, after, col.Type)
		default:
			if arrs[i], err = c.systemArray(col.ID, changes); err != nil {
				return nil, err
			}
		}
		defer arrs[i].Release()
	}
	return array.NewRecordBatch(c.rd.plan.Schema, arrs, int64(len(changes))), nil
}

// imageSource is the record that the images are taken from, and the last record of
// each change in it.
func (c *Chunk) imageSource() (arrow.RecordBatch, []int32, error) {
	if c.state == nil {
		rec, err := c.batch.Payload.Record(memory.DefaultAllocator, c.rd.plan.schemas(c.rd.r), c.rd.plan.Data)
		if err == nil {
			c.decoded(rec)
		}
		return rec, c.sel, err
	}
	c.state.Retain()
	rows := make([]int32, c.state.NumRows())
	for i := range rows {
		rows[i] = int32(i)
	}
	return c.state, rows, nil
}

// binlogType is what the change did that a record is of.
func binlogType(t millrace.ChangeType) string {
	switch t {
	case millrace.Insert:
		return changeInsert
	case millrace.Delete:
		return changeDelete
	default:
		return changeUpdate
	}
}
