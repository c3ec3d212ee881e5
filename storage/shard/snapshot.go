package shard

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/kv"
)

// Snapshot is the keyed state of the shard at one instant. Each user calls Release.
type Snapshot struct {
	sn   *kv.Snapshot
	refs atomic.Int32
	done func(closeErr error)
}

// Meta is what the snapshot knows of a bucket: Next is the offset its rows stand for.
func (sn *Snapshot) Meta(id millrace.BucketID) (kv.Meta, error) { return sn.sn.Meta(id) }

// Rows walks the rows of a bucket in key order: those whose key begins with
// prefix and lies above afterKey (nil: all). The caller closes the walk, before
// it releases the snapshot.
func (sn *Snapshot) Rows(ctx context.Context, id millrace.BucketID, prefix, afterKey []byte) (*kv.Rows, error) {
	return sn.sn.Rows(ctx, id, prefix, afterKey)
}

// Retain adds a use.
func (sn *Snapshot) Retain() *Snapshot {
	sn.refs.Add(1)
	return sn
}

// Release ends one use.
func (sn *Snapshot) Release() {
	if sn.refs.Add(-1) == 0 {
		sn.done(sn.sn.Close())
	}
}

// Snapshot pins the state as of now. The caller releases it.
func (s *Shard) Snapshot() (*Snapshot, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	if !s.reads.enter() {
		return nil, s.stoppedError()
	}
	defer s.reads.leave()
	s.applyMu.RLock()
	defer s.applyMu.RUnlock()
	sn := &Snapshot{sn: s.kv.NewSnapshot(), done: func(err error) {
		if err != nil {
			s.o.Logger.Error("snapshot close failed", slogErr(err))
		}
		s.snapshots.open.Done()
	}}
	sn.refs.Store(1)
	s.snapshots.open.Add(1)
	if err := s.refusal(); err != nil { // the state may be one that others went on from
		sn.Release()
		return nil, err
	}
	return sn, nil
}

// snapshotTable holds snapshots for readers that come back: pages and tickets.
type snapshotTable struct {
	mu     sync.Mutex
	most   int
	clock  Clock
	held   map[string]*heldSnapshot
	closed bool
	open   sync.WaitGroup // snapshots not closed yet: the store may not close before
}

type heldSnapshot struct {
	sn       *Snapshot
	table    millrace.TableID
	idle     time.Duration
	deadline time.Time // of all use; zero when only idleness ends it
	lastUse  time.Time
}

func (t *snapshotTable) init(most int, clock Clock) {
	t.most, t.clock, t.held = most, clock, map[string]*heldSnapshot{}
}

// Hold keeps a snapshot for readers of a table under an id, until it was not used for
// idle, or ttl from now has passed (0: no such end), or others press it out. It takes
// over one use.
func (s *Shard) Hold(sn *Snapshot, table millrace.TableID, idle, ttl time.Duration) string {
	t := &s.snapshots
	t.mu.Lock()
	defer t.mu.Unlock()
	id := uuid.NewString()
	if t.closed {
		sn.Release()
		return id // which is gone already
	}
	now := t.clock.Now()
	t.expireLocked(now)
	for len(t.held) >= t.most {
		t.evictLocked()
	}
	h := &heldSnapshot{sn: sn, table: table, idle: idle, lastUse: now}
	if ttl > 0 {
		h.deadline = now.Add(ttl)
	}
	t.held[id] = h
	return id
}

// Held is the snapshot with an id; errs.SnapshotGone when it is no longer held.
// The caller releases it.
func (s *Shard) Held(id string) (*Snapshot, error) {
	if err := s.refusal(); err != nil {
		return nil, err
	}
	t := &s.snapshots
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	t.expireLocked(now)
	h := t.held[id]
	if h == nil {
		return nil, errs.New(errs.SnapshotGone, "the snapshot this page or ticket reads is no longer held (idle too long, a restart, or pressure): start the read again")
	}
	h.lastUse = now
	h.sn.refs.Add(1)
	return h.sn, nil
}

// Promised is the lowest offset of a bucket that a snapshot stands for which is held
// for readers of its table; NoOffset when none is. They may want the changelog from
// there.
func (s *Shard) Promised(id millrace.BucketID) (millrace.Offset, error) {
	if err := s.refusal(); err != nil {
		return 0, err
	}
	low := millrace.NoOffset
	var err error
	for _, sn := range s.snapshots.of(id.Table) {
		m, merr := sn.Meta(id)
		sn.Release()
		err = cmp.Or(err, merr)
		if low == millrace.NoOffset || m.Next < low {
			low = m.Next
		}
	}
	return low, err
}

// of are the snapshots held for readers of a table. The caller releases them.
func (t *snapshotTable) of(table millrace.TableID) []*Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(t.clock.Now())
	var out []*Snapshot
	for _, h := range t.held {
		if h.table == table {
			out = append(out, h.sn.Retain())
		}
	}
	return out
}

// Rehold says anew how long a held snapshot is kept: as Hold does, from now.
func (s *Shard) Rehold(id string, idle, ttl time.Duration) error {
	if err := s.refusal(); err != nil {
		return err
	}
	t := &s.snapshots
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	t.expireLocked(now)
	h := t.held[id]
	if h == nil {
		return errs.New(errs.SnapshotGone, "the snapshot of this ticket is no longer held")
	}
	h.idle, h.lastUse, h.deadline = idle, now, time.Time{}
	if ttl > 0 {
		h.deadline = now.Add(ttl)
	}
	return nil
}

// LetGo ends the holding of a snapshot; readers that use it finish.
func (s *Shard) LetGo(id string) {
	t := &s.snapshots
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropLocked(id)
}

// REQUIRES: t.mu is held.
func (t *snapshotTable) expireLocked(now time.Time) {
	for id, h := range t.held {
		if now.Sub(h.lastUse) > h.idle || !h.deadline.IsZero() && now.After(h.deadline) {
			t.dropLocked(id)
		}
	}
}

// REQUIRES: t.mu is held.
func (t *snapshotTable) evictLocked() {
	oldest, at := "", time.Time{}
	for id, h := range t.held {
		if oldest == "" || h.lastUse.Before(at) {
			oldest, at = id, h.lastUse
		}
	}
	t.dropLocked(oldest)
}

// REQUIRES: t.mu is held.
func (t *snapshotTable) dropLocked(id string) {
	if h := t.held[id]; h != nil {
		delete(t.held, id)
		h.sn.Release()
	}
}

// expire lets go of what is due.
func (t *snapshotTable) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(t.clock.Now())
}

// closeAll lets go of everything and waits for the readers that still use a snapshot.
// REQUIRES: no more snapshots are taken.
func (t *snapshotTable) closeAll(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	for id := range t.held {
		t.dropLocked(id)
	}
	t.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.open.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shard.Close: readers still use snapshots: %w", ctx.Err())
	}
}
