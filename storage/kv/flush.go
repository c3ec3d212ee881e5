package kv

import (
	"context"
	"sync/atomic"
	"time"
)

// pendingFlush is a flush that was asked for and has not ended: a failed one is
// tried again by Pebble, so a second is not begun beside it.
type pendingFlush struct {
	done    <-chan struct{} // nil: none
	through uint64          // commits that it makes durable
}

// Flush makes all that was applied durable. An error says that it is not durable
// yet: Pebble goes on trying, and a later Flush waits for that.
func (s *Store) Flush(ctx context.Context) error {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	want := s.commits.Load()
	for {
		if s.flush.done == nil && s.flush.through >= want {
			return nil
		}
		if s.flush.done == nil {
			if err := s.begin(ctx); err != nil {
				return err
			}
		}
		if err := s.await(ctx, s.flush.done); err != nil {
			return err
		}
		s.flush.done = nil
	}
}

// begin starts a flush. REQUIRES: s.flushMu is held.
func (s *Store) begin(ctx context.Context) error {
	// With many full memtables, Pebble would make the caller wait where the next
	// commit waits too.
	for {
		room, err := s.Room()
		if err != nil {
			return err
		}
		if room {
			break
		}
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
	if err := s.bg.death(); err != nil {
		return err
	}
	through := s.commits.Load()
	done, err := s.db.AsyncFlush()
	if err != nil {
		return diskError("kv.Flush", err)
	}
	s.flush = pendingFlush{done: done, through: through}
	return nil
}

// await waits until done is closed. A job of Pebble that fails meanwhile ends the
// waiting.
func (s *Store) await(ctx context.Context, done <-chan struct{}) error {
	fails, changed, _ := s.bg.state()
	for {
		select {
		case <-done:
			return nil
		case <-s.bg.dead:
			return s.bg.death()
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		n, next, failing := s.bg.state()
		changed = next
		if n > fails && failing != nil {
			return diskError("kv.Flush", failing)
		}
	}
}

// RoomPoll is how often to ask for Room again: memory is let go a little after the
// flush that made it free.
const RoomPoll = 10 * time.Millisecond

func (s *Store) pause(ctx context.Context) error {
	t := time.NewTimer(RoomPoll)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.bg.dead:
		return s.bg.death()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Room says whether a commit can be made without waiting for a flush; an error says
// that the flushes fail.
func (s *Store) Room() (bool, error) {
	if s.mem.bytes(s) <= s.stallBytes/2 {
		return true, nil
	}
	_, _, failing := s.bg.state()
	return false, diskError("kv", failing)
}

// memGauge is how much memory the memtables take. Asking Pebble is not free, so
// it is asked again when that much may have changed.
type memGauge struct {
	at, size atomic.Uint64
}

func (g *memGauge) bytes(s *Store) uint64 {
	committed := s.committed.Load()
	if size := g.size.Load(); committed-g.at.Load() < s.stallBytes/16 && size <= s.stallBytes/2 {
		return size
	}
	g.at.Store(committed)
	size := s.db.Metrics().MemTable.Size
	g.size.Store(size)
	return size
}
