package tier

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/lake"
)

// When maintenance is due: after so many rounds, or so long after the first one since
// the last.
const (
	maintainRounds = 8
	maintainAfter  = 10 * time.Minute
)

// maintenanceDue says whether files should be merged and snapshots expired.
// REQUIRES: t.mu held.
func (t *table) maintenanceDue(now time.Time) bool {
	return t.rounds >= maintainRounds || t.rounds > 0 && now.Sub(t.roundsSince) >= maintainAfter
}

// maintain does so when it is due. What fails is tried again after as many rounds: it
// holds nothing up.
func (t *table) maintain() {
	now := t.m.o.Clock.Now()
	t.mu.Lock()
	due := t.failure == nil && t.maintenanceDue(now)
	if due {
		t.rounds = 0
	}
	t.mu.Unlock()
	if !due {
		return
	}
	err := t.exclusively(t.m.life, t.maintainNow)
	if err == nil || errors.Is(err, errInterrupted) || errors.Is(err, errGone) || t.m.life.Err() != nil {
		return
	}
	if errors.Is(err, lake.ErrConflict) {
		t.m.metrics.conflicts.Inc()
		t.stale()
		return
	}
	t.m.metrics.maintenanceFailures.Inc()
	t.m.o.Logger.Warn("maintenance of a lake table failed", tableID(t.id), errAttr(err))
}

func (t *table) maintainNow(ctx context.Context) (err error) {
	ctx, span := t.m.o.Tracer.Begin(ctx, "lake maintenance")
	defer func() { span.Int("millrace.table_id", int64(t.id)).End(err) }()
	desc, err := t.m.o.Catalog.TableByID(ctx, t.id)
	if err != nil || !enabled(desc) || !desc.Options.Lake.Compact && !desc.Options.Lake.Expire {
		return err
	}
	lt, err := t.open(ctx, desc)
	if err != nil {
		return err
	}
	// What a lake that went back does not refer to may be of metadata that is put back.
	src, err := t.m.from()
	if err != nil {
		return err
	}
	snap, err := t.look(ctx, desc)
	if err != nil {
		return err
	}
	todo, err := t.backlog(ctx, src, desc, snap, false)
	if err == nil {
		err = cmp.Or(todo.broken, todo.again)
	}
	if err != nil {
		return err
	}
	began := t.m.o.Clock.Now()
	done, err := lt.Maintain(ctx, desc)
	span.Int("millrace.commits", int64(done.Commits)).Int("millrace.files_merged", int64(done.FilesMerged)).
		Int("millrace.snapshots_expired", int64(done.SnapshotsExpired)).Int("millrace.files_removed", int64(done.FilesRemoved))
	t.m.metrics.maintenance(done, t.m.o.Clock.Now().Sub(began))
	if done.Commits > 0 {
		t.stale()
	}
	return err
}
