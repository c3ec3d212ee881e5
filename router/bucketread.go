package router

import (
	"context"
	"sync/atomic"
	"time"

	millrace "github.com/millrace/millrace"
)

// What package tier reads: one bucket at a time, all columns of a schema, from where
// the lake is to where the log was when the round began.

// LogRange is what the log of a bucket holds as of now.
type LogRange struct {
	Start millrace.Offset // the earliest record for who begins to read
	Kept  millrace.Offset // the earliest record there is
	End   millrace.Offset // the high watermark
}

// LogRange is what the log of bucket n holds; of a partition of the table, or of the
// table itself when that is nil.
func (r *Router) LogRange(ctx context.Context, t *millrace.Table, p *millrace.Partition, n uint16) (LogRange, error) {
	part := newPart(t, p, n)
	err := r.look(ctx, &Plan{Table: t}, Question{}, []*Part{&part})
	return part.look.LogRange, err
}

// LogRanges are what the logs of all buckets of some partitions hold, by partition and
// bucket; of the table when there is one that is nil.
func (r *Router) LogRanges(ctx context.Context, t *millrace.Table, ps []*millrace.Partition) ([][]LogRange, error) {
	parts := make([]Part, 0, len(ps)*t.Buckets)
	for _, p := range ps {
		for n := range uint16(t.Buckets) {
			parts = append(parts, newPart(t, p, n))
		}
	}
	if err := r.look(ctx, &Plan{Table: t}, Question{}, refs(parts, nil)); err != nil {
		return nil, err
	}
	out := make([][]LogRange, len(ps))
	for i := range parts {
		out[i/t.Buckets] = append(out[i/t.Buckets], parts[i].look.LogRange)
	}
	return out, nil
}

// LogPlace is a record of a bucket of a partition; of the table when that is nil.
type LogPlace struct {
	Partition *millrace.Partition
	Bucket    uint16
	Offset    millrace.Offset
}

// WrittenAt is when records were written, each; the zero time where the log does not hold
// it.
func (r *Router) WrittenAt(ctx context.Context, t *millrace.Table, at []LogPlace) ([]time.Time, error) {
	parts, q := make([]Part, len(at)), Question{Written: make([]millrace.Offset, len(at))}
	for i, a := range at {
		parts[i], q.Written[i] = newPart(t, a.Partition, a.Bucket), a.Offset
	}
	err := r.look(ctx, &Plan{Table: t}, q, refs(parts, nil))
	out := make([]time.Time, len(at))
	for i := range parts {
		if micros := parts[i].look.Micros; micros != 0 {
			out[i] = time.UnixMicro(micros)
		}
	}
	return out, err
}

// OpenLog reads the records [from, until) of the log of bucket n, with all columns of
// t.Schema; of a keyed table too they are given as rows, and Chunk.Changes says what
// each did.
func (r *Router) OpenLog(t *millrace.Table, p *millrace.Partition, n uint16, from, until millrace.Offset) *Reader {
	part := newPart(t, p, n)
	part.Start, part.End = from, until
	return r.openBucket(t, part, nil)
}

// OpenState reads the rows of bucket n of a keyed table, with all columns of t.Schema,
// and says at which offset the log goes on after them.
func (r *Router) OpenState(ctx context.Context, t *millrace.Table, p *millrace.Partition, n uint16) (*Reader, millrace.Offset, error) {
	part := newPart(t, p, n)
	plan := &Plan{Table: t, snaps: map[millrace.ShardID]pinned{}}
	if err := r.look(ctx, plan, Question{Snapshot: true}, []*Part{&part}); err != nil {
		return nil, 0, err
	}
	part.State, part.Start, part.End = true, part.look.Next, part.look.Next
	part.Snapshot = plan.snaps[part.Shard].id
	return r.openBucket(t, part, plan.snaps), part.look.Next, nil
}

func (r *Router) openBucket(t *millrace.Table, part Part, snaps map[millrace.ShardID]pinned) *Reader {
	cols := t.Schema.Columns
	rd := r.Open(&Plan{
		Table: t, View: RowsView, Columns: cols, Data: cols, Schema: outputSchema(t, cols), Limit: -1,
		Parts: []Part{part}, now: r.o.Clock.Now(), snaps: snaps, r: r,
	})
	rd.background = true
	return rd
}

// Changes are what the rows of a chunk of the log did, each; nil when all are +I.
func (c *Chunk) Changes() ([]millrace.ChangeType, error) {
	if c.far != nil && c.far.Changes != nil {
		return c.far.Changes[:c.Rows], nil
	}
	if c.batch == nil {
		return nil, nil
	}
	all, err := c.batch.Payload.Changes()
	if err != nil || all == nil {
		return nil, err
	}
	if c.sel == nil {
		return all[c.lo:c.hi], nil
	}
	out := make([]millrace.ChangeType, len(c.sel))
	for i, row := range c.sel {
		out[i] = all[row]
	}
	return out, nil
}

// MicrosAt is when row i of a chunk of the log was written; 0 of keyed state.
func (c *Chunk) MicrosAt(i int) int64 {
	if c.far != nil && c.far.Times != nil {
		return runAt(c.far.Times, i, 0)
	}
	if c.batch == nil {
		return 0
	}
	return c.batch.Header.TimeAt(c.row(i))
}

// foreground counts what clients ask for, so that background work can give way to it.
type foreground struct{ n atomic.Int64 }

func (f *foreground) add() { f.n.Add(1) }

// Foreground counts writes, lookups and chunks of reads, since the start: while it
// rises, clients are at work.
func (r *Router) Foreground() int64 { return r.foreground.n.Load() }
