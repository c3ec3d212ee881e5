package tier

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

const (
	// maxPurging is how many lake tables are removed at once.
	maxPurging = 2
	// purgeTime bounds one try; what it has removed is gone, and the next one goes on.
	purgeTime = 10 * time.Minute
	// purgeWait is how long a DROP waits for the first try.
	purgeWait = 10 * time.Second
)

// purging is how far the removal of a dropped table's lake table is. Manager.mu guards it.
type purging struct {
	done     chan struct{} // of the try under way; nil: there is none
	failure  *lake.Failure // of the last try
	failures int           // in a row
	retryAt  time.Time
}

// Purges are the dropped tables whose lake tables are still to be removed, and why those
// are that could not be.
func (m *Manager) Purges() []lake.Purging {
	all := m.o.Catalog.Purges()
	out := make([]lake.Purging, len(all))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range all {
		out[i] = lake.Purging{Purge: *p}
		if at := m.purges[p.Table]; at != nil {
			out[i].Failure = at.failure
		}
	}
	return out
}

// purgePass begins the removals that are due, without waiting for them.
func (m *Manager) purgePass() {
	all := m.o.Catalog.Purges()
	there := make(map[millrace.TableID]bool, len(all))
	now := m.o.Clock.Now()
	for _, p := range all {
		there[p.Table] = true
		if m.o.Mine == nil || m.o.Mine(p.Table) {
			m.purge(p, now)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, at := range m.purges {
		if !there[id] && at.done == nil {
			delete(m.purges, id)
		}
	}
}

// purge begins to remove a lake table, unless it is not due or too many are being
// removed. It answers with what is closed when the try under way ends; nil: there is none.
func (m *Manager) purge(p *millrace.Purge, now time.Time) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.purges[p.Table]
	if at == nil {
		at = &purging{}
		m.purges[p.Table] = at
	}
	if at.done != nil {
		return at.done
	}
	// Another try may have done it since the caller asked the catalog.
	_, still := slices.BinarySearchFunc(m.o.Catalog.Purges(), p.Table, func(o *millrace.Purge, id millrace.TableID) int { return cmp.Compare(o.Table, id) })
	if !still || m.closed || now.Before(at.retryAt) {
		return nil
	}
	select {
	case m.removals <- struct{}{}:
	default:
		return nil
	}
	done := make(chan struct{})
	at.done = done
	m.jobs.Go(func() {
		err := m.purgeNow(m.life, p)
		<-m.removals
		m.purged(p, at, err)
		close(done)
	})
	return done
}

// purged notes how a try went.
func (m *Manager) purged(p *millrace.Purge, at *purging, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at.done = nil
	if err == nil {
		m.metrics.purges.Inc()
		at.failure, at.failures = nil, 0
		return
	}
	if m.life.Err() != nil {
		return
	}
	m.metrics.purgeFailures.Inc()
	now := m.o.Clock.Now()
	f := lake.Failure{Since: now}
	if at.failure != nil {
		f.Since = at.failure.Since
	}
	f.Code, f.Detail = said(err)
	at.failure = &f
	at.retryAt = now.Add(backOff(at.failures))
	at.failures++
	if at.failures == 1 {
		m.o.Logger.Warn("the lake table of a dropped table cannot be removed, it is tried again", slog.String("table", p.Path.String()), tableID(p.Table), errAttr(err))
	}
}

// backOff is how long to wait after so many failures in a row and one more.
func backOff(failures int) time.Duration {
	wait := min(firstRetry<<min(failures, 10), lastRetry)
	return wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1))
}

// purgeNow removes a lake table, and lets the catalog forget the purge.
func (m *Manager) purgeNow(ctx context.Context, p *millrace.Purge) (err error) {
	ctx, span := m.o.Tracer.Begin(ctx, "lake purge")
	defer func() { span.Int("millrace.table_id", int64(p.Table)).End(err) }()
	if err := m.step(StepPurge); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, purgeTime)
	defer cancel()
	err = m.quiet(limited, p.Table)
	if err == nil {
		err = m.o.Format.Purge(limited, p.Table, p.Path)
	}
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return errs.New(errs.Unavailable, "the lake table of %s (table %d) was not removed within %s", p.Path, p.Table, millrace.FormatDuration(purgeTime))
		}
		return err
	}
	if err := m.step(StepPurged); err != nil {
		return err
	}
	return m.o.Catalog.Purged(ctx, p.Table)
}

// quiet returns when nothing that began before a table was dropped writes to its lake
// table any more.
// REQUIRES: the catalog has let go of the table.
func (m *Manager) quiet(ctx context.Context, id millrace.TableID) error {
	m.forget(id)
	m.mu.Lock()
	t := m.leaving[id]
	m.mu.Unlock()
	if t == nil {
		return nil
	}
	for _, held := range []chan struct{}{t.busy, t.opening} {
		select {
		case held <- struct{}{}:
			<-held
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leaving, id)
	return nil
}

// failingPurges is how many removals failed at their last try.
func (m *Manager) failingPurges() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.purges {
		if at.failure != nil {
			n++
		}
	}
	return n
}
