package shard

import (
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/kv"
)

// Bounds of one sweep: each checkpoint asks for one.
const (
	sweepBuckets = 256
	sweepWriters = 1024
)

// idleSweep is where the forgetting of idle writers goes on.
type idleSweep struct {
	bucket millrace.BucketID
	after  string // the scope looked at last
}

// forgetIdle drops what is known of writers of which nothing was taken for long,
// some at a time. This is not in the log: a crash may bring them back. Where it
// matters that a writer was forgotten, the entry says so (writerFresh).
//
// A key is mostly used once, so there may be as many as requests. Where at least half
// of what was looked at is forgotten the sweep goes on after the next group: what is
// kept for nothing is then never more than what is kept for good reason.
func (s *Shard) forgetIdle(ctx context.Context, g *group) {
	batch := s.kv.NewBatch()
	looked, removed, err := s.sweepIdle(ctx, g, batch)
	if err == nil && removed > 0 {
		err = batch.Commit(s.applied.Load().lsn)
	} else {
		_ = batch.Discard() // nothing in it is wanted
	}
	if err != nil {
		s.o.Logger.ErrorContext(ctx, "idle writers are not forgotten", slogErr(err))
		return
	}
	s.o.Metrics.writersForgotten.Add(float64(removed))
	if removed > 0 && 2*removed >= looked {
		wake(s.sweep)
	}
}

// sweepIdle looks at the next writers in turn.
func (s *Shard) sweepIdle(ctx context.Context, g *group, batch *kv.Batch) (looked, removed int, err error) {
	all := s.allBuckets()
	slices.SortFunc(all, func(a, b *bucketState) int { return a.id.Compare(b.id) })
	i, _ := slices.BinarySearchFunc(all, s.idle.bucket, func(b *bucketState, id millrace.BucketID) int { return b.id.Compare(id) })
	now := s.o.Clock.Now()
	prepared := func(ref writerRef) bool {
		_, found := g.writers[ref]
		if !found && s.inFlight != nil {
			_, found = s.inFlight.writers[ref]
		}
		return found
	}
	for n := 0; n < min(len(all), sweepBuckets) && looked < sweepWriters; n++ {
		if i >= len(all) {
			i, s.idle = 0, idleSweep{}
		}
		b := all[i]
		if b.id != s.idle.bucket {
			s.idle = idleSweep{bucket: b.id}
		}
		idle := func(scope string, seenMicros int64) bool {
			return forgotten(scope, seenMicros, now) && !prepared(writerRef{b.id, scope})
		}
		l, r, next, err := batch.ForgetIdle(ctx, b.id, s.idle.after, sweepWriters-looked, idle)
		if err != nil {
			return 0, 0, err
		}
		looked, removed = looked+l, removed+r
		if s.idle.after = next; next == "" {
			i++
			s.idle = idleSweep{bucket: after(b.id)}
		}
	}
	return looked, removed, nil
}

// after is the least bucket id above another, in the order of Compare.
func after(id millrace.BucketID) millrace.BucketID {
	id.Bucket++
	if id.Bucket == 0 {
		id.Partition++
	}
	return id
}
