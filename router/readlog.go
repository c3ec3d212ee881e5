package router

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/storage/bucket"
)

// readLog gives the next chunk of a part's log; moved says that the part went on
// without giving one.
func (rd *Reader) readLog(ctx context.Context, pr *partReader) (_ *Chunk, moved bool, err error) {
	if pr.End != millrace.NoOffset && pr.Start >= pr.End {
		return nil, false, nil
	}
	lg, v, err := rd.log(pr)
	if err != nil {
		return nil, false, err
	}
	if pr.Start < v.Kept {
		return nil, false, pr.expired(v)
	}
	if pr.Start >= v.End {
		return nil, false, nil
	}
	if err := rd.enterRoom(ctx); err != nil {
		return nil, false, err
	}
	b, err := rd.storedBatch(pr, lg, v, pr.Start)
	if errs.Is(err, errs.OffsetOutOfRange) { // the log let go of it this moment
		return nil, false, pr.expired(lg.View())
	}
	if err != nil {
		return nil, false, err
	}
	c := &Chunk{
		BucketKey: pr.Key, PartitionName: pr.Partition, Bucket: pr.Bucket.Bucket, HighWatermark: v.End,
		rd: rd, part: pr, batch: b, lo: int(pr.Start - b.Header.Base), hi: b.Header.Rows,
	}
	if pr.End != millrace.NoOffset {
		c.hi = min(c.hi, int(pr.End-b.Header.Base))
	}
	if err := c.narrow(rd.left); err != nil {
		c.Release()
		return nil, false, err
	}
	pr.Start = b.Header.Base + millrace.Offset(c.hi)
	c.Next = pr.Start
	if c.Rows == 0 {
		c.Release()
		return nil, true, nil
	}
	return c, true, nil
}

// expired is the error of a read that stands below what its log keeps.
func (pr *partReader) expired(v *bucket.View) error {
	out := ranges{}
	out.add(&pr.Part, LogRange{v.Start, v.Kept, v.End})
	return out.err()
}

// narrow applies the filter and the limit to the chunk's rows [lo, hi).
func (c *Chunk) narrow(left int64) error {
	if c.rd.plan.View == BinlogView {
		var err error
		if c.changes, err = c.batch.Payload.Changes(); err != nil {
			return err
		}
	}
	if f := c.rd.plan.filter; f != nil {
		if !f.MayMatch(c.stats) {
			c.rd.stats.RowsSkipped += int64(c.hi - c.lo)
			return nil
		}
		if err := c.selectRows(f); err != nil {
			return err
		}
	} else {
		c.Rows = c.hi - c.lo
		c.rd.stats.RowsRead += int64(c.Rows)
	}
	if c.rd.plan.View == BinlogView {
		c.foldChanges()
	}
	if c.Rows == 0 {
		return nil
	}
	if left >= 0 && int64(c.Rows) > left {
		if err := c.cut(int(left)); err != nil {
			return err
		}
	}
	first, last := c.row(0), c.row(c.Rows-1)
	c.Base = c.batch.Header.Base + millrace.Offset(c.first(int32(first)))
	c.Micros = c.batch.Header.TimeAt(last)
	return nil
}

// row is the row of the batch that is row i of the chunk.
func (c *Chunk) row(i int) int {
	if c.sel != nil {
		return int(c.sel[i])
	}
	return c.lo + i
}

// cut leaves the first n rows, and one more when they end in a -U whose +U comes next (R3).
func (c *Chunk) cut(n int) error {
	changes, err := c.batch.Payload.Changes()
	if err != nil {
		return err
	}
	if n > 0 && n < c.Rows && changes != nil {
		last := c.row(n - 1)
		if changes[last] == millrace.UpdateBefore && c.row(n) == last+1 {
			n++
		}
	}
	c.Rows = n
	if c.sel != nil {
		c.sel = c.sel[:n]
	}
	if n > 0 {
		c.hi = c.row(n-1) + 1
	}
	return nil
}

// selectRows decodes the columns that the filter names and keeps the rows it takes.
func (c *Chunk) selectRows(f *filter.Filter) error {
	var want, system []millrace.Column
	for _, col := range namedColumns(c.rd.plan.Table, c.rd.plan.View) {
		if slices.Contains(f.ColumnNames(), col.Name) {
			if isSystem(col) {
				system = append(system, col)
			} else {
				want = append(want, col)
			}
		}
	}
	rec, err := c.batch.Payload.Record(memory.DefaultAllocator, c.rd.plan.schemas(c.rd.r), want)
	if err != nil {
		return err
	}
	rec = sliceRecord(rec, c.lo, c.hi)
	if len(system) > 0 {
		if rec, err = c.withSystem(rec, want, system, nil); err != nil {
			return err
		}
	}
	defer rec.Release()
	sel, err := f.Select(rec)
	if err != nil {
		return err
	}
	c.rd.stats.RowsRead += int64(c.hi - c.lo)
	c.Rows = len(sel)
	if len(sel) == c.hi-c.lo {
		return nil // all of them: the stored batch can go as it lies
	}
	c.sel = make([]int32, len(sel))
	for i, s := range sel {
		c.sel[i] = s + int32(c.lo)
	}
	return nil
}

// sliceRecord is rows [lo, hi) of rec, which it takes over.
func sliceRecord(rec arrow.RecordBatch, lo, hi int) arrow.RecordBatch {
	if lo == 0 && int64(hi) == rec.NumRows() {
		return rec
	}
	defer rec.Release()
	return rec.NewSlice(int64(lo), int64(hi))
}

// stats gives the filter what is known of a column of the batch without reading it.
func (c *Chunk) stats(name string) (filter.Stats, bool) {
	t := c.rd.plan.Table
	if i := t.Schema.Index(name); i >= 0 {
		return c.batch.Payload.Stats(t.Schema.Columns[i].ID)
	}
	if c.stands && (name == millrace.ColLogOffset || name == millrace.ColCommitTimestamp) {
		return filter.Stats{}, false
	}
	h := &c.batch.Header
	s := filter.Stats{Rows: int64(c.hi - c.lo), HasMin: true, HasMax: true}
	switch name {
	case millrace.ColLogOffset:
		s.Min.Int, s.Max.Int = int64(h.Base)+int64(c.lo), int64(h.Base)+int64(c.hi)-1
	case millrace.ColCommitTimestamp:
		s.Min.Int, s.Max.Int = h.TimeAt(c.lo)/1000, h.TimeAt(c.hi-1)/1000
	case millrace.ColBucket:
		s.Min.Int, s.Max.Int = int64(c.Bucket), int64(c.Bucket)
	case millrace.ColPartition:
		if c.PartitionName == "" {
			return filter.Stats{}, false
		}
		return oneValue(filter.Bound{Bytes: []byte(c.PartitionName)}), true
	default:
		return filter.Stats{}, false
	}
	return s, true
}
