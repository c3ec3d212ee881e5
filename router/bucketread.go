package router

import (
	"sync/atomic"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/shard"
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
func (r *Router) LogRange(t *millrace.Table, p *millrace.Partition, n uint16) (LogRange, error) {
	id, sh := bucketOf(t, p, n)
	_, v, err := r.shard(sh).Log(id)
	if err != nil || v == nil {
		return LogRange{}, err
	}
	return LogRange{v.Start, v.Kept, v.End}, nil
}

func bucketOf(t *millrace.Table, p *millrace.Partition, n uint16) (millrace.BucketID, millrace.ShardID) {
	if p == nil {
		return t.BucketID(n), t.Shards[n]
	}
	return p.BucketID(n), p.Shards[n]
}

// WrittenAt is when the record of bucket n at an offset was written; the zero time when
// the log does not hold it.
func (r *Router) WrittenAt(t *millrace.Table, p *millrace.Partition, n uint16, off millrace.Offset) (time.Time, error) {
	id, sh := bucketOf(t, p, n)
	lg, v, err := r.shard(sh).Log(id)
	if err != nil || v == nil || off < v.Kept || off >= v.End {
		return time.Time{}, err
	}
	b, err := lg.At(v, off)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMicro(b.Header.TimeAt(int(off - b.Header.Base))), b.Release()
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
func (r *Router) OpenState(t *millrace.Table, p *millrace.Partition, n uint16) (*Reader, millrace.Offset, error) {
	part := newPart(t, p, n)
	sn, err := r.shard(part.Shard).Snapshot()
	if err != nil {
		return nil, 0, err
	}
	m, err := sn.Meta(part.Bucket)
	if err != nil {
		sn.Release()
		return nil, 0, err
	}
	part.State, part.Start, part.End = true, m.Next, m.Next
	return r.openBucket(t, part, map[millrace.ShardID]*shard.Snapshot{part.Shard: sn}), m.Next, nil
}

func (r *Router) openBucket(t *millrace.Table, part Part, snaps map[millrace.ShardID]*shard.Snapshot) *Reader {
	cols := t.Schema.Columns
	rd := r.Open(&Plan{
		Table: t, View: RowsView, Columns: cols, Data: cols, Schema: outputSchema(t, cols), Limit: -1,
		Parts: []Part{part}, now: r.o.Clock.Now(), snaps: snaps,
	})
	rd.background = true
	return rd
}

// Changes are what the rows of a chunk of the log did, each; nil when all are +I.
func (c *Chunk) Changes() ([]millrace.ChangeType, error) {
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
