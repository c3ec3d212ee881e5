package shard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

// stuckRetry is how long after a failed flush or checkpoint it is tried again.
const stuckRetry = 500 * time.Millisecond

// flushLoop moves tails to segment files when they grow, and takes checkpoints by
// size, by age and on request.
func (s *Shard) flushLoop(ctx context.Context) {
	defer close(s.flushDone)
	tick := time.NewTicker(s.o.CheckpointEvery / 4)
	defer tick.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	expire := time.NewTimer(expireSoonest)
	defer expire.Stop()
	last := s.o.Clock.Now()
	due := false
	begin := func() trace.Span {
		_, span := s.traced(ctx, "shard flush")
		return span
	}
	for {
		var asked chan error
		unflushed := s.unflushed
		if s.stuck.Load() != nil {
			unflushed = nil // every group would ask again
		}
		select {
		case <-ctx.Done():
			return
		case asked = <-s.checkNow:
			due = true
		case <-unflushed:
		case <-retry.C:
		case <-s.uploads.idle:
			if s.uploadBehind() && !due {
				s.offer(ctx, s.cut())
			}
			continue
		case asked := <-s.expiry.ask:
			asked <- s.lookForExpired()
			continue
		case <-s.expiry.soon:
			s.expiry.sooner(expire)
			continue
		case <-expire.C:
			s.lookForExpired()
			expire.Reset(s.expiry.every)
			if due = due || s.releaseDue(); !due {
				continue
			}
		case <-tick.C:
			s.snapshots.expire()
			s.uploadAge()
			due = due || s.awayDue() || s.sinceBytes.Load() > 0 && s.o.Clock.Now().Sub(last) >= s.o.CheckpointEvery
		}
		due = due || s.sinceBytes.Load() >= s.o.CheckpointBytes
		err := s.flushTails(begin)
		if err == nil && due {
			if err = s.checkpoint(ctx); err == nil {
				last, due = s.o.Clock.Now(), false
			}
		}
		err = diskError(err)
		s.setStuck(err)
		if err != nil {
			retry.Reset(stuckRetry)
		}
		if asked != nil {
			asked <- err
		}
	}
}

// setStuck notes whether flushes and checkpoints go well. When they do not, the log
// keeps what is not in a checkpoint, and the next round tries again.
func (s *Shard) setStuck(err error) {
	defer wake(s.flushed) // a loop that waits for room looks again
	if err == nil {
		if s.stuck.Swap(nil) != nil {
			s.o.Logger.Info("checkpoints succeed again", slog.Int("shard", int(s.o.ID)))
		}
		return
	}
	if errors.Is(err, context.Canceled) {
		return // the shard closes
	}
	if s.stuck.Swap(&err) == nil {
		s.o.Logger.Error("checkpoint failed, it is tried again", slog.Int("shard", int(s.o.ID)), slogErr(err))
	}
	s.o.Metrics.checkpointFailures.Inc()
}

// diskError gives what became of a flush or checkpoint the code for writers that
// wait for it.
func diskError(err error) error {
	switch {
	case err == nil, errs.Is(err, errs.StorageFull), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errs.Wrap(errs.StorageFull, "shard.checkpoint", err)
	}
	return errs.Wrap(errs.Unavailable, "shard.checkpoint", err)
}

// flushTails moves the tails of buckets that hold much, and, when all tails
// together hold too much, the largest ones, until half of the bound is left. Where there
// is something to move it begins a span.
func (s *Shard) flushTails(begin func() trace.Span) (err error) {
	type sized struct {
		b     *bucketState
		bytes int64
	}
	var all []sized
	for _, b := range s.allBuckets() {
		if n := b.log.View().TailBytes(); n > 0 {
			all = append(all, sized{b, n})
		}
	}
	slices.SortFunc(all, func(a, b sized) int { return cmp.Compare(b.bytes, a.bytes) })
	over := s.tailBytes.Load() > s.o.TailBytes
	var span trace.Span
	defer func() { span.End(unlessDropped(err)) }()
	for _, f := range all {
		if f.bytes <= s.o.BucketTailBytes && (!over || s.tailBytes.Load() <= s.o.TailBytes/2) {
			break
		}
		if !span.On() {
			span = begin()
		}
		if err := s.flushBucket(f.b); err != nil {
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
	if err := s.Err(); err != nil {
		return err
	}
	asked := make(chan error, 1)
	select {
	case s.checkNow <- asked:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.flushDone:
		return s.stoppedError()
	case <-s.kv.Dead():
		return s.Err()
	}
	select {
	case err := <-asked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.kv.Dead():
		return s.Err()
	}
}
