package tier

import (
	"cmp"
	"context"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

const (
	// passEvery is how soon a table that was made or altered is looked at.
	passEvery = 250 * time.Millisecond
	// Bounds of how often a table of which everything is in the lake is looked at.
	lookSoonest = 250 * time.Millisecond
	lookLatest  = 10 * time.Second
	lookPart    = 8 // of the freshness
	// lookShare is how small a part of the time looking takes, as far as the freshness
	// allows: one slow look must not make the table late.
	lookShare = 50
	// leastFreshness is what is aimed at when a table asks for less.
	leastFreshness = time.Second
	lookTime       = 20 * time.Second // that the lake has for its first answer
	maxLooks       = 8                // at once
)

// run makes passes until Close.
func (m *Manager) run() {
	tick := time.NewTicker(passEvery)
	defer tick.Stop()
	for {
		m.Pass(m.life)
		select {
		case <-tick.C:
		case <-m.life.Done():
			return
		}
	}
}

// Pass begins the jobs that are due now, without waiting for them.
func (m *Manager) Pass(ctx context.Context) {
	src, err := m.from()
	if err != nil {
		return
	}
	type late struct {
		t    *table
		from time.Time
		lag  time.Duration
	}
	var due []late
	known := m.all() // before the catalog is asked: who comes after is not gone
	there := map[millrace.TableID]bool{}
	for _, desc := range m.o.Catalog.AllTables() {
		if desc.Options.Lake == nil {
			continue
		}
		there[desc.ID] = true
		if m.o.Mine != nil && !m.o.Mine(desc.ID) {
			continue
		}
		t := m.table(desc.ID)
		now := m.o.Clock.Now()
		if !t.wants(now) {
			continue
		}
		if !t.known() {
			t.askLake(desc)
			continue
		}
		if !enabled(desc) {
			t.rests(now)
			continue
		}
		begin, from, err := t.isDue(ctx, src, desc, now)
		switch {
		case errs.Is(err, errs.TableNotFound):
		case err != nil:
			t.ended(err)
		case begin:
			t.mu.Lock()
			lag := t.lagAt(now)
			t.mu.Unlock()
			due = append(due, late{t, from, lag})
		}
	}
	for _, t := range known {
		if !there[t.id] {
			m.forget(t.id)
		}
	}
	m.forgetLeft()
	m.purgePass()
	slices.SortStableFunc(due, func(a, b late) int { return cmp.Compare(b.lag, a.lag) })
	for _, l := range due {
		if _, err := l.t.ask(false, l.from); err != nil {
			return // it is gone, or the manager closed
		}
	}
}

// wants says whether it is time to look at the table.
func (t *table) wants(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.running && t.next == nil && !now.Before(t.lookAt) && !now.Before(t.retryAt)
}

// known says whether the lake has told what it has of the table.
func (t *table) known() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sure()
}

// askLake asks the lake for the table's newest snapshot, beside the pass; a table that
// is new is made, so that stock readers find it.
func (t *table) askLake(desc *millrace.Table) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running {
		return
	}
	t.running = t.m.spawn(func() {
		select {
		case t.m.looks <- struct{}{}:
			if err := t.lookNow(desc); t.m.life.Err() == nil {
				t.ended(err)
			}
			<-t.m.looks
		case <-t.m.life.Done():
		}
		t.run() // what was asked for meanwhile
	})
}

func (t *table) lookNow(desc *millrace.Table) error {
	ctx, cancel := context.WithTimeout(t.m.life, lookTime)
	defer cancel()
	return t.exclusively(ctx, func(ctx context.Context) error {
		_, err := t.look(ctx, desc)
		return err
	})
}

// rests puts off the next look at a table that is not tiered now.
func (t *table) rests(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookAt, t.lag, t.pending = now.Add(time.Second), time.Time{}, 0
}

// isDue looks at the table: whether a job should begin now, so that no record gets older
// than the table's freshness before it is in the lake, and from when on that job is late;
// zero: never.
func (t *table) isDue(ctx context.Context, src Source, desc *millrace.Table, now time.Time) (due bool, late time.Time, err error) {
	t.mu.Lock()
	snap := t.newest
	t.mu.Unlock()
	began := t.m.o.Clock.Now()
	todo, err := t.backlog(ctx, src, desc, snap, true)
	if err != nil {
		return false, late, err
	}
	if todo.broken != nil {
		return true, late, nil // the job asks the lake, which may be mended, and says what is wrong
	}
	cost := t.m.o.Clock.Now().Sub(began)
	fresh := max(desc.Options.Lake.Freshness, leastFreshness)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lag, t.pending = todo.oldest, todo.rows
	again := max(min(fresh/lookPart, lookLatest), lookSoonest, min(lookShare*cost, fresh/2))
	t.lookAt = now.Add(again)
	if len(todo.pieces) == 0 {
		return t.maintenanceDue(now), late, nil
	}
	if todo.oldest.IsZero() {
		return true, late, nil // only state, whose records the log does not have any more
	}
	// A job takes about as long as the last ones; what is looked at late, begins late.
	begin := todo.oldest.Add(max(fresh-t.took*3/2-again/2, fresh/4))
	if now.Before(begin) {
		if begin.Before(t.lookAt) {
			t.lookAt = begin
		}
		return false, late, nil
	}
	return true, todo.oldest.Add(2 * fresh), nil
}

// lagAt is how old the oldest record outside the lake is, as far as the last look tells.
// REQUIRES: t.mu held.
func (t *table) lagAt(now time.Time) time.Duration {
	if t.lag.IsZero() {
		return 0
	}
	return max(0, now.Sub(t.lag))
}
