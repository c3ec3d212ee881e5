package owner

import (
	"context"
	"log/slog"
	"maps"
	"time"

	millrace "github.com/millrace/millrace"
)

// Drain moves all shards to other workers, and returns when they are gone. When ctx
// ends, or nobody else is there, those that are left are let go of as they are.
func (m *Manager) Drain(ctx context.Context) {
	m.mu.Lock()
	m.session.Draining = true
	m.mu.Unlock()
	poke(m.renew)
	for ctx.Err() == nil && m.Err() == nil && m.leads() > 0 && m.others() {
		poke(m.wake)
		sleep(ctx, 50*time.Millisecond)
	}
}

func (m *Manager) draining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session.Draining
}

// leads is how many shards this process serves.
func (m *Manager) leads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, s := range m.shards {
		if s.leading {
			n++
		}
	}
	return n
}

// others says whether there is another worker that could take shards.
func (m *Manager) others() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.board.candidates() {
		if c.name != m.o.Worker {
			return true
		}
	}
	return false
}

// Stop ends everything: shards that are still here are resigned and released, and the
// session is ended, so that nobody waits for it to expire.
func (m *Manager) Stop(ctx context.Context) error {
	if m.cancel == nil {
		return nil
	}
	m.cancel()
	m.wg.Wait()
	if m.o.Host != nil {
		m.letGo(ctx)
	}
	m.deadline.Store(0)
	kctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	if err := m.o.Keys.Delete(kctx, sessionKey(m.o.Worker), m.session.revision); err != nil && !isConflict(err) {
		m.o.Logger.WarnContext(ctx, "session not ended; others wait until it expires", slog.Any("err", err))
	}
	return nil
}

// letGo releases the shards that are still here. No task runs any more, but others may look,
// and shards stop by themselves.
func (m *Manager) letGo(ctx context.Context) {
	m.mu.Lock()
	left := maps.Clone(m.shards)
	m.mu.Unlock()
	for id, s := range left {
		m.mu.Lock()
		was, lease := *s, m.board.leases[id]
		m.mu.Unlock()
		switch {
		case was.following:
			m.o.Host.Abandon(id)
		case was.leading:
			if _, err := m.move(id, lease, "")(ctx); err != nil && !isConflict(err) {
				m.o.Logger.WarnContext(ctx, "lease not released", slog.Int("shard", int(id)), slog.Any("err", err))
			}
		}
		m.mu.Lock()
		*s = shardState{}
		m.mu.Unlock()
	}
}

// Leading is the epoch in which this process serves a shard; false when it does not.
func (m *Manager) Leading(id millrace.ShardID) (millrace.Epoch, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.shards[id]
	if s == nil || !s.leading {
		return 0, false
	}
	return s.epoch, true
}

// Kill ends the manager as a crash does: nothing is released or told to anyone.
func (m *Manager) Kill() {
	m.cancel()
	m.wg.Wait()
	m.deadline.Store(0)
}
