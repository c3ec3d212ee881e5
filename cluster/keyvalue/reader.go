package keyvalue

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// Every process that answers from its copy stands in the list of readers: a key
// prefixReader+process, written by a commit as all others. It shows every renewEvery that it
// lives, by a message of its own subject that must follow its last one, and may answer
// for leaseTTL from when it sent the last that was acknowledged. Who takes it out of the list,
// since it has not shown for longer, purges that message first: then the next one of the
// process is refused, and it begins anew.
const (
	prefixReader = "\x00reader/"

	leaseTTL   = 10 * time.Second
	renewEvery = 3 * time.Second
	// expireAfter is how long a message must have stood unchanged, on one's own clock.
	expireAfter = leaseTTL + time.Second
	// askEvery is how long answers are waited for before all are asked again.
	askEvery = 200 * time.Millisecond
)

// reader is what a Store does as a reader of the catalog, and with other readers.
type reader struct {
	incarnation [16]byte
	settled     atomic.Uint64
	deadline    atomic.Int64 // on the boot clock: until when the copy may be answered from

	mu struct {
		sync.Mutex
		followers int
		holding   bool              // hold runs
		changed   chan struct{}     // closed when the deadline moves, and when hold ends
		pending   map[string]uint64 // who waits, by inbox, for which revision to be seen
		settles   *settling         // the next run
		running   bool
	}
	renew chan struct{}   // asks for a renewal
	ctx   context.Context // of hold; leave ends it
	stop  context.CancelFunc
	last  uint64 // sequence of our last message; of the goroutine hold
}

// settling is a run of settle that callers wait for.
type settling struct {
	done chan struct{}
	err  error
}

func (r *reader) init(s *Store) {
	r.mu.changed, r.mu.pending = make(chan struct{}), map[string]uint64{}
	r.renew = make(chan struct{}, 1)
	r.ctx, r.stop = context.WithCancel(s.ctx)
	s.feed.OnSeen(func() { r.answer(s) })
}

// begin makes this process a reader, as long as it has followers: end ends that.
func (r *reader) begin(s *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.followers++
	if r.mu.holding || r.ctx.Err() != nil {
		return
	}
	r.mu.holding = true
	s.tasks.Go(func() { r.hold(s) })
}

func (r *reader) end() {
	r.mu.Lock()
	r.mu.followers--
	r.mu.Unlock()
	r.renewNow()
}

// renewNow makes hold go on.
func (r *reader) renewNow() {
	select {
	case r.renew <- struct{}{}:
	default:
	}
}

// followed says whether there are followers.
func (r *reader) followed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.followers > 0
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

func (s *Store) revisionOf(key string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.entries[key].Revision
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

// others are the readers besides this process.
func (s *Store) others() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for key := range s.mu.entries {
		if process, ok := strings.CutPrefix(key, prefixReader); ok && process != s.process {
			out = append(out, process)
		}
	}
	slices.Sort(out)
	return out
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

// watch watches the message by which a process shows that it lives.
type watch struct {
	process  string
	sequence uint64        // of the message
	entry    uint64        // of the commit that put the process into the list
	since    time.Duration // when both were first seen
}

// look takes the process out of the list when it has not shown for too long.
func (w *watch) look(s *Store) {
	ctx, cancel := context.WithTimeout(s.ctx, apiTimeout)
	defer cancel()
	sequence, _, err := s.lastShown(ctx, w.process)
	entry, now := s.revisionOf(prefixReader+w.process), s.opts.Clock.Boot()
	switch {
	case err != nil || entry == 0:
	case w.since == 0 || sequence != w.sequence || entry != w.entry:
		w.sequence, w.entry, w.since = sequence, entry, now
	case now-w.since > expireAfter:
		s.log.WarnContext(ctx, "process taken out of the catalog's readers", slog.String("process", w.process))
		if err := s.expire(ctx, w.process, sequence, entry); err != nil {
			s.log.DebugContext(ctx, "it is still there", slog.Any("err", err))
		}
	}
}

// watchNext watches the reader after this one in the list's order, so that one that is
// gone is out of the list before somebody waits for it.
func (r *reader) watchNext(s *Store, w *watch) {
	others := s.others()
	if len(others) == 0 {
		return
	}
	i, _ := slices.BinarySearch(others, s.process)
	if next := others[i%len(others)]; next != w.process {
		*w = watch{process: next}
	}
	w.look(s)
}

// expire takes a process out of the list that has shown last by the message at a sequence,
// and stands in the list by the commit entry.
func (s *Store) expire(ctx context.Context, process string, sequence, entry uint64) error {
	// First of all its next message must be refused: then it knows that it is out.
	if sequence > 0 {
		if err := s.purgeBelow(ctx, s.names.heartbeat+"."+process, sequence+1); err != nil {
			return err
		}
	}
	if again, _, err := s.lastShown(ctx, process); err != nil || again > 0 {
		return err // it has shown meanwhile
	}
	_, err := s.Commit(ctx, entry, catalog.Write{Key: prefixReader + process})
	if _, conflict := errors.AsType[*catalog.ConflictError](err); conflict {
		return nil // it stands there anew, or is out
	}
	return err
}
