package router

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row/arrowrow"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/shard"
)

// Stats say what a read cost.
type Stats struct {
	RowsRead     int64 `json:"rows_read"`
	RowsSkipped  int64 `json:"rows_skipped"` // by statistics, without looking
	RowsShipped  int64 `json:"rows_shipped"`
	BytesRead    int64 `json:"bytes_read"`    // stored bytes that were looked at
	BytesSkipped int64 `json:"bytes_skipped"` // stored bytes of the same range that were not
	BytesShipped int64 `json:"bytes_shipped"` // counted by the door
	Buckets      int   `json:"buckets"`
	// Of a partitioned table: those that were read, and those that the request and its
	// filter left out, of which no file is looked at.
	Partitions        int `json:"partitions,omitempty"`
	PartitionsSkipped int `json:"partitions_skipped,omitempty"`
	// Of a read of the lake: its snapshot, how many milliseconds that is behind the logs
	// (of the lake alone), and how many of its files were opened.
	LakeSnapshot int64  `json:"lake_snapshot,string,omitempty"`
	LakeLagMS    *int64 `json:"lake_lag_ms,omitempty"`
	LakeFiles    int    `json:"lake_files,omitempty"`
}

// Reader reads a plan. It belongs to one goroutine.
type Reader struct {
	r     *Router
	plan  *Plan
	left  int64 // of the limit; -1: no limit
	parts []*partReader
	turn  int // the part to look at first
	stats Stats
	wake  chan struct{}
	// Of a plan that follows a partitioned table: its partitions as they were last seen.
	listed []*millrace.Partition
	known  map[millrace.PartitionID]struct{}
	guard  columnGuard
	// background says that no client waits for the read.
	background bool
	// Of parts that are read elsewhere.
	far     map[millrace.ShardID]*farStream
	decoder *arrowrow.Decoder
	moving  pauses // of a shard that is said to be here and is not
	// Of what the read costs: how many bytes were charged, and whom.
	charged int64
	payer   context.Context //nolint:containedctx // the last that asked for a chunk
	// Of the room for what is read: what the reader has of it, nil when there is none, and
	// what of that its caller keeps.
	hold   *admit.Hold
	kept   int64
	begun  bool            // rows of it were given to another process before
	asking context.Context //nolint:containedctx // the last that asked for a chunk
}

// partReader is where a reader stands in one part.
type partReader struct {
	Part
	lake  bool // the rows of the lake are not read to their end yet
	file  lake.Rows
	cost  lake.ReadStats // of it, as counted
	over  *overlay       // what the log did to them; nil: not known yet
	state bool           // the keyed state is not read to its end yet
	rows  *kv.Rows
	held  *shard.Snapshot // got by id, released with the part
	cut   bool            // rows were read ahead that the limit did not let go out
	born  bool            // the bucket was seen to exist
	sub   *shard.Subscription
	far   *farStream      // that reads it elsewhere
	due   millrace.Offset // what is before it was written when a caller asked for what there is
}

// Open begins to read a plan. The reader takes the plan over and closes it.
func (r *Router) Open(p *Plan) *Reader {
	rd := &Reader{r: r, plan: p, left: p.Limit, wake: make(chan struct{}, 1), guard: newColumnGuard(p.Table, p.stateColumns())}
	rd.stats.Buckets = len(p.Parts)
	rd.stats.Partitions, rd.stats.PartitionsSkipped = p.scope.total-p.scope.skipped, p.scope.skipped
	rd.stats.LakeSnapshot, rd.stats.LakeLagMS = p.LakeSnapshot()
	for _, part := range p.Parts {
		rd.parts = append(rd.parts, &partReader{Part: part, lake: part.Lake, state: part.State})
	}
	if p.Follow {
		rd.known = make(map[millrace.PartitionID]struct{}, len(p.Parts))
		for _, pr := range rd.parts {
			rd.follow(pr)
			rd.known[pr.Bucket.Partition] = struct{}{}
		}
		if p.Table.Partitioned() && !p.fixed {
			r.followers.add(rd)
		}
		rd.followFar()
	} else if slices.ContainsFunc(p.Parts, func(part Part) bool { return part.Snapshot != "" }) {
		rd.followFar() // which pins what is held, however long it is until its turn
	}
	r.metrics.openReaders.Inc()
	return rd
}

// Close ends the read.
func (rd *Reader) Close() error {
	var err error
	rd.closeFar()
	if rd.hold != nil {
		rd.hold.Done()
	}
	for _, pr := range rd.parts {
		err = errors.Join(err, rd.closeFile(pr), pr.close())
	}
	rd.settle()
	rd.r.followers.remove(rd)
	rd.plan.Close()
	rd.r.metrics.read(&rd.stats)
	return err
}

// Plan is the plan being read.
func (rd *Reader) Plan() *Plan { return rd.plan }

// Stats is what the read cost so far. The doors add BytesShipped to it.
func (rd *Reader) Stats() *Stats { return &rd.stats }

// Next is the next chunk, io.EOF at the end. A plan that follows the log has no
// end: Next waits for records, at most for wait, and is (nil, nil) when none came;
// with no wait, when there are none now.
// The caller releases the chunk before it calls Next again.
func (rd *Reader) Next(ctx context.Context, wait time.Duration) (*Chunk, error) {
	var timer, again <-chan time.Time
	late := false // only owners elsewhere are waited for
	rd.asking = ctx
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := still(rd.plan.pass); err != nil {
			return nil, err
		}
		may, err := rd.charge(ctx, wait)
		switch {
		case err != nil:
			return nil, err
		case rd.left == 0:
			return nil, io.EOF
		case !may:
			return nil, rd.alive(ctx)
		}
		if err := rd.refresh(ctx); err != nil {
			return nil, err
		}
		c, more, err := rd.look(ctx)
		if err != nil && rd.recoverable(ctx) {
			continue
		}
		if c == nil {
			rd.leaveRoom()
		} else {
			rd.fit(ctx, c)
		}
		if c != nil || err != nil {
			return c, err
		}
		if more && (!rd.plan.Follow || wait <= 0) {
			continue
		}
		if !rd.plan.Follow {
			return nil, io.EOF
		}
		if late && !more && !rd.catchingUp() {
			return nil, rd.alive(ctx)
		}
		if timer == nil {
			t := time.NewTimer(wait)
			defer t.Stop()
			timer = t.C
			if rd.plan.pass != nil {
				t := time.NewTicker(PassEvery)
				defer t.Stop()
				again = t.C
			}
		}
		wake := (<-chan struct{})(rd.wake)
		if more { // a filter takes nothing of what is read
			wake = always
		}
		select {
		case <-timer:
			if wait <= 0 && !late {
				if err := rd.behind(ctx); err != nil {
					return nil, err
				}
			}
			if late || !rd.catchingUp() {
				return nil, rd.alive(ctx)
			}
			late = true
			t := time.NewTimer(farGrace)
			defer t.Stop()
			timer = t.C
		case <-wake:
		case <-again:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// always is ready.
var always = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// alive says whether the followed table is still there, with the columns that are
// read: buckets that nothing is written to do not tell of a drop.
func (rd *Reader) alive(ctx context.Context) error {
	t, err := rd.r.o.Catalog.TableByID(ctx, rd.plan.Table.ID)
	if err != nil {
		return err
	}
	return rd.guard.check(t.Schema)
}

// look gives the next chunk there is now. more says that it moved on without
// finding one (skipped or filtered), so that looking again may find another.
func (rd *Reader) look(ctx context.Context) (c *Chunk, more bool, err error) {
	for range rd.parts {
		pr := rd.parts[rd.turn]
		c, more, err = rd.lookAt(ctx, pr)
		if errs.Is(err, errs.NotOwner) && !rd.plan.fixed {
			rd.leaveRoom() // to who can read something meanwhile
			return nil, true, rd.moving.wait(ctx, pr.Shard)
		}
		if c != nil {
			rd.moving = pauses{}
			// A follower gives every bucket its turn; a bounded read finishes one first.
			if rd.plan.Follow && !pr.history() {
				rd.turn = (rd.turn + 1) % len(rd.parts)
			}
			return rd.give(c), true, nil
		}
		if more || err != nil {
			return nil, more, err
		}
		rd.turn = (rd.turn + 1) % len(rd.parts)
		if !rd.plan.Follow && rd.turn == 0 {
			return nil, false, nil
		}
	}
	return nil, false, nil
}

// lookAt gives the next chunk of a part; neither that nor more, when there is none now.
func (rd *Reader) lookAt(ctx context.Context, pr *partReader) (c *Chunk, more bool, err error) {
	if rd.away(pr) {
		rd.leaveRoom() // whose owner needs it, if it is the same process
		return rd.readFar(ctx, pr)
	}
	if len(rd.far) > 0 && rd.plan.Follow && pr.history() && rd.before(pr) {
		return nil, false, nil // rows before the log come in the order of the parts
	}
	if pr.lake {
		if c, err = rd.readLake(ctx, pr); c != nil || err != nil || pr.lake {
			return c, true, err
		}
	}
	if pr.Overlay {
		if c, err = rd.readTail(ctx, pr); c != nil || err != nil || pr.Overlay {
			return c, true, err
		}
	}
	if pr.state {
		if c, err = rd.readState(ctx, pr); c != nil || err != nil || pr.state {
			return c, true, err
		}
	}
	return rd.readLog(ctx, pr)
}

// give counts a chunk against the limit.
func (rd *Reader) give(c *Chunk) *Chunk {
	if c == nil {
		return nil
	}
	if !rd.background {
		rd.r.foreground.add()
	}
	rd.stats.RowsShipped += int64(c.Rows)
	if rd.left > 0 {
		rd.left = max(0, rd.left-int64(c.Rows))
	}
	return c
}

// log is the log of a part, as of now; a view without records when nothing was
// ever written to the bucket.
func (rd *Reader) log(pr *partReader) (*bucket.Log, *bucket.View, error) {
	if pr.LakeOnly { // nothing is read there
		return nil, &bucket.View{Start: pr.Start, Kept: pr.Start, End: pr.Start}, nil
	}
	sh, err := rd.r.here(pr.Shard)
	if err != nil {
		return nil, nil, err
	}
	lg, v, err := sh.Log(pr.Bucket)
	switch {
	case err != nil:
		return nil, nil, err
	case v != nil:
		pr.born = true
		return lg, v, nil
	case pr.born || pr.Start > 0 || pr.End > 0:
		return nil, nil, rd.lost(pr)
	}
	return nil, &bucket.View{}, nil
}

// Places is where each part stands: the next offset, by bucket key.
func (rd *Reader) Places() map[string]millrace.Offset {
	out := make(map[string]millrace.Offset, len(rd.parts))
	for _, pr := range rd.parts {
		if pr.Bucket.Bucket != NoBucket {
			out[pr.Key] = pr.Start
		}
	}
	return out
}

// HighWatermarks is the end of each part's log as of now, by bucket key.
func (rd *Reader) HighWatermarks(ctx context.Context) (map[string]millrace.Offset, error) {
	ends, err := rd.ends(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]millrace.Offset, len(ends))
	for pr, end := range ends {
		out[pr.Key] = end
	}
	return out, nil
}

// ends are the ends of the parts' logs as of now, less those that are about to leave.
func (rd *Reader) ends(ctx context.Context) (map[*partReader]millrace.Offset, error) {
	out := make(map[*partReader]millrace.Offset, len(rd.parts))
	var away []*partReader
	for _, pr := range rd.parts {
		if pr.Bucket.Bucket == NoBucket {
			continue // which has no log
		}
		if rd.away(pr) {
			away = append(away, pr)
			continue
		}
		_, v, err := rd.log(pr)
		switch {
		case errs.Is(err, errs.PartitionNotFound) && rd.plan.Follow:
		case errs.Is(err, errs.NotOwner): // it has moved this moment
			away = append(away, pr)
		case err != nil:
			return nil, err
		default:
			out[pr] = v.End
		}
	}
	if len(away) == 0 {
		return out, nil
	}
	parts := make([]*Part, len(away))
	for i, pr := range away {
		part := pr.Part
		parts[i] = &part
	}
	if err := rd.r.look(ctx, &Plan{Table: rd.plan.Table}, Question{}, parts); err != nil {
		return nil, err
	}
	for i, pr := range away {
		if parts[i].look.There || !pr.born && pr.Start == 0 {
			out[pr] = parts[i].look.End
		} else if !rd.plan.Follow || pr.Partition == "" {
			return nil, rd.lost(pr)
		}
	}
	return out, nil
}

// Done says whether everything was given.
func (rd *Reader) Done() bool {
	if rd.left == 0 {
		return true
	}
	if rd.plan.Follow {
		return false
	}
	for _, pr := range rd.parts {
		if pr.lake || pr.Overlay || pr.state || pr.Start < pr.End {
			return false
		}
	}
	return true
}
