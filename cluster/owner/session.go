package owner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// openSession begins the session of this process, over one that is there under its name
// when that may be taken over.
func (m *Manager) openSession(ctx context.Context) error {
	s := Session{Worker: m.o.Worker, Incarnation: m.o.Random(), Info: m.o.Info, Draining: m.draining()}
	p := predecessor{own: []string{m.o.Last, s.Incarnation}} // the latter when an answer was lost
	m.remember(ctx, s.Incarnation)
	for {
		sent := m.o.Clock.Boot()
		kctx, cancel := context.WithTimeout(ctx, keyTimeout)
		old, there, err := m.o.Keys.Get(kctx, sessionKey(s.Worker))
		taken := false
		if err == nil && there && m.o.Host != nil {
			if taken, err = p.lives(old, sent); err != nil {
				cancel()
				return err
			}
		}
		var rev uint64
		if err == nil && !taken {
			rev, err = m.write(kctx, s, old.Revision)
		}
		cancel()
		switch {
		case err == nil && !taken:
			m.hold(held{Session: s, revision: rev}, sent)
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("opening the session of worker %s: %w", s.Worker, context.Cause(ctx))
		case err != nil && !isConflict(err):
			m.o.Logger.WarnContext(ctx, "session not opened yet", slog.String("worker", s.Worker), slog.Any("err", err))
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

// write writes the session over a revision, 0 for none.
func (m *Manager) write(ctx context.Context, s Session, over uint64) (uint64, error) {
	if over == 0 {
		return m.o.Keys.Create(ctx, sessionKey(s.Worker), encode(s))
	}
	return m.o.Keys.Update(ctx, sessionKey(s.Worker), encode(s), over)
}

func (m *Manager) hold(h held, sent time.Duration) {
	m.mu.Lock()
	h.Draining = m.session.Draining
	m.session = h
	m.generation.Add(1)
	m.mu.Unlock()
	m.deadline.Store(int64(sent + TTL))
}

// keepSession renews the session until ctx ends.
func (m *Manager) keepSession(ctx context.Context) {
	for ctx.Err() == nil {
		t := time.NewTimer(renewEvery)
		select {
		case <-t.C:
		case <-m.renew:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
		if err := m.renewSession(ctx); err != nil && ctx.Err() == nil {
			m.metrics.missed.Inc()
			m.o.Logger.WarnContext(ctx, "session not renewed", slog.Any("err", err))
			sleep(ctx, 200*time.Millisecond)
			poke(m.renew) // soon again: it lives for fifteen seconds only
		}
	}
}

// renewSession writes the session anew, with what has changed in it.
func (m *Manager) renewSession(ctx context.Context) error {
	m.mu.Lock()
	h := m.session
	h.Unable = m.unableLocked(m.o.Clock.Boot())
	m.mu.Unlock()
	if m.o.Host != nil {
		h.Standbys = m.o.Host.Standings()
	}
	sent := m.o.Clock.Boot()
	kctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	rev, err := m.write(kctx, h.Session, h.revision)
	if err == nil {
		m.renewed(h, rev, sent)
		return nil
	}
	if !isConflict(err) {
		return err
	}
	return m.contested(kctx, h)
}

func (m *Manager) renewed(h held, rev uint64, sent time.Duration) {
	m.mu.Lock()
	h.Draining = m.session.Draining // may have been set meanwhile
	h.revision = rev
	m.session = h
	m.mu.Unlock()
	m.deadline.Store(int64(sent + TTL))
}

// contested finds out who changed the session: ourselves, by a renewal whose answer was
// lost; a challenger, who ended it; or another process under our name.
func (m *Manager) contested(ctx context.Context, h held) error {
	e, there, err := m.o.Keys.Get(ctx, sessionKey(h.Worker))
	if err != nil {
		return err
	}
	if !there {
		m.o.Logger.ErrorContext(ctx, "session lost: others took it for dead; beginning a new one", slog.String("worker", h.Worker))
		m.lose()
		return m.openSession(ctx)
	}
	var found Session
	if err := json.Unmarshal(e.Value, &found); err != nil {
		return errs.New(errs.CorruptData, "session of worker %s does not read: %v", h.Worker, err)
	}
	if found.Incarnation != h.Incarnation {
		m.lose()
		err := errOneName(h.Worker)
		m.fail(err)
		return err
	}
	m.mu.Lock() // the deadline stays: it is not known which renewal it was
	m.session.revision = e.Revision
	m.mu.Unlock()
	return nil
}

// lose gives up everything that the session stood for.
func (m *Manager) lose() {
	m.deadline.Store(0)
	m.generation.Add(1)
	m.mu.Lock()
	var led []millrace.ShardID
	for id, s := range m.shards {
		if s.leading {
			s.leading, s.epoch = false, 0
			if !s.busy { // else it is handed over or abandoned already
				led = append(led, id)
			}
		}
	}
	m.mu.Unlock()
	for _, id := range led {
		m.o.Host.Abandon(id)
	}
}

// unableLocked are the shards that could not be opened lately.
// REQUIRES: m.mu is held.
func (m *Manager) unableLocked(now time.Duration) []millrace.ShardID {
	var out []millrace.ShardID
	for _, id := range slices.Sorted(maps.Keys(m.shards)) {
		if now < m.shards[id].unableUntil {
			out = append(out, id)
		}
	}
	return out
}
