package keyvalue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// where names a message in errors.
func (s *Store) where(sequence uint64) string {
	return fmt.Sprintf("message %d of stream %s", sequence, s.names.stream)
}

// next is the first commit at or after a sequence, as the stream's leader has it; nil:
// there is none.
func (s *Store) next(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := s.conn.Request(ctx, readTimeout)
	defer cancel()
	m, err := s.stream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(s.names.commit))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, s.unavailable("reading", err)
	}
	return m, nil
}

// end is the sequence of the last commit, as the stream's leader has it; 0: there is none.
func (s *Store) end(ctx context.Context) (uint64, error) {
	s.ends.Add(1)
	ctx, cancel := s.conn.Request(ctx, readTimeout)
	defer cancel()
	m, err := s.stream.GetLastMsgForSubject(ctx, s.names.commit)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, s.unavailable("reading the end of", err)
	}
	return m.Sequence, nil
}

// catchUp reads commits until there is none that is new.
func (s *Store) catchUp(ctx context.Context) error {
	if err := take(ctx, s.catching); err != nil {
		return err
	}
	defer func() { <-s.catching }()
	for {
		if err := s.Err(); err != nil {
			return err
		}
		m, err := s.next(ctx, s.position()+1)
		if m == nil || err != nil {
			return err
		}
		gap, err := s.apply(m.Sequence, m.Data)
		if err != nil {
			s.fail(err)
			return err
		}
		if gap {
			// The commits between have been purged, since a snapshot has them.
			if err := s.reload(ctx); err != nil {
				if errs.Is(err, errs.CorruptData) || errs.Is(err, errs.NotImplemented) {
					s.fail(err)
				}
				return err
			}
		}
	}
}

func (s *Store) position() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.position
}

// apply takes over the commit at a sequence. One that is known is passed over; gap says
// that commits before it are missing.
func (s *Store) apply(sequence uint64, b []byte) (gap bool, err error) {
	m, err := s.coder.decode(b, kindCommit, s.where(sequence))
	if err != nil {
		return false, err
	}
	writes, ok := decodeWrites(m.payload)
	if !ok {
		return false, errs.New(errs.CorruptData, "%s: its writes do not decode", s.where(sequence))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sequence <= s.mu.position:
		return false, nil
	case m.previous > s.mu.position:
		return true, nil
	case m.previous < s.mu.position:
		return false, errs.New(errs.CorruptData, "%s: the commit before it is said to be %d, and is %d", s.where(sequence), m.previous, s.mu.position)
	}
	shown := make([]catalog.Write, 0, len(writes))
	for _, w := range writes {
		if w.Value == nil {
			delete(s.mu.entries, w.Key)
		} else {
			s.mu.entries[w.Key] = catalog.Entry{Key: w.Key, Value: w.Value, Revision: sequence}
		}
		if !strings.HasPrefix(w.Key, prefixReader) {
			shown = append(shown, w)
		}
	}
	_, own := s.mu.ours[m.id]
	if own {
		s.mu.ours[m.id] = sequence
	}
	s.moveLocked(sequence)
	s.mu.sinceCommits++
	s.mu.sinceBytes += len(m.payload)
	// The feed has commits in order, so it gets them under this lock.
	s.feed.Add(catalog.Committed{Revision: sequence, Writes: shown, Own: own})
	return false, nil
}

// REQUIRES: s.mu held.
func (s *Store) moveLocked(position uint64) {
	s.mu.position = position
	close(s.mu.moved)
	s.mu.moved = make(chan struct{})
}

// reload begins anew with the newest snapshot that can be read.
func (s *Store) reload(ctx context.Context) error {
	var missing, revision uint64
	var entries map[string]catalog.Entry
	for {
		var err error
		if revision, entries, err = s.readSnapshot(ctx); err != nil {
			return err
		}
		first, err := s.next(ctx, revision+1)
		if err != nil {
			return err
		}
		if first == nil {
			break
		}
		m, err := s.coder.decode(first.Data, kindCommit, s.where(first.Sequence))
		if err == nil && m.previous != revision {
			// Others may have compacted twice while this process read; once more tells.
			if again := revision + 1; missing != again {
				missing = again
				continue
			}
			err = errs.New(errs.CorruptData, "stream %s: the commits from %d to %d are missing, and no snapshot has them that can be read", s.names.stream, revision+1, m.previous)
		}
		if err != nil {
			return err
		}
		break
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision <= s.mu.position {
		return nil
	}
	s.mu.entries, s.mu.snapshot, s.mu.loaded = entries, revision, revision
	s.mu.sinceCommits, s.mu.sinceBytes = 0, 0
	s.moveLocked(revision)
	s.feed.Reset(revision)
	return nil
}

// poll looks for commits of which nobody told, and for a stream that is not what it was.
func (s *Store) poll() {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.kick:
		case <-s.ctx.Done():
			return
		}
		end, err := s.end(s.ctx)
		if err == nil {
			s.checkEnd(end)
			if end > s.position() {
				err = s.catchUp(s.ctx)
			}
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.DebugContext(s.ctx, "catalog stream not read", slog.Any("err", err))
		}
	}
}

// checkEnd notices that the stream has lost its end: then this process knows commits
// that were acknowledged and are gone, and nobody must go on without them unasked.
func (s *Store) checkEnd(end uint64) {
	now := s.opts.Clock.Boot()
	s.mu.Lock()
	back := end < s.mu.position
	if !back {
		s.mu.backSince = 0
	} else if s.mu.backSince == 0 {
		s.mu.backSince = now
	}
	gone := back && now-s.mu.backSince > backwardsAfter
	position := s.mu.position
	s.mu.Unlock()
	if gone {
		s.fail(errs.New(errs.CorruptData, "stream %s ends at commit %d, and commit %d was read from it: NATS has lost what it acknowledged; restore the stream, or import the catalog from the object store", s.names.stream, end, position))
	}
}

// tellCommit tells every process of a commit that is in the stream.
func (s *Store) tellCommit(sequence uint64, b []byte) {
	m := append(binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(b)), sequence), b...)
	// Who does not hear of it finds it.
	_ = s.conn.NATS().Publish(s.names.told, m)
}

// toldCommit is told of a commit.
func (s *Store) toldCommit(m *nats.Msg) {
	if len(m.Data) < 8 {
		return
	}
	sequence := binary.LittleEndian.Uint64(m.Data)
	if sequence <= s.position() || s.Err() != nil {
		return
	}
	gap, err := s.apply(sequence, slices.Clone(m.Data[8:]))
	if gap || err != nil { // what is in the stream counts
		s.lookNow()
	}
}

// lookNow makes poll look.
func (s *Store) lookNow() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Sync reads up to the stream's end, as its leader has it.
func (s *Store) Sync(ctx context.Context) (uint64, error) {
	for {
		if err := s.Err(); err != nil {
			return 0, err
		}
		end, err := s.end(ctx)
		switch {
		case err != nil && ctx.Err() == nil && s.ctx.Err() == nil:
			if err := pause(ctx, s.ctx.Done(), 50*time.Millisecond); err != nil {
				return 0, err
			}
			continue
		case err != nil:
			return 0, err
		}
		if position := s.position(); position >= end {
			return position, nil
		}
		if err := s.catchUp(ctx); err != nil && (ctx.Err() != nil || s.ctx.Err() != nil || s.Err() != nil) {
			return 0, err
		}
	}
}

// pause waits, unless ctx or the life of what waits ends.
func pause(ctx context.Context, ended <-chan struct{}, d time.Duration) error {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.Unavailable, "keyvalue", ctx.Err())
	case <-ended:
		return errs.New(errs.Draining, "the catalog's store, or its connection to NATS, is closed")
	}
}
