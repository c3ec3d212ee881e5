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
func (s *Shard) forgetIdle(ctx context.Context, g *group) {
	before := s.o.Clock.Now().Add(-writerIdle).UnixMicro()
	batch := s.kv.NewBatch()
	removed, err := s.sweepIdle(ctx, g, batch, before)
	if err == nil && removed > 0 {
		err = batch.Commit(s.applied.Load().lsn)
	} else {
		_ = batch.Discard() // nothing in it is wanted
	}
	if err != nil {
		s.o.Logger.ErrorContext(ctx, "idle writers are not forgotten", slogErr(err))
	}
}

// sweepIdle looks at the next writers in turn.
func (s *Shard) sweepIdle(ctx context.Context, g *group, batch *kv.Batch, before int64) (removed int, err error) {
	all := s.allBuckets()
	slices.SortFunc(all, func(a, b *bucketState) int { return a.id.Compare(b.id) })
	i, _ := slices.BinarySearchFunc(all, s.idle.bucket, func(b *bucketState, id millrace.BucketID) int { return b.id.Compare(id) })
	keep := func(id millrace.BucketID, scope string) bool {
		ref := writerRef{id, scope}
		_, prepared := g.writers[ref]
		if !prepared && s.inFlight != nil {
			_, prepared = s.inFlight.writers[ref]
		}
		return prepared
	}
	looked := 0
	for n := 0; n < min(len(all), sweepBuckets) && looked < sweepWriters; n++ {
		if i >= len(all) {
			i, s.idle = 0, idleSweep{}
		}
		b := all[i]
		if b.id != s.idle.bucket {
			s.idle = idleSweep{bucket: b.id}
		}
		l, r, next, err := batch.ForgetIdle(ctx, b.id, before, s.idle.after, sweepWriters-looked, keep)
		if err != nil {
			return 0, err
		}
		looked, removed = looked+l, removed+r
		if s.idle.after = next; next == "" {
			i++
			s.idle = idleSweep{bucket: after(b.id)}
		}
	}
	return removed, nil
}

// after is the least bucket id above another, in the order of Compare.
func after(id millrace.BucketID) millrace.BucketID {
	id.Bucket++
	if id.Bucket == 0 {
		id.Partition++
	}
	return id
}
