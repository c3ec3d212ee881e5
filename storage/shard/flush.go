package shard

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
)

// flushLoop moves tails to segment files when they grow, and takes checkpoints by
// size, by age and on request.
func (s *Shard) flushLoop(ctx context.Context) {
	tick := time.NewTicker(s.o.CheckpointEvery / 4)
	defer tick.Stop()
	last := s.o.Clock.Now()
	for {
		var asked chan error
		due := false
		select {
		case <-ctx.Done():
			return
		case asked = <-s.checkNow:
			due = true
		case <-s.unflushed:
		case <-tick.C:
			s.snapshots.expire()
			due = s.sinceBytes.Load() > 0 && s.o.Clock.Now().Sub(last) >= s.o.CheckpointEvery
		}
		err := s.flushTails()
		if due || s.sinceBytes.Load() >= s.o.CheckpointBytes {
			if err == nil {
				err = s.checkpoint(ctx)
			}
			last = s.o.Clock.Now()
		}
		if err != nil {
			// The log keeps what is not in a checkpoint; the next round tries again.
			s.o.Logger.ErrorContext(ctx, "checkpoint failed", slog.Int("shard", int(s.o.ID)), slogErr(err))
			s.o.Metrics.checkpointFailures.Inc()
		}
		if asked != nil {
			asked <- err
		}
	}
}

// flushTails moves the tails of buckets that hold much, and, when all tails
// together hold too much, the largest ones, until half of the bound is left.
func (s *Shard) flushTails() error {
	all := s.allBuckets()
	size := func(b *bucketState) int64 { return b.log.View().TailBytes() }
	slices.SortFunc(all, func(a, b *bucketState) int { return cmp.Compare(size(b), size(a)) })
	over := s.tailBytes.Load() > s.o.TailBytes
	for _, b := range all {
		n := size(b)
		pressed := over && s.tailBytes.Load() > s.o.TailBytes/2
		if n == 0 || n <= s.o.BucketTailBytes && !pressed {
			break
		}
		if err := s.flushBucket(b); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shard) flushBucket(b *bucketState) error {
	freed, err := b.log.Flush(b.log.View().End, b.of.schema, b.of.newest().Schema)
	s.tailBytes.Add(-freed)
	wake(s.flushed)
	return err
}

// Checkpoint takes a checkpoint now.
func (s *Shard) Checkpoint(ctx context.Context) error {
	asked := make(chan error, 1)
	select {
	case s.checkNow <- asked:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.loopDone:
		return s.stopped()
	}
	select {
	case err := <-asked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
