package tier

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/router"
)

// round is one commit in the making.
type round struct {
	t      *table
	src    Source
	job    *job
	pieces []piece // what is left of the job
	gaps   int64   // of the table when the job began

	desc   *millrace.Table
	lr     lake.Round
	next   lake.Offsets
	rows   recorder
	moved  bool // some offset did
	strict bool // what is missing between lake and log is lost (seenAll)
	began  time.Time
	bytes  int64 // stored, that were read
	rest   rest
	known  *millrace.Partition // looked up last
	stays  bool                // and whether it holds rows
	closed bool                // no more is taken in

	// The file that is being written.
	at  lake.Slice
	out lake.Appender
}

// run makes the round, and says which pieces are left.
func (r *round) run(ctx context.Context) (left []piece, err error) {
	ctx, span := r.t.m.o.Tracer.Begin(ctx, "lake round")
	defer func() { span.Int("millrace.table_id", int64(r.t.id)).Int("millrace.read_bytes", r.bytes).End(err) }()
	return r.make(ctx)
}

func (r *round) make(ctx context.Context) (left []piece, err error) {
	m := r.t.m
	r.began = m.o.Clock.Now()
	r.rest = m.pacer.begin(r.src, r.job.late)
	defer r.rest.end()
	if r.desc, err = m.o.Catalog.TableByID(ctx, r.t.id); err != nil {
		return nil, err
	}
	if !enabled(r.desc) {
		return nil, nil
	}
	lt, err := r.t.open(ctx, r.desc)
	if err != nil {
		return nil, err
	}
	if r.lr, err = lt.Begin(ctx, r.desc); err != nil {
		return nil, err
	}
	defer r.lr.Abort(context.WithoutCancel(ctx))
	if err := m.step(StepBegun); err != nil {
		return nil, err
	}
	base := r.lr.Base()
	r.t.mu.Lock()
	r.t.seeLocked(base)
	r.t.mu.Unlock()
	if lost, _, err := r.t.wentBack(ctx, r.desc, base); lost != nil || err != nil {
		return nil, cmp.Or(err, lost)
	}
	r.strict = seenAll(r.desc, base)
	r.next = next(base)
	r.rows = newRecorder(r.desc)
	for len(r.pieces) > 0 && !r.closed {
		done, err := r.take(ctx, &r.pieces[0])
		if err != nil {
			return nil, err
		}
		if done {
			r.pieces = r.pieces[1:]
		}
		r.closed = r.closed || !done || r.full()
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	if !r.moved {
		if len(r.pieces) > 0 {
			return nil, errAnew // a log ended before its end: its partition is ending
		}
		return nil, nil // another one has done it
	}
	if len(r.pieces) == 0 {
		r.lr.Reach(r.gaps)
	}
	return r.pieces, r.commit(ctx)
}

// full says whether the round has taken in as much as one commit should have.
func (r *round) full() bool {
	o := &r.t.m.o
	return r.bytes >= o.RoundBytes || o.Clock.Now().Sub(r.began) >= o.RoundTime
}

func (r *round) commit(ctx context.Context) error {
	m := r.t.m
	if err := m.step(StepBeforeCommit); err != nil {
		return err
	}
	if err := r.t.stays(ctx); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s, err := r.lr.Commit(ctx, r.next)
	if err != nil {
		r.t.stale() // it may have happened
		return err
	}
	if err := m.step(StepAfterCommit); err != nil {
		r.t.stale()
		return err
	}
	w := r.lr.Written()
	r.job.rows += w.Rows
	r.t.committed(r.desc, s, w, m.o.Clock.Now().Sub(r.began))
	return m.step(StepTold)
}

// take takes in what a piece has; not done when the round got full before its end.
func (r *round) take(ctx context.Context, p *piece) (done bool, err error) {
	if there, err := r.there(ctx, p.partition); err != nil || !there {
		return true, err
	}
	logs, err := r.src.LogRange(ctx, r.desc, p.partition, p.bucket)
	if errs.Is(err, errs.PartitionNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	id := p.id(r.desc)
	from, have := r.next[id]
	switch {
	case logs.End < p.end:
		return true, nil // the partition is leaving: its log is no more
	case have && from > logs.End:
		return false, isAhead(r.desc, p, from)
	case have && from >= p.end:
		return true, nil
	case r.desc.Keyed() && (!have || from < logs.Kept):
		if have {
			if err := r.lr.Clear(ctx, p.slice(r.desc)); err != nil {
				return false, err
			}
			r.anew(p, from, logs.Kept)
		}
		return true, r.state(ctx, p, id)
	case r.desc.Keyed():
		return r.fold(ctx, p, id, from)
	case r.strict && from < logs.Kept:
		return false, isLost(r.desc, p, from, logs.Kept)
	case !have:
		from = logs.Start
	case from < logs.Kept:
		r.skip(p, from, logs.Start)
		from = logs.Start
	}
	if from >= p.end {
		r.move(id, from)
		return true, nil
	}
	return r.log(ctx, p, id, from)
}

func nameOf(p *millrace.Partition) string {
	if p == nil {
		return ""
	}
	return p.Name
}

// there says whether a partition still holds rows: one that was dropped after the job
// began must not come back.
func (r *round) there(ctx context.Context, p *millrace.Partition) (bool, error) {
	if p == nil || p == r.known {
		return p == nil || r.stays, nil
	}
	now, err := r.t.m.o.Catalog.PartitionByID(ctx, p.Table, p.ID)
	switch {
	case errs.Is(err, errs.PartitionNotFound):
		r.known, r.stays = p, false
	case err != nil:
		return false, err
	default:
		r.known, r.stays = p, takesPart(now)
	}
	return r.stays, nil
}

// skip notes records that left the log before they were tiered.
func (r *round) skip(p *piece, from, to millrace.Offset) {
	r.lr.Skip(int64(to - from))
	r.t.m.o.Logger.Warn("records left the log while the table was not tiered", tableAttr(r.desc),
		slog.String("bucket", millrace.BucketKey(nameOf(p.partition), p.bucket)), slog.Int64("from", int64(from)), slog.Int64("to", int64(to)), slog.Bool("from_state", r.desc.Keyed()))
}

// anew notes that a keyed bucket is written anew from its state, and why.
func (r *round) anew(p *piece, from, to millrace.Offset) {
	if !r.strict {
		r.skip(p, from, to)
		return
	}
	r.t.m.o.Logger.Warn("the lake has lost rows of a bucket, which is written anew from its state", tableAttr(r.desc),
		slog.String("bucket", millrace.BucketKey(nameOf(p.partition), p.bucket)), slog.Int64("from", int64(from)), slog.Int64("to", int64(to)))
}

// move sets where a bucket is tiered to.
func (r *round) move(id millrace.BucketID, to millrace.Offset) {
	if at, have := r.next[id]; !have || at != to {
		r.next[id], r.moved = to, true
	}
}

// log appends the records of a log table's bucket.
func (r *round) log(ctx context.Context, p *piece, id millrace.BucketID, from millrace.Offset) (done bool, err error) {
	at, err := r.each(ctx, r.src.OpenLog(r.desc, p.partition, p.bucket, from, p.end), from, func(_ *router.Chunk, rec arrow.RecordBatch) (bool, error) {
		return !r.full(), r.write(ctx, p.slice(r.desc), rec)
	})
	if err != nil {
		return false, err
	}
	r.move(id, at)
	return at >= p.end, nil
}

// state writes the rows of a keyed bucket, as they are now.
func (r *round) state(ctx context.Context, p *piece, id millrace.BucketID) error {
	rd, end, err := r.src.OpenState(ctx, r.desc, p.partition, p.bucket)
	if err != nil {
		return err
	}
	_, err = r.each(ctx, rd, end, func(_ *router.Chunk, rec arrow.RecordBatch) (bool, error) {
		return true, r.write(ctx, p.slice(r.desc), rec)
	})
	if err != nil {
		return err
	}
	// The rows are as of after the descriptor was read, so they may be of a later one (T2).
	now, err := r.t.m.o.Catalog.TableByID(ctx, r.t.id)
	if err != nil {
		return err
	}
	if now.Schema.ID != r.desc.Schema.ID {
		return errAnew
	}
	r.move(id, end)
	return nil
}

// each gives every chunk of a read, with the system columns when the lake table has
// them, until give wants no more. It says where the log goes on, and closes the read.
func (r *round) each(ctx context.Context, rd *router.Reader, at millrace.Offset, give func(*router.Chunk, arrow.RecordBatch) (more bool, err error)) (_ millrace.Offset, err error) {
	defer func() { err = errors.Join(err, rd.Close()) }()
	var read int64
	for more := true; more; {
		c, err := rd.Next(ctx, 0)
		if errors.Is(err, io.EOF) {
			return at, nil
		}
		if errs.Is(err, errs.SchemaChanged) || errs.Is(err, errs.OffsetOutOfRange) || errs.Is(err, errs.PartitionNotFound) {
			return at, errAnew
		}
		if err != nil {
			return at, err
		}
		next := c.Next
		more, err = r.chunk(c, give)
		c.Release()
		if err != nil {
			return at, err
		}
		at = next
		r.bytes += rd.Stats().BytesRead - read
		read = rd.Stats().BytesRead
		if err := r.rest.pause(ctx); err != nil {
			return at, err
		}
	}
	return at, nil
}

func (r *round) chunk(c *router.Chunk, give func(*router.Chunk, arrow.RecordBatch) (bool, error)) (more bool, err error) {
	if err := r.t.m.step(StepRead); err != nil {
		return false, err
	}
	rec, err := r.rows.record(c)
	if err != nil {
		return false, err
	}
	defer rec.Release()
	return give(c, rec)
}

// write appends rows to a slice; only one has an open file.
func (r *round) write(ctx context.Context, to lake.Slice, rec arrow.RecordBatch) error {
	if r.out != nil && r.at != to {
		if err := r.finish(); err != nil {
			return err
		}
	}
	if r.out == nil {
		out, err := r.lr.Append(ctx, to)
		if err != nil {
			return err
		}
		r.out, r.at = out, to
	}
	return r.out.Write(rec)
}

// finish closes the open file.
func (r *round) finish() error {
	if r.out == nil {
		return nil
	}
	out := r.out
	r.out = nil
	if err := out.Close(); err != nil {
		return err
	}
	return r.t.m.step(StepWritten)
}
