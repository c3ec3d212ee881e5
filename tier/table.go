package tier

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// table is a table that has a lake table.
type table struct {
	m    *Manager
	id   millrace.TableID
	busy chan struct{} // held by who commits to the lake table; capacity 1
	// opening is held by who opens it, which makes it when there is none; capacity 1.
	opening chan struct{}

	mu      sync.Mutex
	lt      lake.Table
	newest  lake.Snapshot // as of seenAt; nil when there is none
	seenAt  time.Time     // when the lake said so; zero: never
	doubt   bool          // there may be a newer one
	commits int           // made here: what the lake said before one is old
	next    *job          // asked for and not begun; who asks joins it
	running bool          // jobs are being run
	cancel  context.CancelCauseFunc
	gone    bool

	deaf      error // what a reader met lately; nil when the lake answered
	deafUntil time.Time

	// whole is the newest snapshot that had all that one before it had, as of so many gaps of
	// the table (wentBack); nil when none was seen. warned is one that had not.
	whole     lake.Snapshot
	wholeGaps int64
	warned    int64

	foreignSince time.Time // when another writer's deletes were seen first; zero: there are none

	failure  *lake.Failure
	failures int           // in a row
	retryAt  time.Time     // not before, unless it is asked for
	took     time.Duration // about what a job takes

	// Of the last look.
	lookAt  time.Time // the next one
	lag     time.Time // when the oldest record outside the lake was written; zero: none
	pending int64
	oldest  map[millrace.BucketID]writtenAt // of the buckets that had one

	// Of maintenance.
	rounds      int       // since the last
	roundsSince time.Time // when the first of them was
}

// writtenAt is when the record at an offset was written.
type writtenAt struct {
	offset millrace.Offset
	at     time.Time
}

// What ends a round from outside.
var (
	errInterrupted = errors.New("tier: the round made way for a change of its table")
	errGone        = errs.New(errs.TableNotFound, "the table was dropped")
	errAnew        = errors.New("tier: the table was altered under way")
)

// job is a call for all that is in a table's log to be in its lake table.
type job struct {
	asked bool      // somebody waits for it
	late  time.Time // from then on it does not make way for clients; zero: it always does
	done  chan struct{}
	// Of a job that is done.
	err  error
	rows int64
}

// maxTries is how often a job is begun anew when others commit in between.
const maxTries = 8

// ask begins a job, or joins the one that was asked for and has not begun; late is from
// when on it does not make way for clients (zero: it always does).
func (t *table) ask(asked bool, late time.Time) (*job, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return nil, errGone
	}
	j := t.next
	if j == nil {
		j = &job{done: make(chan struct{})}
		t.next = j
	}
	j.asked = j.asked || asked
	if j.late.IsZero() || !late.IsZero() && late.Before(j.late) {
		j.late = late
	}
	if !t.running {
		if !t.m.spawn(t.run) {
			return nil, errs.New(errs.Draining, "the server is stopping")
		}
		t.running = true
	}
	return j, nil
}

// run runs jobs until none is asked for.
func (t *table) run() {
	for {
		t.mu.Lock()
		j := t.next
		if j == nil {
			t.running = false
			t.mu.Unlock()
			return
		}
		places := t.m.due
		if j.asked {
			places = t.m.asked
		}
		t.mu.Unlock()
		select {
		case places <- struct{}{}:
			j.err = t.runJob(j)
			close(j.done)
			t.maintain()
			<-places
		case <-t.m.life.Done():
			t.take(j)
			j.err = errs.New(errs.Draining, "the server is stopping")
			close(j.done)
		}
	}
}

// take makes j the one under way: who asks from now on asks for another one.
func (t *table) take(j *job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == j {
		t.next = nil
	}
}

// runJob runs a job, anew when something comes in between.
func (t *table) runJob(j *job) error {
	t.take(j)
	var err error
	for try := 1; ; try++ {
		err = t.exclusively(t.m.life, func(ctx context.Context) error { return t.tier(ctx, j) })
		if !t.again(err) || try == maxTries {
			break
		}
		t.waitAnew(t.m.life, try)
	}
	if t.m.life.Err() != nil && err != nil {
		return errs.New(errs.Draining, "the server is stopping")
	}
	t.ended(err)
	return err
}

// again says whether what ended with an error is to be begun anew.
func (t *table) again(err error) bool {
	if errors.Is(err, lake.ErrConflict) {
		t.m.metrics.conflicts.Inc()
		t.stale()
		return true
	}
	return errors.Is(err, errInterrupted) || errors.Is(err, errAnew)
}

// waitAnew waits before a try after the first.
func (t *table) waitAnew(ctx context.Context, try int) {
	sleep(ctx, time.Duration(rand.Int64N(int64(10*time.Millisecond)<<try)))
}

// seize has busy for the caller soon: a round under way, which may take minutes, makes
// way. The caller lets go of busy.
func (t *table) seize(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		t.interrupt(errInterrupted)
		select {
		case t.busy <- struct{}{}:
			return nil
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// exclusively calls f when nobody else commits to the lake table.
func (t *table) exclusively(ctx context.Context, f func(context.Context) error) error {
	select {
	case t.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.busy }()
	return t.interruptibly(ctx, f)
}

// interruptibly calls f with a context that interrupt ends.
// REQUIRES: t.busy held.
func (t *table) interruptibly(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.mu.Lock()
	if t.gone {
		t.mu.Unlock()
		return errGone
	}
	t.cancel = cancel
	t.mu.Unlock()
	err := f(ctx)
	t.mu.Lock()
	t.cancel = nil
	t.mu.Unlock()
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, errInterrupted) || errors.Is(cause, errGone)) {
		return cause
	}
	return err
}

// interrupt ends what is under way with the lake table.
func (t *table) interrupt(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(why, errGone) {
		t.gone = true
	}
	if t.cancel != nil {
		t.cancel(why)
	}
}

// stale makes the next use of the newest snapshot ask the lake.
func (t *table) stale() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubt = true
}

// sure says whether the newest snapshot is known, without asking the lake.
// REQUIRES: t.mu held.
func (t *table) sure() bool { return !t.seenAt.IsZero() && !t.doubt }

// Bounds of the wait after a failure.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// ended notes how a job went.
func (t *table) ended(err error) {
	m := t.m
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookAt = time.Time{}
	if err == nil || errs.Is(err, errs.TableNotFound) {
		t.failure, t.failures, t.retryAt = nil, 0, time.Time{}
		return
	}
	m.metrics.failures.Inc()
	now := m.o.Clock.Now()
	if t.failure == nil {
		t.failure = &lake.Failure{Since: now}
	}
	f := *t.failure
	f.Code, f.Detail = said(err)
	t.failure = &f
	t.retryAt = now.Add(backOff(t.failures))
	t.failures++
	if t.failures == 1 {
		m.o.Logger.Warn("tiering fails, it is tried again", tableID(t.id), errAttr(err))
	}
}

// said is what an error tells a person.
func said(err error) (errs.Code, string) {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e.Code, e.Error()
	}
	if errors.Is(err, lake.ErrConflict) || errors.Is(err, errInterrupted) || errors.Is(err, errAnew) {
		return errs.Unavailable, "others changed the table or its lake table each time that a round was made"
	}
	return errs.Internal, err.Error()
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
