package keyvalue

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// Commit publishes one message behind the last commit that this process knows, and
// only there. A message without an answer is sent again, the same: it can be there once
// only, and its id says whether it is the one that is there.
func (s *Store) Commit(ctx context.Context, expect uint64, writes ...catalog.Write) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := take(ctx, s.commits); err != nil {
		return 0, err
	}
	defer func() { <-s.commits }()
	m := message{kind: kindCommit, payload: encodeWrites(writes)}
	if _, err := rand.Read(m.id[:]); err != nil {
		return 0, errs.Wrap(errs.Internal, "catalog.Commit", err)
	}
	b := s.coder.encode(m)
	if limit := int(s.conn.NATS().MaxPayload()) - headroom; len(b) > limit || len(m.payload) > maxRaw {
		return 0, errs.New(errs.TooLarge, "a change of the catalog has %d writes and %d bytes, and a message for NATS may have %d; change less at a time, or raise max_payload", len(writes), len(b), limit)
	}
	s.mu.Lock()
	s.mu.ours[m.id] = 0
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.ours, m.id)
	}()
	begun := s.opts.Clock.Boot()
	revision, err := s.commit(ctx, expect, writes[0].Key, m.id, b)
	if _, conflict := errors.AsType[*catalog.ConflictError](err); conflict {
		s.metrics.conflicts.Inc()
	} else if err != nil {
		s.metrics.failures.Inc()
	} else {
		s.metrics.commit.Observe((s.opts.Clock.Boot() - begun).Seconds())
		s.compact.due(s)
	}
	return revision, err
}

// commit publishes b until it is there or cannot be.
func (s *Store) commit(ctx context.Context, expect uint64, guard string, id [16]byte, b []byte) (uint64, error) {
	for {
		if err := s.ready(ctx); err != nil {
			return 0, err
		}
		s.mu.Lock()
		previous, got := s.mu.position, s.mu.entries[guard].Revision
		s.mu.Unlock()
		if got != expect {
			return 0, &catalog.ConflictError{Key: guard, Want: expect, Got: got}
		}
		revision, err := s.publish(ctx, previous, id, repoint(b, previous))
		if revision > 0 || err != nil {
			return revision, err
		}
	}
}

// ready says whether a commit may be begun.
func (s *Store) ready(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return errs.New(errs.Draining, "the catalog is closed")
	case s.mu.broken != nil:
		return errs.Wrap(errs.Unavailable, "catalog.Commit", s.mu.broken)
	case ctx.Err() != nil:
		return errs.Wrap(errs.Unavailable, "catalog.Commit", ctx.Err())
	}
	return nil
}

// publish puts b behind the commit previous. When another commit is there, the revision
// is 0 and b is not in the stream and never will be.
func (s *Store) publish(ctx context.Context, previous uint64, id [16]byte, b []byte) (uint64, error) {
	unanswered := false
	for {
		sequence, outcome, err := s.send(ctx, previous, b)
		switch outcome {
		case published:
			if gap, err := s.apply(sequence, b); err != nil {
				s.fail(err)
				return 0, err
			} else if gap {
				if err := s.catchUp(ctx); err != nil {
					return 0, unknown(err)
				}
			}
			s.tellCommit(sequence, b)
			return sequence, nil
		case refused:
			if !unanswered {
				return 0, err
			}
		case unheard:
			unanswered = true
		case taken:
		}
		// Something is there, or may be: what it is decides.
		if err := s.catchUp(ctx); err == nil {
			s.mu.Lock()
			sequence, position := s.mu.ours[id], s.mu.position
			s.mu.Unlock()
			switch {
			case sequence > 0:
				s.tellCommit(sequence, b)
				return sequence, nil
			case position > previous:
				// A reader that had to begin with a snapshot cannot tell.
				if unanswered && s.snapshotAfter(previous) {
					return 0, unknown(errors.New("the commits of that time are purged"))
				}
				return 0, nil
			}
		}
		perr := pause(ctx, s.ctx.Done(), 20*time.Millisecond)
		if broken := s.Err(); perr == nil && broken != nil {
			perr = errs.Wrap(errs.Unavailable, "catalog.Commit", broken)
		}
		if perr != nil {
			if unanswered {
				return 0, unknown(perr)
			}
			return 0, perr
		}
	}
}

// snapshotAfter says whether this process began with a snapshot of after a commit, and so
// has not seen all commits after it.
func (s *Store) snapshotAfter(previous uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.loaded > previous
}

func unknown(err error) error {
	return &errs.Error{
		Code: errs.UnknownOutcome, Op: "catalog.Commit", Err: err,
		Message: "NATS did not answer; whether the change took effect is not known",
	}
}

// outcome is what became of a message that was sent.
type outcome uint8

const (
	published outcome = iota + 1 // it is there
	taken                        // another commit is in its place
	refused                      // it is not there, and will not be
	unheard                      // nobody knows
)

// send sends a message once.
func (s *Store) send(ctx context.Context, previous uint64, b []byte) (uint64, outcome, error) {
	ctx, cancel := s.conn.Request(ctx, apiTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return 0, refused, errs.New(errs.Unavailable, "there is no connection to NATS")
	}
	ack, err := s.conn.JetStream().PublishMsg(ctx, &nats.Msg{Subject: s.names.commit, Data: b},
		jetstream.WithExpectStream(s.names.stream), jetstream.WithExpectLastSequencePerSubject(previous), jetstream.WithRetryAttempts(0))
	api, answered := errors.AsType[*jetstream.APIError](err)
	switch {
	case s.lose != nil && s.lose():
		return 0, unheard, context.DeadlineExceeded
	case err == nil:
		return ack.Sequence, published, nil
	case answered && wrongSequence(api):
		return 0, taken, nil
	case answered && (api.ErrorCode == errNoStore || api.ErrorCode == errStore && strings.Contains(api.Description, "maximum")):
		return 0, refused, errs.New(errs.StorageFull, "stream %s takes no more: %s", s.names.stream, api.Description)
	case answered && api.ErrorCode == errStore:
		return 0, unheard, err // it may be on another server's disk
	case answered:
		return 0, refused, s.unavailable("writing to", err)
	case errors.Is(err, nats.ErrMaxPayload):
		return 0, refused, errs.New(errs.TooLarge, "a change of the catalog has %d bytes, and NATS takes no message of that size; change less at a time, or raise max_payload", len(b))
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return 0, taken, nil // the stream has no leader; it is tried again
	}
	return 0, unheard, err
}

// The server's numbers of errors.
const (
	errNoStore jetstream.ErrorCode = 10047
	errStore   jetstream.ErrorCode = 10077
)

func wrongSequence(err *jetstream.APIError) bool {
	return err.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || err.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}
