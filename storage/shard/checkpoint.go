package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/trace"
)

const (
	// In a checkpoint, tails at least this large go to segment files; smaller ones
	// of all buckets go together into one tails file, which is written anew each time.
	tailToSegmentBytes = 256 << 10
	// A tails file holds at most about this much; beyond it the largest tails go to segments.
	tailsFileBytes = 16 << 20
)

// cut is what a checkpoint is of: the record applied last, and the buckets and tables
// as of that record.
type cut struct {
	at      *appliedAt
	tables  []*tableState
	buckets []*bucketState
	sealed  []SealedPartition
}

// cut takes what there is now. Groups are applied under the same lock, so that no
// bucket is missing that the log writes to after the cut, and none is there that the
// log dropped before.
func (s *Shard) cut() cut {
	s.applyMu.RLock()
	defer s.applyMu.RUnlock()
	return s.cutLocked()
}

// REQUIRES: s.applyMu is held.
func (s *Shard) cutLocked() cut {
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	c := cut{at: s.applied.Load(), tables: values(s.tables), buckets: values(s.buckets), sealed: s.sealedListLocked()}
	slices.SortFunc(c.tables, func(a, b *tableState) int { return cmp.Compare(a.newest().ID, b.newest().ID) })
	slices.SortFunc(c.buckets, func(a, b *bucketState) int { return a.id.Compare(b.id) })
	return c
}

// checkpoint makes everything applied so far durable outside the log, publishes a
// manifest that says so, and lets the log be purged (S5).
func (s *Shard) checkpoint(ctx context.Context) error {
	started := s.o.Clock.Now()
	for {
		c := s.cut()
		if c.at == nil || c.at.lsn <= s.manifest.lsn && !s.releaseDue() && !s.awayDue() {
			return nil
		}
		logged := s.sinceBytes.Swap(0)
		err := s.writeCheckpoint(ctx, c)
		if err == nil {
			s.offer(ctx, c)
			wake(s.sweep)
			s.o.Metrics.checkpointSeconds.Observe(s.o.Clock.Now().Sub(started).Seconds())
			s.o.Logger.DebugContext(ctx, "checkpoint", slog.Int("shard", int(s.o.ID)), slog.Uint64("lsn", uint64(c.at.lsn)), slog.Int64("log_bytes", logged))
			return nil
		}
		s.sinceBytes.Add(logged)
		if !errors.Is(err, bucket.ErrClosed) {
			return err
		}
		// A bucket was dropped before its files were durable, so it cannot be in this
		// checkpoint; but the log writes to it until it drops it. The next cut is
		// behind the drop.
	}
}

func (s *Shard) writeCheckpoint(ctx context.Context, c cut) (err error) {
	ctx, span := s.traced(ctx, "shard checkpoint")
	defer func() { span.Int("millrace.lsn", int64(c.at.lsn)).End(unlessDropped(err)) }()
	// What is read from here on holds at least all up to the cut; what it holds
	// beyond is skipped when the log is replayed.
	m := &Manifest{
		Cluster: s.o.Cluster[:], Shard: s.o.ID, Number: s.manifest.number + 1,
		LSN: c.at.lsn, Tail: c.at.tail, FeatureLevel: FeatureLevel, Sealed: c.sealed,
	}
	for _, t := range c.tables {
		m.addTable(t)
	}
	m.Remote = s.uploads.known()
	s.sendAway(c.buckets)
	if err := s.release(c.buckets); err != nil {
		return err
	}
	s.o.Hook("checkpoint:released")
	if err := s.flushForCheckpoint(c.buckets); err != nil {
		return err
	}
	var tails []bucket.TailBatch
	for _, b := range c.buckets {
		st, err := b.log.Sync()
		if err != nil {
			return err
		}
		tails = append(tails, st.Tail...)
		m.Buckets = append(m.Buckets, bucketManifest(b.id, &st))
	}
	s.o.Hook("checkpoint:segments")
	if m.Tails, err = writeTails(s.o.FS, s.o.Dir, m.Number, tails); err != nil {
		return err
	}
	s.o.Hook("checkpoint:tails")
	if err := s.kv.Flush(ctx); err != nil {
		return err
	}
	s.o.Hook("checkpoint:state")
	if err := writeManifest(s.o.FS, s.o.Dir, m); err != nil {
		return err
	}
	s.o.Hook("checkpoint:manifest")
	older := s.manifest.number
	s.manifest = manifestInfo{number: m.Number, lsn: m.LSN, tail: m.Tail}
	s.checkpointed.Store(uint64(m.LSN))
	if !s.following && s.o.Remote == nil { // else others say what the log may let go of
		if err := s.log.Purge(ctx, m.LSN); err != nil {
			return fmt.Errorf("shard.checkpoint: purge: %w", err)
		}
	}
	s.o.Hook("checkpoint:purged")
	s.removeDoomed(m.LSN)
	s.removeReleased()
	s.o.Hook("checkpoint:removed")
	return s.removeManifestsBefore(older)
}

// traced begins the span of what a shard does unasked.
func (s *Shard) traced(ctx context.Context, name string) (context.Context, trace.Span) {
	ctx, span := s.o.Tracer.Begin(ctx, name)
	return ctx, span.Int("millrace.shard", int64(s.o.ID))
}

// unlessDropped is an error, unless it is that a bucket was dropped meanwhile.
func unlessDropped(err error) error {
	if errors.Is(err, bucket.ErrClosed) {
		return nil
	}
	return err
}

// flushForCheckpoint moves large tails to segments, and the largest of the others
// until what is left fits a tails file.
func (s *Shard) flushForCheckpoint(all []*bucketState) error {
	var left int64
	for _, b := range all {
		n := b.log.View().TailBytes()
		if n >= tailToSegmentBytes || left+n > tailsFileBytes {
			if err := s.flushBucket(b); err != nil {
				return err
			}
			n = b.log.View().TailBytes()
		}
		left += n
	}
	return nil
}

// removeManifestsBefore removes superseded manifests and tails, but for the one
// with the given number, which is kept for a person to look at.
func (s *Shard) removeManifestsBefore(number uint64) error {
	names, err := s.o.FS.List(s.o.Dir)
	if err != nil {
		return fmt.Errorf("shard.checkpoint: %w", err)
	}
	for _, name := range names {
		if _, n, ok := parseNumbered(name); ok && n < number {
			if err := s.o.FS.Remove(path.Join(s.o.Dir, name)); err != nil {
				return fmt.Errorf("shard.checkpoint: %w", err)
			}
		}
	}
	return nil
}

// publishFile makes a file appear whole and durable under its name, or not at all.
func publishFile(fs vfs.FS, dir, name string, write func(f vfs.File) error) error {
	tmp := path.Join(dir, name+".tmp")
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", tmp, err)
	}
	if err := fs.Rename(tmp, path.Join(dir, name)); err != nil {
		return err
	}
	return bucket.SyncDir(fs, dir)
}

func corrupt(file, format string, args ...any) error {
	return errs.New(errs.CorruptData, "%s: %s", file, fmt.Sprintf(format, args...))
}
