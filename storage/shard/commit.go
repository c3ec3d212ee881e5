package shard

import (
	"context"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// pending is a request that waits for the loop.
type pending struct {
	op    *Op
	drop  millrace.TableID // when not 0, a drop instead of an op
	bytes int64
	once  sync.Once
	done  chan outcome // capacity 1
	room  func()
	ended <-chan struct{} // the loop's end
	late  func() error    // what a request is told that the loop did not see
}

type outcome struct {
	result Result
	err    error
}

// answer ends the request; only the first answer counts.
func (p *pending) answer(r Result, err error) {
	p.once.Do(func() {
		p.room()
		p.done <- outcome{r, err}
	})
}

// Write makes an op durable and visible, and says where its records are.
//
// A refusal (sequence errors, unknown table) changes nothing. errs.StorageFull,
// errs.Unavailable, errs.Overloaded and errs.Draining say that nothing was
// written; errs.UnknownOutcome, when ctx ends first, that it may have been.
func (s *Shard) Write(ctx context.Context, op *Op) (Result, error) {
	return s.submit(ctx, &pending{op: op})
}

// Pending is a write under way.
type Pending struct{ p *pending }

// Start queues an op and returns at once, so that a caller can have several under
// way in the order it started them. Wait for each.
func (s *Shard) Start(ctx context.Context, op *Op) (*Pending, error) {
	p := &pending{op: op}
	if err := s.enqueue(ctx, p); err != nil {
		return nil, err
	}
	return &Pending{p}, nil
}

// Wait is the outcome, as Write gives it.
func (p *Pending) Wait(ctx context.Context) (Result, error) { return p.p.wait(ctx) }

func (s *Shard) submit(ctx context.Context, p *pending) (Result, error) {
	if err := s.enqueue(ctx, p); err != nil {
		return Result{}, err
	}
	return p.wait(ctx)
}

func (s *Shard) enqueue(ctx context.Context, p *pending) error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.draining.Load() {
		return errs.New(errs.Draining, "the server is shutting down")
	}
	if p.op != nil {
		p.bytes = min(p.op.bytes(), s.o.QueueBytes)
	}
	p.done, p.ended, p.late = make(chan outcome, 1), s.loopDone, s.stopped
	if err := s.queueRoom.Acquire(ctx, p.bytes); err != nil {
		return errs.New(errs.Overloaded, "shard %d had no room for the write in time: %v", s.o.ID, err)
	}
	p.room = func() { s.queueRoom.Release(p.bytes) }
	select {
	case s.queue <- p:
		return nil
	case <-s.loopDone:
		p.room()
		return s.stopped()
	case <-ctx.Done():
		p.room()
		return errs.New(errs.Overloaded, "shard %d had no room for the write in time: %v", s.o.ID, ctx.Err())
	}
}

func (s *Shard) stopped() error {
	if err := s.Err(); err != nil {
		return err
	}
	return errs.New(errs.Draining, "the server is shutting down")
}

func (p *pending) wait(ctx context.Context) (Result, error) {
	select {
	case o := <-p.done:
		return o.result, o.err
	case <-p.ended:
		p.answer(Result{}, p.late())
		o := <-p.done
		return o.result, o.err
	case <-ctx.Done():
		return Result{}, errs.New(errs.UnknownOutcome, "the write was sent and not answered in time: %v", ctx.Err())
	}
}

// loop prepares a group while the one before is in flight, then appends it and,
// while it is in flight, applies the one before.
func (s *Shard) loop(ctx context.Context) {
	defer close(s.loopDone)
	var landed chan appendOutcome // of s.inFlight; nil when there is none
	next := newGroup()
	for {
		if s.inFlight == nil && len(next.answers) == 0 {
			select {
			case p := <-s.queue:
				s.take(next, p)
			case <-ctx.Done():
				s.refuseQueued(next)
				return
			}
		}
		var out appendOutcome
		for s.inFlight != nil {
			queue := s.queue
			if next.full() {
				queue = nil
			}
			select {
			case p := <-queue:
				s.take(next, p)
				continue
			case out = <-landed:
			}
			break
		}
		s.drainQueue(next)
		before := s.inFlight
		if before != nil && out.err != nil {
			s.dropGroups(before, next, out.err)
			s.inFlight, next = nil, newGroup()
			continue
		}
		if before != nil && len(next.answers) == 0 {
			if err := s.apply(before, out.at); err != nil {
				s.fail(err)
				s.abandon(before, next, nil)
				return
			}
			s.inFlight = nil
			continue
		}
		// Write-ahead of `next` overlaps with applying `before`; `next` was prepared
		// on top of `before`, which stays the overlay until it is applied.
		landed = s.append(ctx, next)
		if before != nil {
			if err := s.apply(before, out.at); err != nil {
				s.fail(err)
				s.abandon(before, next, landed)
				return
			}
		}
		s.inFlight, next = next, newGroup()
		s.waitForRoom(ctx)
	}
}

// full says whether a group takes no more.
func (g *group) full() bool {
	return g.bytes >= maxGroupBytes || len(g.answers) >= maxGroupOps
}

func (s *Shard) take(g *group, p *pending) {
	if p.op != nil {
		s.prepare(g, p)
		return
	}
	g.drops = append(g.drops, p.drop)
	g.answers = append(g.answers, answer{to: p})
}

// drainQueue takes what waits, without waiting.
func (s *Shard) drainQueue(g *group) {
	for !g.full() {
		select {
		case p := <-s.queue:
			s.take(g, p)
		default:
			return
		}
	}
}

type appendOutcome struct {
	at  appliedAt
	err error
}

// append starts the group's append to the log.
func (s *Shard) append(ctx context.Context, g *group) chan appendOutcome {
	landed := make(chan appendOutcome, 1)
	g.finish()
	if len(g.entries) == 0 {
		landed <- appendOutcome{at: appliedAt{}}
		return landed
	}
	var bytes int64
	for _, e := range g.entries {
		bytes += int64(len(e.Data))
	}
	s.sinceBytes.Add(bytes)
	s.o.Metrics.groupOps.Observe(float64(len(g.answers)))
	go func() {
		// A started append is not cut short: its outcome would be unknown.
		lsn, err := s.log.Append(context.WithoutCancel(ctx), g.entries)
		if err != nil {
			landed <- appendOutcome{err: err}
			return
		}
		s.o.Hook("log:appended")
		// No other append of this shard runs before this one is received.
		landed <- appendOutcome{at: appliedAt{lsn: lsn, tail: s.log.Tail()}}
	}()
	return landed
}

// dropGroups answers the ops of a group that did not become durable, and of the
// one prepared on top of it, and goes back to what is applied (S4).
func (s *Shard) dropGroups(failed, onTop *group, cause error) {
	for _, g := range []*group{failed, onTop} {
		for _, a := range g.answers {
			a.to.answer(Result{}, cause)
		}
		for _, pt := range g.parts {
			pt.b.prep = pt.b.done
		}
	}
	clear(s.unborn)
	if !errs.Is(cause, errs.StorageFull) {
		s.fail(errs.Wrap(errs.Unavailable, "shard: the log takes no more", cause))
	}
}

// abandon answers everything after a group that is durable could not be applied:
// it will be, at the next start.
func (s *Shard) abandon(unapplied, next *group, landed chan appendOutcome) {
	unknown := errs.New(errs.UnknownOutcome, "the write is in the log and could not be applied; it will be when the server starts again")
	for _, a := range unapplied.answers {
		a.to.answer(Result{}, unknown)
	}
	if landed != nil {
		<-landed
	}
	for _, a := range next.answers {
		a.to.answer(Result{}, unknown)
	}
	s.refuseQueued(newGroup())
}

func (s *Shard) refuseQueued(g *group) {
	for _, a := range g.answers {
		a.to.answer(Result{}, s.stopped())
	}
	for {
		select {
		case p := <-s.queue:
			p.answer(Result{}, s.stopped())
		default:
			return
		}
	}
}

// waitForRoom holds the loop while too much waits in memory to be moved to segments.
func (s *Shard) waitForRoom(ctx context.Context) {
	for s.tailBytes.Load() > 2*s.o.TailBytes && s.Err() == nil {
		wake(s.unflushed)
		select {
		case <-s.flushed:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
