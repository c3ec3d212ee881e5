package router

import (
	"cmp"
	"context"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/shard"
)

// What a plan has to know of its buckets, it asks each shard for once, of all of them.

// Question is what is asked of buckets of a shard, beside what their logs hold.
type Question struct {
	Table   millrace.TableID
	Buckets []millrace.BucketID
	// Snapshot asks to hold the state for readers of the table, and where it stands; of
	// logs it is asked after that.
	Snapshot bool
	// Rows asks how many rows of keyed state there are.
	Rows bool
	// Promised asks for what held snapshots promise; see shard.Shard.Promised.
	Promised bool
	// Times ask for the offsets at times (µs); two at most.
	Times []int64
	// Written asks for the time at which the record at an offset was written, by bucket;
	// nil: of none.
	Written []millrace.Offset
}

// Look is what is to be known of a bucket.
type Look struct {
	LogRange
	There    bool            // something was written to it
	Bytes    int64           // of its log, stored
	Next     millrace.Offset // of the snapshot: the offset that its rows stand for
	Rows     int64
	Promised millrace.Offset
	At       [2]millrace.Offset
	Micros   int64 // when the record was written; 0 when the log does not hold it
}

// Looks are the answers to a Question.
type Looks struct {
	Buckets  []Look
	Snapshot string // the id under which the state is held; "" when it was not asked for
}

// Answer answers for a shard that is here, and holds the snapshot that is asked for.
func (q *Question) Answer(sh *shard.Shard) (*Looks, error) {
	out := &Looks{}
	var sn *shard.Snapshot
	if q.Snapshot {
		var err error
		if sn, err = sh.Snapshot(); err != nil {
			return nil, err
		}
	}
	var err error
	out.Buckets, err = q.look(sh, sn)
	switch {
	case err != nil && sn != nil:
		sn.Release()
	case sn != nil:
		out.Snapshot = sh.Hold(sn, q.Table, PageIdle, 0)
	}
	return out, err
}

// look looks at the buckets of a shard that is here. sn is its snapshot, or nil.
func (q *Question) look(sh *shard.Shard, sn *shard.Snapshot) ([]Look, error) {
	out := make([]Look, len(q.Buckets))
	for i, id := range q.Buckets {
		if err := q.lookAt(sh, sn, i, id, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (q *Question) lookAt(sh *shard.Shard, sn *shard.Snapshot, i int, id millrace.BucketID, out *Look) error {
	if sn != nil {
		m, err := sn.Meta(id)
		if err != nil {
			return err
		}
		out.Next, out.Rows = m.Next, m.Rows
	} else if q.Rows {
		var err error
		if out.Rows, err = sh.Rows(id); err != nil {
			return err
		}
	}
	lg, v, err := sh.Log(id)
	if err != nil {
		return err
	}
	if q.Promised {
		if out.Promised, err = sh.Promised(id); err != nil {
			return err
		}
	}
	if v == nil {
		return nil
	}
	out.There, out.LogRange, out.Bytes = true, LogRange{v.Start, v.Kept, v.End}, v.Bytes()
	for k, micros := range q.Times[:min(len(q.Times), len(out.At))] {
		if out.At[k], err = lg.OffsetAt(v, micros); err != nil {
			return err
		}
	}
	if i < len(q.Written) {
		out.Micros, err = writtenAt(lg, v, q.Written[i])
	}
	return err
}

// writtenAt is when the record at an offset was written (µs); 0 when the log does not
// hold it.
func writtenAt(lg *bucket.Log, v *bucket.View, off millrace.Offset) (int64, error) {
	if off < v.Kept || off >= v.End {
		return 0, nil
	}
	b, err := lg.At(v, off)
	if errs.Is(err, errs.OffsetOutOfRange) { // the log let go of it this moment
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return b.Header.TimeAt(int(off - b.Header.Base)), b.Release()
}

// pinned is the keyed state of a shard that a plan stands on.
type pinned struct {
	sn *shard.Snapshot // of a shard that is here
	id string          // else: its owner holds it under this id
}

// look asks for the buckets of some parts, each shard once, and notes the answers in
// them. With q.Snapshot the plan stands on the state of these shards from then on; of a
// shard on which it does already that state is meant.
func (r *Router) look(ctx context.Context, p *Plan, q Question, parts []*Part) error {
	byShard := map[millrace.ShardID][]int{}
	var ids []millrace.ShardID
	for i, part := range parts {
		if byShard[part.Shard] == nil {
			ids = append(ids, part.Shard)
		}
		byShard[part.Shard] = append(byShard[part.Shard], i)
	}
	pins := make([]pinned, len(ids))
	err := r.onEach(ids, func(k int) error {
		of := q
		of.Table = p.Table.ID
		of.Buckets = make([]millrace.BucketID, len(byShard[ids[k]]))
		if q.Written != nil {
			of.Written = make([]millrace.Offset, len(of.Buckets))
		}
		for j, i := range byShard[ids[k]] {
			of.Buckets[j] = parts[i].Bucket
			if q.Written != nil {
				of.Written[j] = q.Written[i]
			}
		}
		looks, pin, err := r.ask(ctx, ids[k], &of, p.snaps[ids[k]].sn)
		pins[k] = pin
		if err != nil {
			return err
		}
		for j, i := range byShard[ids[k]] {
			parts[i].look, parts[i].looked = looks[j], true
		}
		return nil
	})
	for k, id := range ids {
		if pins[k] != (pinned{}) {
			p.snaps[id] = pins[k]
		}
	}
	return err
}

// ask asks one shard. sn is its snapshot when there is one already.
func (r *Router) ask(ctx context.Context, id millrace.ShardID, q *Question, sn *shard.Snapshot) (out []Look, pin pinned, err error) {
	err = r.on(ctx, id, func(sh *shard.Shard) (err error) {
		if q.Snapshot && sn == nil {
			if pin.sn, err = sh.Snapshot(); err != nil {
				return err
			}
		}
		if out, err = q.look(sh, cmp.Or(sn, pin.sn)); err != nil && pin.sn != nil {
			pin.sn.Release()
			pin.sn = nil
		}
		return err
	}, func(rem Remote) error {
		looks, err := rem.Look(ctx, q)
		if err != nil {
			return err
		}
		if len(looks.Buckets) != len(q.Buckets) || q.Snapshot != (looks.Snapshot != "") {
			return errs.New(errs.Internal, "shard %d was asked for %d buckets and answers for %d", id, len(q.Buckets), len(looks.Buckets))
		}
		out, pin.id = looks.Buckets, looks.Snapshot
		return nil
	})
	return out, pin, err
}

// refs are the parts of a list that some are of; nil: all.
func refs(parts []Part, some func(*Part) bool) []*Part {
	out := make([]*Part, 0, len(parts))
	for i := range parts {
		if some == nil || some(&parts[i]) {
			out = append(out, &parts[i])
		}
	}
	return out
}

// hasLog says whether there is a log to look at.
func hasLog(p *Part) bool { return !p.LakeOnly }

// letGoTime bounds what is waited for an owner to let go of a snapshot.
const letGoTime = 5 * time.Second

// unhold ends the holding of a snapshot, in the background when its owner is elsewhere:
// what is not let go of ends by itself when it was not used for a while.
func (r *Router) unhold(id millrace.ShardID, snapshot string) {
	sh, rem := r.o.Owners.Owner(id)
	switch {
	case sh != nil:
		sh.LetGo(snapshot)
	case rem != nil:
		select {
		case r.letting <- struct{}{}:
		default:
			return
		}
		go func() {
			defer func() { <-r.letting }()
			ctx, cancel := context.WithTimeout(context.Background(), letGoTime)
			defer cancel()
			if err := rem.LetGo(ctx, snapshot); err != nil {
				r.o.Logger.DebugContext(ctx, "a snapshot is not let go of, and ends by itself", errAttr(err))
			}
		}()
	}
}
