package owner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	millrace "github.com/millrace/millrace"
)

// shardState is what this process does with a shard.
type shardState struct {
	leading     bool
	epoch       millrace.Epoch
	following   bool
	stopped     bool // by itself while a task was under way, which did not know
	busy        bool // a task runs for it
	fails       int  // in a row
	retryAt     time.Duration
	unableUntil time.Duration
}

// decide begins what has to be done for the shards, as the board says.
func (m *Manager) decide(ctx context.Context) {
	now := m.o.Clock.Boot()
	if !m.valid() {
		return
	}
	standings := m.o.Host.Standings()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.board.synced {
		return
	}
	if m.newlyReady(standings) {
		poke(m.renew) // whoever moves a shard here waits for it
	}
	of := m.board.look(now)
	holders := make([]string, m.o.Shards())
	for i := range holders {
		holders[i] = m.board.holder(millrace.ShardID(i))
	}
	places := m.placed.get(of, holders, now-m.board.changedAt >= quiet)
	m.metrics.look(m.shards)
	for i, p := range places {
		id := millrace.ShardID(i)
		s := m.shards[id]
		if s == nil {
			s = &shardState{}
			m.shards[id] = s
		}
		if s.busy || now < s.retryAt {
			continue
		}
		do, running := m.next(id, s, p, now), &m.running
		if do == nil && p.standby == m.o.Worker && holders[i] != m.o.Worker && !s.following && !s.leading {
			do, running = m.follow(id), &m.joining
		}
		if do == nil || *running >= atOnce {
			continue
		}
		s.busy = true
		*running++
		m.wg.Go(func() { m.run(ctx, id, s, do, running) })
	}
}

// task does something for a shard, and returns how the shard stands with us after it.
type task func(ctx context.Context) (after func(s *shardState), err error)

// next is what has to be done for a shard now, other than to begin to follow it; nil when
// nothing has.
// REQUIRES: m.mu is held.
func (m *Manager) next(id millrace.ShardID, s *shardState, p place, now time.Duration) task {
	lease := m.board.leases[id]
	ours := lease.Worker == m.o.Worker && lease.Incarnation == m.session.Incarnation && !lease.Released
	switch {
	case s.stopped:
		return m.abandon(id)
	case s.leading && !ours && lease.revision != 0:
		return m.abandon(id) // somebody took it: our session had ended
	case ours && !s.leading && p.owner != m.o.Worker && p.owner != "":
		return m.release(id, lease, p.owner) // we could not open it
	case ours && !s.leading:
		return m.lead(id, lease, false)
	case ours && p.owner != m.o.Worker && m.ready(p.owner, id):
		return m.move(id, lease, p.owner)
	case !ours && p.owner == m.o.Worker && m.board.takeable(id):
		if lease.revision == 0 && now-m.board.changedAt < settle {
			return nil // the cluster is about to begin: others may come
		}
		return m.lead(id, lease, true)
	case s.following && p.standby != m.o.Worker && p.owner != m.o.Worker:
		return m.abandon(id)
	}
	return nil
}

// ready says whether a shard can be moved to a worker: it follows the shard and had
// everything a moment ago.
// REQUIRES: m.mu is held.
func (m *Manager) ready(worker string, id millrace.ShardID) bool {
	s, live := m.board.sessions[worker]
	return live && s.Standbys[id].Ready
}

// newlyReady says whether a shard that is followed is ready, and the session does not
// say so yet.
// REQUIRES: m.mu is held.
func (m *Manager) newlyReady(now map[millrace.ShardID]Standing) bool {
	for id, st := range now {
		if st.Ready && !m.session.Standbys[id].Ready {
			return true
		}
	}
	return false
}

// run runs a task and notes what became of it. running counts those of its kind.
func (m *Manager) run(ctx context.Context, id millrace.ShardID, s *shardState, do task, running *int) {
	after, err := do(ctx)
	now := m.o.Clock.Boot()
	m.mu.Lock()
	s.busy = false
	*running--
	if after != nil {
		after(s)
	}
	switch {
	case err == nil:
		s.fails, s.retryAt = 0, 0
	case !isConflict(err): // a conflict: the board was old, and the watch tells
		s.fails++
		s.retryAt = now + min(100*time.Millisecond<<min(s.fails, 6), 5*time.Second)
		if s.fails >= unableAfter && len(m.board.members) > 1 {
			s.unableUntil = now + unableFor
		}
	}
	m.mu.Unlock()
	if err != nil && ctx.Err() == nil && !isConflict(err) {
		m.metrics.failed.Inc()
		m.o.Logger.WarnContext(ctx, "shard not as it should be; trying again", slog.Int("shard", int(id)), slog.Any("err", err))
	}
	poke(m.wake)
	poke(m.renew) // others go by what the session says of it
}

// lead makes this process serve a shard: the lease first, when it is not ours yet.
// REQUIRES: m.mu is held.
func (m *Manager) lead(id millrace.ShardID, seen seenLease, take bool) task {
	incarnation, valid := m.session.Incarnation, m.validLocked()
	return func(ctx context.Context) (func(*shardState), error) {
		began := m.o.Clock.Boot()
		lease := Lease{Worker: m.o.Worker, Incarnation: incarnation, Epoch: seen.Epoch + 1}
		rev := seen.revision
		if take {
			var err error
			if rev, err = m.writeLease(ctx, id, lease, rev); err != nil {
				return nil, err
			}
		}
		epoch, err := m.o.Host.Lead(ctx, id, lease.Epoch, valid)
		if err != nil {
			following := func(s *shardState) { s.following = false }
			return following, err
		}
		m.metrics.took.Observe((m.o.Clock.Boot() - began).Seconds())
		m.o.Logger.InfoContext(ctx, "shard taken", slog.Int("shard", int(id)), slog.Uint64("epoch", uint64(epoch)))
		if epoch != lease.Epoch || !take {
			lease.Epoch = epoch
			if _, err := m.writeLease(ctx, id, lease, rev); err != nil {
				m.o.Logger.InfoContext(ctx, "lease does not say the epoch", slog.Int("shard", int(id)), slog.Any("err", err))
			}
		}
		return func(s *shardState) {
			s.leading, s.epoch, s.following = true, epoch, false
		}, nil
	}
}

func (m *Manager) writeLease(ctx context.Context, id millrace.ShardID, l Lease, over uint64) (uint64, error) {
	kctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	var rev uint64
	var err error
	if over == 0 {
		rev, err = m.o.Keys.Create(kctx, leaseKey(id), encode(l))
	} else {
		rev, err = m.o.Keys.Update(kctx, leaseKey(id), encode(l), over)
	}
	if err == nil {
		m.change(func(b *board, now time.Duration) {
			b.put(Entry{Key: leaseKey(id), Value: encode(l), Revision: rev}, now, m.o.Logger)
		})
	}
	return rev, err
}

// move hands a shard over.
func (m *Manager) move(id millrace.ShardID, seen seenLease, to string) task {
	return func(ctx context.Context) (func(*shardState), error) {
		m.o.Logger.InfoContext(ctx, "shard moves", slog.Int("shard", int(id)), slog.String("to", to))
		if err := m.o.Host.Resign(ctx, id); err != nil { // all that was acknowledged is in the log
			m.o.Logger.WarnContext(ctx, "shard resigned without a checkpoint", slog.Int("shard", int(id)), slog.Any("err", err))
		}
		m.metrics.moved.Inc()
		_, err := m.release(id, seen, to)(ctx)
		return func(s *shardState) { s.leading, s.following = false, false }, err
	}
}

// release lets go of a lease of a shard that is not served.
func (m *Manager) release(id millrace.ShardID, seen seenLease, to string) task {
	return func(ctx context.Context) (func(*shardState), error) {
		let := seen.Lease
		let.Released, let.To = true, to
		_, err := m.writeLease(ctx, id, let, seen.revision)
		return nil, err
	}
}

func (m *Manager) follow(id millrace.ShardID) task {
	return func(ctx context.Context) (func(*shardState), error) {
		if err := m.o.Host.Follow(ctx, id); err != nil {
			return nil, err
		}
		return func(s *shardState) { s.following = true }, nil
	}
}

func (m *Manager) abandon(id millrace.ShardID) task {
	return func(context.Context) (func(*shardState), error) {
		m.o.Host.Abandon(id)
		return func(s *shardState) { s.leading, s.following, s.stopped = false, false, false }, nil
	}
}

// Stopped tells that a shard that was led or followed has stopped by itself: its log
// could not say what became of a record, or another owner is there.
func (m *Manager) Stopped(id millrace.ShardID, cause error) {
	m.o.Logger.Warn("shard stopped", slog.Int("shard", int(id)), slog.Any("err", cause))
	m.mu.Lock()
	if s := m.shards[id]; s != nil {
		// A task that is under way may be about to say that the shard is led.
		s.leading, s.following, s.stopped = false, false, s.busy
	}
	m.mu.Unlock()
	poke(m.wake)
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*ConflictError](err)
	return ok
}
