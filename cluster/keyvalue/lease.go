package keyvalue

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// renewNow makes hold go on.
func (r *reader) renewNow() {
	select {
	case r.renew <- struct{}{}:
	default:
	}
}

// hold keeps the lease while there are followers and the store can be followed: nobody is
// to wait for a process that sees nothing.
func (r *reader) hold(s *Store) {
	joined, next := false, watch{}
	for {
		broken := s.Err() != nil // which takes Store.mu, and that comes before reader.mu
		r.mu.Lock()
		ended := r.mu.followers == 0 || r.ctx.Err() != nil || broken
		if ended && !joined {
			r.mu.holding = false
			close(r.mu.changed)
			r.mu.changed = make(chan struct{})
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		if ended {
			r.drop(s)
			joined = false
			continue
		}
		sent := s.opts.Clock.Boot()
		var err error
		ctx, cancel := context.WithTimeout(r.ctx, leaseTTL)
		if joined {
			err = r.show(ctx, s, r.last)
		} else {
			err = r.join(ctx, s)
		}
		cancel()
		wait := renewEvery
		switch {
		case err == nil:
			joined = true
			r.extend(sent + leaseTTL)
			r.watchNext(s, &next)
		case errors.Is(err, errExpired):
			s.metrics.lost.Inc()
			s.log.WarnContext(s.ctx, "catalog lease lost, taking it again")
			joined, wait = false, 0
		default:
			wait = 100 * time.Millisecond
			s.metrics.missed.Inc()
			s.log.DebugContext(s.ctx, "catalog lease not renewed", slog.Any("err", err))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.renew:
		case <-r.ctx.Done():
		}
		timer.Stop()
	}
}

func (r *reader) extend(deadline time.Duration) {
	r.deadline.Store(int64(deadline))
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// errExpired says that our last message is not there any more: somebody took us out of
// the list.
var errExpired = errors.New("the lease has expired")

// join puts this process into the list, and waits until its copy is as new as that.
func (r *reader) join(ctx context.Context, s *Store) error {
	_, _ = rand.Read(r.incarnation[:]) // it does not fail (crypto/rand)
	last, _, err := s.lastShown(ctx, s.process)
	if err != nil {
		return err
	}
	if err := r.show(ctx, s, last); err != nil {
		return err
	}
	key := prefixReader + s.process
	for {
		if _, err := s.Sync(ctx); err != nil {
			return err
		}
		revision, err := s.Commit(ctx, s.revisionOf(key), catalog.Write{Key: key, Value: []byte(hex.EncodeToString(r.incarnation[:]))})
		if _, conflict := errors.AsType[*catalog.ConflictError](err); conflict {
			continue
		}
		if err != nil {
			return err
		}
		return s.awaitSeen(ctx, revision)
	}
}

// show shows that this process lives, by a message that follows the one at the sequence last.
func (r *reader) show(ctx context.Context, s *Store, last uint64) error {
	ctx, cancel := s.conn.Request(ctx, apiTimeout)
	defer cancel()
	m := nats.NewMsg(s.names.heartbeat + "." + s.process)
	m.Data = r.incarnation[:]
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	ack, err := s.conn.JetStream().PublishMsg(ctx, m, jetstream.WithExpectStream(s.names.stream), jetstream.WithExpectLastSequencePerSubject(last), jetstream.WithRetryAttempts(0))
	if err == nil {
		r.last = ack.Sequence
		return nil
	}
	api, answered := errors.AsType[*jetstream.APIError](err)
	if !answered || !wrongSequence(api) {
		return err
	}
	// One of ours may be there that had no answer.
	sequence, data, err := s.lastShown(ctx, s.process)
	switch {
	case err != nil:
		return err
	case sequence > last && [16]byte(data) == r.incarnation:
		r.last = sequence
		return nil
	}
	return errExpired
}

// lastShown is the message by which a process showed that it lives; 0: there is none.
func (s *Store) lastShown(ctx context.Context, process string) (uint64, []byte, error) {
	ctx, cancel := s.conn.Request(ctx, readTimeout)
	defer cancel()
	m, err := s.stream.GetLastMsgForSubject(ctx, s.names.heartbeat+"."+process)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, make([]byte, 16), nil
	case err != nil:
		return 0, nil, s.unavailable("reading", err)
	case len(m.Data) != 16:
		return 0, nil, errs.New(errs.CorruptData, "%s: it is not of a reader", s.where(m.Sequence))
	}
	return m.Sequence, m.Data, nil
}

// leave ends being a reader.
func (r *reader) leave() {
	r.stop()
	for {
		r.mu.Lock()
		holding, changed := r.mu.holding, r.mu.changed
		r.mu.Unlock()
		if !holding {
			return
		}
		<-changed
	}
}

// drop takes this process out of the list.
func (r *reader) drop(s *Store) {
	r.deadline.Store(0)
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
	defer cancel()
	entry := s.revisionOf(prefixReader + s.process)
	sequence, _, err := s.lastShown(ctx, s.process)
	if err == nil && entry > 0 {
		err = s.expire(ctx, s.process, sequence, entry)
	}
	if err != nil { // who finds us in the list waits for us in vain, and takes us out
		s.log.DebugContext(ctx, "catalog's list of readers not left", slog.Any("err", err))
	}
}

// Lease waits until the copy may be answered from.
func (s *Store) Lease(ctx context.Context) error {
	if s.opts.Clock.Boot() < time.Duration(s.reader.deadline.Load()) {
		return nil
	}
	for {
		s.reader.mu.Lock()
		changed := s.reader.mu.changed
		s.reader.mu.Unlock()
		if s.opts.Clock.Boot() < time.Duration(s.reader.deadline.Load()) {
			return nil
		}
		if err := s.Err(); err != nil {
			return err
		}
		s.reader.renewNow()
		select {
		case <-changed:
		case <-ctx.Done():
			return errs.New(errs.Unavailable, "NATS has not answered for %v, so the catalog may have changed unseen: %v", leaseTTL, ctx.Err())
		case <-s.ctx.Done():
			return errs.New(errs.Draining, "the catalog's store is closed")
		}
	}
}
