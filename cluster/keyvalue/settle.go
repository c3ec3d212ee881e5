package keyvalue

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/errs"
)

// settling is a run of settle that callers wait for.
type settling struct {
	done chan struct{}
	err  error
}

// awaitSeen waits until this process's follower has seen a revision.
func (s *Store) awaitSeen(ctx context.Context, revision uint64) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !s.feed.Followed() || s.feed.Seen() < revision {
		select {
		case <-tick.C:
			if !s.reader.followed() {
				return errs.New(errs.Draining, "nobody follows the catalog's store")
			}
		case <-ctx.Done():
			return errs.Wrap(errs.Unavailable, "keyvalue", ctx.Err())
		}
	}
	return nil
}

// Settled is the highest revision known to be seen by every reader.
func (s *Store) Settled() uint64 { return s.reader.settled.Load() }

func (r *reader) settle(revision uint64) {
	for {
		have := r.settled.Load()
		if have >= revision || r.settled.CompareAndSwap(have, revision) {
			return
		}
	}
}

// Settle waits for every reader. Those who wait at a time wait together.
func (s *Store) Settle(ctx context.Context, revision uint64) error {
	r := &s.reader
	for s.Settled() < revision {
		r.mu.Lock()
		if r.mu.settles == nil {
			r.mu.settles = &settling{done: make(chan struct{})}
		}
		mine := r.mu.settles
		if !r.mu.running {
			r.mu.running = true
			s.tasks.Go(func() { r.run(s) })
		}
		r.mu.Unlock()
		select {
		case <-mine.done:
			if mine.err != nil {
				return mine.err
			}
		case <-ctx.Done():
			return &errs.Error{
				Code: errs.UnknownOutcome, Op: "catalog.Settle", Err: ctx.Err(),
				Message: "the change is made, and whether every process has seen it is not known",
			}
		case <-s.ctx.Done():
			return errs.New(errs.Draining, "the catalog's store is closed")
		}
	}
	return nil
}

// run settles as long as somebody waits.
func (r *reader) run(s *Store) {
	for {
		r.mu.Lock()
		mine := r.mu.settles
		r.mu.settles = nil
		if mine == nil || s.ctx.Err() != nil {
			r.mu.running = false
			r.mu.Unlock()
			if mine != nil {
				mine.err = errs.New(errs.Draining, "the catalog's store is closed")
				close(mine.done)
			}
			return
		}
		r.mu.Unlock()
		begun := s.opts.Clock.Boot()
		if mine.err = r.ask(s, s.position()); mine.err == nil {
			s.metrics.settle.Observe((s.opts.Clock.Boot() - begun).Seconds())
		}
		close(mine.done)
	}
}

// ask asks all readers whether they have seen a revision, until they have or are out of
// the list.
func (r *reader) ask(s *Store, revision uint64) error {
	if len(s.others()) == 0 {
		r.settle(revision)
		return nil
	}
	nc := s.conn.NATS()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return errs.Wrap(errs.Unavailable, "catalog.Settle", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be gone
	seen, silent, begun := map[string]bool{}, map[string]*watch{}, s.opts.Clock.Boot()
	for s.ctx.Err() == nil {
		missing := slices.DeleteFunc(s.others(), func(p string) bool { return seen[p] })
		if len(missing) == 0 {
			r.settle(revision)
			_ = nc.Publish(s.names.settled, binary.LittleEndian.AppendUint64(nil, revision)) // others ask themselves
			return nil
		}
		_ = nc.PublishRequest(s.names.ask, inbox, binary.LittleEndian.AppendUint64(nil, revision)) // it is asked again
		ctx, cancel := context.WithTimeout(s.ctx, askEvery)
		for len(missing) > 0 {
			m, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				break
			}
			process := string(m.Data)
			seen[process] = true
			missing = slices.DeleteFunc(missing, func(p string) bool { return p == process })
		}
		cancel()
		if s.opts.Clock.Boot()-begun < time.Second {
			continue
		}
		if err := s.Err(); err != nil {
			return err
		}
		for _, process := range missing {
			if silent[process] == nil {
				silent[process] = &watch{process: process}
			}
			silent[process].look(s)
		}
	}
	return errs.New(errs.Draining, "the catalog's store is closed")
}

// asked answers when this process has seen a revision.
func (s *Store) asked(m *nats.Msg) {
	if len(m.Data) != 8 || m.Reply == "" {
		return
	}
	revision := binary.LittleEndian.Uint64(m.Data)
	r := &s.reader
	r.mu.Lock()
	if len(r.mu.pending) < 10_000 { // they ask again
		r.mu.pending[m.Reply] = revision
	}
	r.mu.Unlock()
	if revision > s.position() {
		s.lookNow()
	}
	r.answer(s)
}

// answer answers those who wait for a revision that is seen now.
func (r *reader) answer(s *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.pending) == 0 || !s.feed.Followed() {
		return
	}
	seen := s.feed.Seen()
	for inbox, revision := range r.mu.pending {
		if revision <= seen {
			delete(r.mu.pending, inbox)
			_ = s.conn.NATS().Publish(inbox, []byte(s.process)) // they ask again
		}
	}
}

// toldSettled takes over what another process found out.
func (s *Store) toldSettled(m *nats.Msg) {
	if len(m.Data) == 8 {
		s.reader.settle(binary.LittleEndian.Uint64(m.Data))
	}
}
