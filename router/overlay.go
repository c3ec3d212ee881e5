package router

import (
	"context"
	"log/slog"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/bucket"
)

// The rows of a bucket of a keyed table are its state, and also: the rows that the lake
// has of it, less those whose key was changed since, and the last row of each key that
// was. Where the second is less to read, it is read: the changes since are gone over
// twice, once for their keys, and at the end for the rows that stand.

// overlayBytes bounds what a reader remembers of the changes of a bucket; a plan falls
// back to state where they are more.
const overlayBytes = 64 << 20

// keyOverhead is about what a key takes beside its bytes.
const keyOverhead = 96

// overlay is what the log of a bucket did to its rows in the lake.
type overlay struct {
	gone  map[string]struct{} // keys whose row in the lake does not stand any more
	lasts []millrace.Offset   // the records that stand for a row, rising
}

// change is what the log did to a key.
type change struct {
	last   millrace.Offset
	stands bool // the last record has the row
	fresh  bool // the key was not there before
}

// overlayOf goes over the changes that a part has on top of the lake; nil when there are
// too many of them.
func (rd *Reader) overlayOf(ctx context.Context, pr *partReader) (*overlay, error) {
	from, _ := rd.plan.history.offset(pr.Bucket)
	lg, v, err := rd.log(pr)
	if err != nil {
		return nil, err
	}
	keys := rd.plan.Table.Columns(rd.plan.Table.PrimaryKey)
	changes := map[string]*change{}
	size := int64(0)
	for from < pr.End {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := rd.tailBatch(pr, lg, v, from)
		if err != nil {
			return nil, err
		}
		lo, hi := int(from-b.Header.Base), min(b.Header.Rows, int(pr.End-b.Header.Base))
		size, err = rd.collapse(changes, size, b, keys, lo, hi)
		from = b.Header.Base + millrace.Offset(hi)
		rd.release(b)
		if err != nil {
			return nil, err
		}
		if size > rd.r.overlayBytes {
			return nil, nil
		}
	}
	o := &overlay{gone: map[string]struct{}{}}
	for k, c := range changes {
		if !c.fresh {
			o.gone[k] = struct{}{}
		}
		if c.stands {
			o.lasts = append(o.lasts, c.last)
		}
	}
	slices.Sort(o.lasts)
	return o, nil
}

// collapse adds what records [lo, hi) of a batch did, by key.
func (rd *Reader) collapse(changes map[string]*change, size int64, b *bucket.Batch, keys []millrace.Column, lo, hi int) (int64, error) {
	did, err := b.Payload.Changes()
	if err != nil {
		return size, err
	}
	rec, err := b.Payload.Record(memory.DefaultAllocator, rd.plan.schemas(rd.r), keys)
	if err != nil {
		return size, err
	}
	defer rec.Release()
	cols := indexes(len(keys))
	var key []byte
	for i := lo; i < hi; i++ {
		what := millrace.Insert
		if did != nil {
			what = did[i]
		}
		key = row.AppendKey(key[:0], rec, cols, i)
		c := changes[string(key)]
		if c == nil {
			c = &change{fresh: what == millrace.Insert}
			changes[string(key)] = c
			size += int64(len(key)) + keyOverhead
		}
		c.last, c.stands = b.Header.Base+millrace.Offset(i), what == millrace.Insert || what == millrace.UpdateAfter
	}
	return size, nil
}

// tailBatch opens the batch of a part's log that has an offset.
func (rd *Reader) tailBatch(pr *partReader, lg *bucket.Log, v *bucket.View, at millrace.Offset) (*bucket.Batch, error) {
	if at < v.Kept || at >= v.End {
		return nil, rd.tailGone(pr)
	}
	b, err := rd.storedBatch(pr, lg, v, at)
	if errs.Is(err, errs.OffsetOutOfRange) {
		return nil, rd.tailGone(pr)
	}
	return b, err
}

func (rd *Reader) tailGone(pr *partReader) error {
	return errs.New(errs.SnapshotGone, "the log of bucket %s does not hold any more what goes on top of lake snapshot %d: start the read again", pr.Key, rd.plan.history.snap.ID())
}

// overlays sees that the part knows what its log did to the rows of the lake. When that
// is too much, the part goes back to state.
func (rd *Reader) overlays(ctx context.Context, pr *partReader) error {
	if !pr.Overlay || pr.over != nil {
		return nil
	}
	err := rd.enterRoom(ctx)
	if err != nil {
		return err
	}
	if pr.over, err = rd.overlayOf(ctx, pr); err != nil || pr.over != nil {
		return err
	}
	if err := rd.plan.listParts(ctx, (*Part).ofFiles); err != nil {
		return err
	}
	given := !pr.lake && len(rd.plan.filesOf(&pr.Part)) > 0 // all rows of the lake
	if from, _ := rd.plan.history.offset(pr.Bucket); given || pr.File > 0 || pr.Row > 0 || pr.Tail > from {
		return rd.tailGone(pr) // another process had room for them
	}
	pr.lake, pr.Overlay, pr.state = false, false, true
	return nil
}

// standing leaves out the rows of the lake whose key has changed since.
func (o *overlay) standing(rec arrow.RecordBatch, keys []int, sel []int32) []int32 {
	out := sel[:0]
	var key []byte
	for _, i := range sel {
		key = row.AppendKey(key[:0], rec, keys, int(i))
		if _, gone := o.gone[string(key)]; !gone {
			out = append(out, i)
		}
	}
	return out
}

// readTail gives the next chunk of the rows that a part's log has on top of the lake.
func (rd *Reader) readTail(ctx context.Context, pr *partReader) (*Chunk, error) {
	if err := rd.overlays(ctx, pr); err != nil || !pr.Overlay {
		return nil, err
	}
	next, _ := slices.BinarySearch(pr.over.lasts, pr.Tail)
	if next == len(pr.over.lasts) {
		pr.Overlay = false
		return nil, nil
	}
	lg, v, err := rd.log(pr)
	if err != nil {
		return nil, err
	}
	if err := rd.enterRoom(ctx); err != nil {
		return nil, err
	}
	b, err := rd.tailBatch(pr, lg, v, pr.over.lasts[next])
	if err != nil {
		return nil, err
	}
	c := &Chunk{
		BucketKey: pr.Key, PartitionName: pr.Partition, Bucket: pr.Bucket.Bucket, Base: millrace.NoOffset, Next: pr.End, HighWatermark: pr.End,
		rd: rd, part: pr, batch: b, stands: true, lo: int(pr.over.lasts[next] - b.Header.Base), hi: b.Header.Rows,
	}
	end := b.Header.Base + millrace.Offset(b.Header.Rows)
	stand := []int32{}
	for _, o := range pr.over.lasts[next:] {
		if o >= end {
			break
		}
		stand = append(stand, int32(o-b.Header.Base))
	}
	if c.sel, err = rd.filterTail(c, stand); err != nil {
		c.Release()
		return nil, err
	}
	pr.Tail, pr.cut = end, false
	if rd.left >= 0 && int64(len(c.sel)) > rd.left {
		c.sel = c.sel[:rd.left]
		pr.Tail, pr.cut = b.Header.Base+millrace.Offset(c.sel[len(c.sel)-1])+1, true
	}
	if c.Rows = len(c.sel); c.Rows == 0 {
		c.Release()
		return nil, nil
	}
	return c, nil
}

// moreInTail says whether there may be rows on top of the lake that were not given.
func (pr *partReader) moreInTail() bool {
	if pr.over != nil {
		if at, _ := slices.BinarySearch(pr.over.lasts, pr.Tail); at == len(pr.over.lasts) {
			pr.Overlay = false
		}
	}
	return pr.Overlay
}

// filterTail are those of some rows of a chunk's batch that the filter takes.
func (rd *Reader) filterTail(c *Chunk, stand []int32) ([]int32, error) {
	f := rd.plan.filter
	switch {
	case f == nil:
		rd.stats.RowsRead += int64(len(stand))
		return stand, nil
	case !f.MayMatch(c.stats):
		rd.stats.RowsSkipped += int64(c.hi - c.lo)
		return nil, nil
	}
	if err := c.selectRows(f); err != nil {
		return nil, err
	}
	if c.sel == nil {
		return stand, nil
	}
	taken := c.sel
	return slices.DeleteFunc(stand, func(r int32) bool {
		_, ok := slices.BinarySearch(taken, r)
		return !ok
	}), nil
}

// What reading costs, in values of a column of the lake; measured on local disks.
const (
	openCost    = 32 << 10 // a file: a few requests to a store that may be far
	stateCost   = 4        // a row of state; a quarter more for each column that it has, a half for each that is wanted
	goneCost    = 3        // a row of the lake whose key is looked up among those that changed
	changeCost  = 24       // a record of the log: it is gone over twice
	smallBucket = 4096     // rows that are not worth looking into the lake
)

// costOfState is what the rows of a bucket cost to read from state.
func (p *Plan) costOfState(rows int64) int64 {
	if p.Limit >= 0 && p.filter == nil {
		rows = min(rows, p.Limit)
	}
	return rows * int64(4*stateCost+len(p.Table.Schema.Columns)+2*len(p.lakeColumns())) / 4
}

// costOfOverlay is what they cost from files of the lake, with changes on top.
func (p *Plan) costOfOverlay(files []lake.File, changes int64) int64 {
	cost := openCost*int64(len(files)) + changeCost*changes
	row := int64(len(p.lakeColumns()))
	if changes > 0 {
		row += goneCost
	}
	for i := range files {
		cost += files[i].Rows * row
	}
	return cost
}

// chooseOverlay makes parts that were placed at their state read the lake and what the
// log has on top of it, where that is less. Both give the same rows.
func (r *Router) chooseOverlay(ctx context.Context, p *Plan) error {
	if p.history == nil || p.View != RowsView || p.keyOrder || r.keyed == stateOnly {
		return nil
	}
	some := map[*Part]bool{}
	for i := range p.Parts {
		part := &p.Parts[i]
		if off, ok := p.history.offset(part.Bucket); !ok || !part.State || part.Prefix != nil || off > part.End {
			continue
		}
		if part.look.Rows > smallBucket || r.keyed == overlayOnly {
			some[part] = true
		}
	}
	if len(some) == 0 {
		return nil
	}
	if err := p.listParts(ctx, func(part *Part) bool { return some[part] }); err != nil {
		r.o.Logger.WarnContext(ctx, "the lake is not listed, rows are read from state", slog.String("table", p.Table.Path.String()), errAttr(err))
		return ctx.Err()
	}
	for part := range some {
		r.overlayIfLess(p, part)
	}
	return nil
}

// overlayIfLess makes one part an overlay, if that is possible and less to read.
func (r *Router) overlayIfLess(p *Plan, part *Part) {
	off, _ := p.history.offset(part.Bucket)
	// The state may be ahead of the view by what is being published this instant.
	if off < part.look.Kept || part.End > part.look.End || len(p.history.files[fileSlice{part.Partition, NoBucket}]) > 0 {
		return
	}
	if r.keyed == choose && p.costOfOverlay(p.filesOf(part), int64(part.End-off)) >= p.costOfState(part.look.Rows) {
		return
	}
	part.State, part.Overlay = false, true
	part.Lake, part.Tail = len(p.filesOf(part)) > 0, off
}

// keyedReads says how the rows of keyed tables are read.
type keyedReads uint8

const (
	choose keyedReads = iota
	stateOnly
	overlayOnly // wherever it is possible
)

// keysIn are the places of the primary key's columns among some columns.
func keysIn(t *millrace.Table, cols []millrace.Column) []int {
	out := make([]int, len(t.PrimaryKey))
	for i, id := range t.PrimaryKey {
		out[i] = slices.IndexFunc(cols, func(c millrace.Column) bool { return c.ID == id })
	}
	return out
}
