package shard

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

// pending is a request that waits for the loop.
type pending struct {
	op    *Op
	end   *ending    // instead of an op
	trim  *trimEntry // instead of an op; the flush loop's
	bytes int64
	once  sync.Once
	done  chan struct{} // closed when the outcome is there
	// decided is closed when the op was prepared or answered; nil unless it is in line.
	decided chan struct{}
	out     outcome
	room    func()
	began   time.Time
	span    trace.Span
	shard   *Shard
}

type outcome struct {
	result Result
	err    error
}

// answer ends the request; only the first answer counts.
func (p *pending) answer(r Result, err error) {
	p.once.Do(func() {
		p.room()
		p.out = outcome{r, err}
		p.span.End(err)
		if p.op != nil {
			p.shard.o.Metrics.wrote(p.shard.o.Clock.Now().Sub(p.began), err)
		}
		if err != nil && p.op != nil {
			p.op.fail(err) // before anything behind it is looked at
		}
		close(p.done)
	})
}

// answered says whether the outcome is there.
func (p *pending) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Write makes an op durable and visible, and says where its records are.
//
// A refusal (sequence errors, unknown table, too large) changes nothing.
// errs.StorageFull, errs.Unavailable, errs.Overloaded and errs.Draining say that
// nothing was written; errs.UnknownOutcome, also when ctx ends first, that it may
// have been.
func (s *Shard) Write(ctx context.Context, op *Op) (Result, error) {
	return s.submit(ctx, &pending{op: op})
}

// Pending is a write under way.
type Pending struct{ p *pending }

// Start queues an op and returns at once, so that a caller can have several under
// way in the order it started them. Wait for each.
func (s *Shard) Start(ctx context.Context, op *Op) (*Pending, error) {
	p := &pending{op: op}
	if op.Line != nil {
		p.decided = make(chan struct{})
	}
	if err := s.enqueue(ctx, p); err != nil {
		op.fail(err)
		return nil, err
	}
	return &Pending{p}, nil
}

// Decided waits until the shard has taken the op into a group, or refused it.
// REQUIRES: the op is in line.
func (p *Pending) Decided(ctx context.Context) error {
	select {
	case <-p.p.decided:
	case <-p.p.done:
	case <-p.p.shard.loopDone:
	case <-p.p.shard.kv.Dead():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Refused says whether the op was answered with the code.
func (p *Pending) Refused(code errs.Code) bool { return p.p.answered() && errs.Is(p.p.out.err, code) }

// Wait is the outcome, as Write gives it.
func (p *Pending) Wait(ctx context.Context) (Result, error) { return p.p.wait(ctx) }

func (s *Shard) submit(ctx context.Context, p *pending) (Result, error) {
	if err := s.enqueue(ctx, p); err != nil {
		return Result{}, err
	}
	return p.wait(ctx)
}

func (s *Shard) enqueue(ctx context.Context, p *pending) error {
	if p.op != nil {
		_, p.span = trace.Start(ctx, "shard write")
		p.span.Int("millrace.shard", int64(s.o.ID))
	}
	err := s.queueUp(ctx, p)
	if err != nil {
		p.span.End(err)
	}
	return err
}

// queueUp gives a request to the loop.
func (s *Shard) queueUp(ctx context.Context, p *pending) error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.leaving.Load() != nil {
		return s.stoppedError()
	}
	if p.op != nil {
		p.bytes = min(p.op.bytes(), s.o.QueueBytes)
	}
	p.done, p.shard, p.began = make(chan struct{}), s, s.o.Clock.Now()
	if err := s.queueRoom.Acquire(ctx, p.bytes); err != nil {
		return errs.New(errs.Overloaded, "shard %d had no room for the write in time: %v", s.o.ID, err)
	}
	s.queued.Add(1)
	s.queuedBytes.Add(p.bytes)
	p.room = func() {
		s.queueRoom.Release(p.bytes)
		s.queued.Add(-1)
		s.queuedBytes.Add(-p.bytes)
	}
	select {
	case s.queue <- p:
		return nil
	case <-s.loopDone:
		p.room()
		return s.stoppedError()
	case <-s.kv.Dead():
		p.room()
		return s.stoppedError()
	case <-ctx.Done():
		p.room()
		return errs.New(errs.Overloaded, "shard %d had no room for the write in time: %v", s.o.ID, ctx.Err())
	}
}

func (p *pending) wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
	case <-p.shard.loopDone:
		p.answer(Result{}, p.shard.stoppedError()) // the loop did not see it
	case <-p.shard.kv.Dead():
		p.waitForDead()
	case <-ctx.Done():
		return Result{}, errs.New(errs.UnknownOutcome, "the write was sent and not answered in time: %v", ctx.Err())
	}
	<-p.done
	return p.out.result, p.out.err
}

// deadGrace is how long the loop has to answer when the store is dead: mostly it
// does, but it may wait in the store for ever.
const deadGrace = time.Second

func (p *pending) waitForDead() {
	t := time.NewTimer(deadGrace)
	defer t.Stop()
	select {
	case <-p.done:
	case <-p.shard.loopDone:
		p.answer(Result{}, p.shard.stoppedError())
	case <-t.C:
		p.answer(Result{}, errs.New(errs.UnknownOutcome, "the shard stopped while the write was under way: %v", p.shard.stoppedError()))
	}
}
