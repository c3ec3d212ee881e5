package shard

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/wal"
)

// loop gathers a group while the one before is in flight, and applies that one
// while the next is in flight.
func (s *Shard) loop(ctx context.Context) {
	defer close(s.loopDone)
	next := newGroup()
	var landed chan appendOutcome // of s.inFlight
	for {
		if s.inFlight == nil {
			if !s.await(ctx, next) {
				s.refuseQueued()
				return
			}
			if next.empty() {
				continue // it was refused
			}
			landed = s.append(ctx, next)
			s.inFlight, next = next, newGroup()
			continue
		}
		out := s.gather(ctx, next, landed)
		before := s.inFlight
		if out.err != nil {
			s.dropGroups(before, next, out)
			if s.Err() != nil {
				s.refuseQueued()
				return
			}
			s.inFlight, next = nil, newGroup()
			continue
		}
		// The append of `next` overlaps with applying `before`, on top of which it was
		// prepared.
		sent := !next.empty()
		if sent {
			landed = s.append(ctx, next)
		}
		before.tell(out)
		if err := s.apply(before, out.at); err != nil {
			s.fail(err)
			s.abandon(before, next, sent, landed)
			return
		}
		s.inFlight = nil
		if sent {
			s.inFlight, next = next, newGroup()
		}
	}
}

// await takes the first requests of a group when nothing is in flight; false at the
// end.
func (s *Shard) await(ctx context.Context, g *group) bool {
	for {
		queue, poll, stop := s.openQueue(g)
		select {
		case p := <-queue:
			stop()
			s.take(g, p)
			s.drainQueue(g)
			return true
		case p := <-s.expiry.trims:
			stop()
			s.takeTrims(g, p)
			s.drainQueue(g)
			return true
		case <-s.sweep:
			s.forgetIdle(ctx, g)
		case <-s.flushed:
		case <-poll:
		case <-ctx.Done():
			stop()
			return false
		}
		stop()
	}
}

// gather takes requests into a group until the one in flight has landed.
func (s *Shard) gather(ctx context.Context, g *group, landed <-chan appendOutcome) appendOutcome {
	for {
		queue, poll, stop := s.openQueue(g)
		select {
		case p := <-queue:
			s.take(g, p)
		case out := <-landed:
			stop()
			s.drainQueue(g)
			return out
		case p := <-s.expiry.trims:
			s.takeTrims(g, p)
		case <-s.sweep:
			s.forgetIdle(ctx, g)
		case <-s.flushed:
		case <-poll:
		}
		stop()
	}
}

// drainQueue takes what waits, without waiting.
func (s *Shard) drainQueue(g *group) {
	for {
		queue, _, stop := s.openQueue(g)
		stop()
		select {
		case p := <-queue:
			s.take(g, p)
		default:
			return
		}
	}
}

// openQueue is the queue when the group may take more; nil when the group is full, or
// too much waits in memory to be moved to disk. Then poll ticks when it is time to
// ask again. stop ends the ticking.
func (s *Shard) openQueue(g *group) (queue <-chan *pending, poll <-chan time.Time, stop func()) {
	if g.full() {
		return nil, nil, func() {}
	}
	room, err := s.room()
	if room || err != nil { // or it is refused
		return s.queue, nil, func() {}
	}
	wake(s.unflushed)
	t := time.NewTimer(kv.RoomPoll)
	return nil, t.C, func() { t.Stop() }
}

// room says whether there is room in memory for more; an error says why there will
// not be for a while.
func (s *Shard) room() (bool, error) {
	if err := s.Err(); err != nil {
		return false, err
	}
	if s.tailBytes.Load() > maxTails*s.o.TailBytes {
		if p := s.stuck.Load(); p != nil {
			return false, *p
		}
		return false, nil
	}
	return s.kv.Room()
}

// maxTails is how many times TailBytes all tails together may grow to before writers
// wait.
const maxTails = 2

// take adds a request to a group, or answers it.
func (s *Shard) take(g *group, p *pending) {
	if p.op == nil {
		s.takeEnding(g, p)
		return
	}
	if _, err := s.room(); err != nil {
		p.answer(Result{}, err)
		return
	}
	s.prepare(g, p)
}

type appendOutcome struct {
	began, landed time.Time // of the append; zero when there was none
	at            appliedAt
	err           error
	unsent        bool // err is ours: the log was not asked
}

// append starts the group's append to the log.
func (s *Shard) append(ctx context.Context, g *group) chan appendOutcome {
	landed := make(chan appendOutcome, 1)
	g.finish()
	if err := s.lapsed(); err != nil {
		landed <- appendOutcome{err: err, unsent: true}
		return landed
	}
	if len(g.entries) == 0 {
		landed <- appendOutcome{}
		return landed
	}
	var bytes int64
	for _, e := range g.entries {
		bytes += int64(e.Len())
	}
	s.sinceBytes.Add(bytes)
	s.o.Metrics.groupOps.Observe(float64(len(g.answers)))
	go func() {
		began := s.o.Clock.Now()
		s.o.Hook("log:before")
		// A started append is not cut short: its outcome would be unknown.
		lsn, err := s.log.Append(context.WithoutCancel(ctx), g.entries)
		if err != nil {
			landed <- appendOutcome{err: err}
			return
		}
		s.o.Hook("log:appended")
		// No other append of this shard runs before this one is received.
		landed <- appendOutcome{at: appliedAt{lsn: lsn, tail: s.log.Tail()}, began: began, landed: s.o.Clock.Now()}
	}()
	return landed
}

// dropGroups answers the ops of a group that did not become durable, and of the
// one prepared on top of it, and goes back to what is applied (S4).
//
// Of a group whose outcome is unknown the log decides, when it is opened again; until
// then the shard serves nothing. What was prepared on top of it was never sent.
func (s *Shard) dropGroups(failed, onTop *group, out appendOutcome) {
	behind := out.err
	if !out.unsent && fatal(out.err) {
		s.fail(s.logError(out.err))
		if errs.Is(out.err, errs.UnknownOutcome) {
			behind = s.Err()
		}
	}
	s.dropGroup(failed, out.err)
	s.dropGroup(onTop, behind)
	clear(s.unborn)
}

// tell notes the append in the spans of the group's writes.
func (g *group) tell(out appendOutcome) {
	for _, a := range g.answers {
		if a.to.span.On() {
			a.to.span.Int("millrace.lsn", int64(out.at.lsn)).Int("millrace.group", int64(len(g.answers)))
			a.to.span.Past("log append", out.began, out.landed)
		}
	}
}

func (s *Shard) dropGroup(g *group, cause error) {
	for _, a := range g.answers {
		a.to.answer(Result{}, cause)
	}
	for _, pt := range g.parts {
		pt.b.prep = pt.b.done
	}
	for _, l := range g.learned {
		l.of.unlearn()
	}
}

// fatal says whether a log that refused an append takes no more (wal.Log).
func fatal(err error) bool {
	if errs.Is(err, errs.StorageFull) || errs.Is(err, errs.Overloaded) || errs.Is(err, errs.Unavailable) {
		return errors.Is(err, wal.ErrStopped)
	}
	return true
}

// logError is what a shard answers whose log takes no more. In a cluster somebody serves
// it soon, here or elsewhere, and nothing of what is asked now was done.
func (s *Shard) logError(cause error) error {
	code := errs.Unavailable
	if s.o.Lease != nil || errs.Is(cause, errs.NotOwner) {
		code = errs.NotOwner
	}
	return errs.Wrap(code, "shard: the log takes no more", cause)
}

// abandon answers everything after a group that is durable could not be applied:
// it will be, at the next start.
func (s *Shard) abandon(unapplied, next *group, sent bool, landed <-chan appendOutcome) {
	unknown := errs.New(errs.UnknownOutcome, "the write is in the log and could not be applied; it will be when the server starts again")
	for _, a := range unapplied.answers {
		a.to.answer(Result{}, unknown)
	}
	cause := s.stoppedError()
	if sent {
		if out := <-landed; out.err != nil {
			cause = out.err
		} else {
			cause = unknown
		}
	}
	for _, a := range next.answers {
		a.to.answer(Result{}, cause)
	}
	s.refuseQueued()
}

// refuseQueued answers what nobody will take any more.
func (s *Shard) refuseQueued() {
	for {
		select {
		case p := <-s.queue:
			p.answer(Result{}, s.stoppedError())
		default:
			return
		}
	}
}

// stoppedError is why the shard takes no more.
func (s *Shard) stoppedError() error {
	if err := s.Err(); err != nil {
		return err
	}
	if p := s.leaving.Load(); p != nil {
		return *p
	}
	return errs.New(errs.Draining, "the server is shutting down")
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
