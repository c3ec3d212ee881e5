package keyvalue

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A snapshot is due after so many commits or bytes since the newest one.
const (
	compactCommits = 1000
	compactBytes   = 8 << 20
	compactTimeout = 2 * time.Minute
)

// compactor makes snapshots, one at a time in a process.
type compactor struct {
	running atomic.Bool
	// fail is asked before each step; tests end a compaction there.
	fail func(step string) error
}

func (c *compactor) step(name string) error {
	if c.fail == nil {
		return nil
	}
	return c.fail(name)
}

// due begins a compaction when one is due. It is called by whoever made a commit, so
// that of many processes few begin.
func (c *compactor) due(s *Store) {
	s.mu.Lock()
	due := s.mu.sinceCommits >= compactCommits || s.mu.sinceBytes >= compactBytes
	due = due && !s.mu.closed
	s.mu.Unlock()
	if !due || !c.running.CompareAndSwap(false, true) {
		return
	}
	s.tasks.Go(func() {
		defer c.running.Store(false)
		ctx, cancel := context.WithTimeout(s.ctx, compactTimeout)
		defer cancel()
		if err := s.compactStale(ctx); err != nil && s.ctx.Err() == nil {
			s.metrics.failed.Inc()
			s.log.WarnContext(ctx, "catalog not compacted, trying again", slog.Any("err", err))
		}
	})
}

// compactStale compacts unless another process has just done it.
func (s *Store) compactStale(ctx context.Context) error {
	whole, _, err := s.snapshots(ctx)
	if err != nil {
		return err
	}
	if len(whole) > 0 && whole[0].revision+compactCommits/2 > s.position() {
		return s.purge(ctx, whole)
	}
	return s.Compact(ctx)
}

// Compact writes a snapshot and purges what is not needed any more: commits that the
// snapshot before has, and older snapshots. The two newest snapshots that can be read
// stay, with all commits after the older. So whatever is left undone when a process ends, the
// stream is whole.
func (s *Store) Compact(ctx context.Context) error {
	if _, err := s.writeSnapshot(ctx); err != nil {
		return err
	}
	s.metrics.snapshots.Inc()
	whole, _, err := s.snapshots(ctx)
	if err != nil {
		return err
	}
	return s.purge(ctx, whole)
}

// purge removes what two newest snapshots make superfluous.
func (s *Store) purge(ctx context.Context, whole []snapshotName) error {
	var kept []uint64
	for _, n := range whole {
		if len(kept) > 0 && n.revision == kept[len(kept)-1] {
			continue
		}
		if _, err := s.readOne(ctx, n); err != nil {
			s.log.WarnContext(ctx, "snapshot of the catalog not readable", slog.Any("err", err))
			continue
		}
		if kept = append(kept, n.revision); len(kept) == 2 {
			break
		}
	}
	if len(kept) == 0 {
		return nil
	}
	s.noteSnapshot(kept[0])
	if len(kept) < 2 {
		return nil
	}
	older := kept[1]
	if err := s.compact.step("purge commits"); err != nil {
		return err
	}
	// What is purged is what is below the sequence; the newest snapshot's own commit is above.
	if err := s.purgeBelow(ctx, s.names.commit, older+1); err != nil {
		return err
	}
	again, unfinished, err := s.snapshots(ctx)
	if err != nil {
		return err
	}
	for _, n := range append(again, unfinished...) {
		if n.revision >= older {
			continue
		}
		if err := s.compact.step("purge snapshot"); err != nil {
			return err
		}
		// The end goes first, so that what is left is not taken for a snapshot.
		if err := s.purgeBelow(ctx, s.snapshotSubject(n, "end"), 0); err != nil {
			return err
		}
		if err := s.compact.step("purge parts"); err != nil {
			return err
		}
		if err := s.purgeBelow(ctx, s.snapshotSubject(n, "*"), 0); err != nil {
			return err
		}
	}
	return nil
}

// noteSnapshot notes how much was committed since the newest snapshot.
func (s *Store) noteSnapshot(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.snapshot = max(s.mu.snapshot, revision)
	// Sequences are of all messages, so there are at most so many commits.
	s.mu.sinceCommits = min(s.mu.sinceCommits, int(s.mu.position-min(s.mu.position, s.mu.snapshot)))
	s.mu.sinceBytes = 0
}

// purgeBelow removes the messages of a subject below a sequence, all with 0.
func (s *Store) purgeBelow(ctx context.Context, subject string, sequence uint64) error {
	ctx, cancel := s.conn.Request(ctx, apiTimeout)
	defer cancel()
	opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject)}
	if sequence > 0 {
		opts = append(opts, jetstream.WithPurgeSequence(sequence))
	}
	if err := s.stream.Purge(ctx, opts...); err != nil {
		return s.unavailable("purging", err)
	}
	return nil
}
