package tier

import (
	"cmp"
	"context"
	"fmt"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// Tier takes a table to the lake now: rows that were acknowledged before the call are
// there when it returns.
func (m *Manager) Tier(ctx context.Context, t *millrace.Table) (lake.Status, error) {
	if !enabled(t) {
		return lake.Status{}, errs.New(errs.InvalidValue, "table %s is not tiered: set its property table.datalake.enabled to true", t.Path)
	}
	rows, err := m.now(ctx, t)
	if err != nil {
		return lake.Status{}, err
	}
	s, err := m.Status(ctx, t)
	s.Tiered = rows
	return s, err
}

// now runs a job that begins after the call.
func (m *Manager) now(ctx context.Context, t *millrace.Table) (rows int64, err error) {
	j, err := m.table(t.ID).ask(true, m.o.Clock.Now())
	if err != nil {
		return 0, err
	}
	select {
	case <-j.done:
		return j.rows, j.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Status says how far a table is in the lake. That the lake cannot be asked is part of
// the answer, no error.
func (m *Manager) Status(ctx context.Context, desc *millrace.Table) (lake.Status, error) {
	s := lake.Status{Table: desc.ID, State: lake.StateEmpty}
	if desc.Options.Lake == nil {
		return s, nil
	}
	s.Enabled, s.Format = enabled(desc), desc.Options.Lake.Format
	src, err := m.from()
	if err != nil {
		return s, err
	}
	t := m.table(desc.ID)
	t.mu.Lock()
	snap, known := t.newest, t.sure()
	t.mu.Unlock()
	var lakeErr error
	if !known {
		snap, lakeErr = t.lookSoon(ctx, desc)
	}
	if err := ctx.Err(); err != nil {
		return s, err
	}
	t.mu.Lock()
	s.Failure = t.failure
	if t.lt != nil {
		s.Location = t.lt.Location()
	}
	t.mu.Unlock()
	if lakeErr != nil && s.Failure == nil {
		code, detail := said(lakeErr)
		s.Failure = &lake.Failure{Code: code, Detail: detail, Since: m.o.Clock.Now()}
	}
	if s.Failure == nil {
		s.Failure = t.damage(ctx)
	}
	if s.Failure == nil {
		s.Failure = t.foreignDeletes(desc, snap)
	}
	if snap != nil {
		s.Skipped = snap.Skipped()
		s.State, s.Snapshot, s.Round, s.CommittedAt, s.Totals = lake.StateOK, snap.ID(), snap.Round(), snap.CommittedAt(), snap.Totals()
	}
	if s.Failure != nil {
		s.State = lake.StateFailing
	}
	if s.Offsets, err = m.offsets(ctx, desc, offsetsOf(snap)); err != nil || !s.Enabled {
		return s, err
	}
	todo, err := t.backlog(ctx, src, desc, snap, true)
	if err != nil {
		return s, err
	}
	if wrong := cmp.Or(todo.broken, todo.again); wrong != nil && (s.Failure == nil || s.Failure.Code == errs.NotImplemented) {
		code, detail := said(wrong)
		s.State, s.Failure = lake.StateFailing, &lake.Failure{Code: code, Detail: detail, Since: m.o.Clock.Now()}
	}
	s.Pending = todo.rows
	if !todo.oldest.IsZero() {
		s.Lag = max(0, m.o.Clock.Now().Sub(todo.oldest))
	}
	return s, nil
}

// damage is what is known to be lost of the lake table.
func (t *table) damage(ctx context.Context) *lake.Failure {
	t.mu.Lock()
	lt := t.lt
	t.mu.Unlock()
	if lt == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, t.m.o.LookTime)
	defer cancel()
	return lt.Damage(limited)
}

// foreignDeletes tells of deletes by another writer that reads cannot apply. Rounds go on:
// they append, and where they have to look into such files they say so themselves.
func (t *table) foreignDeletes(desc *millrace.Table, s lake.Snapshot) *lake.Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s == nil || s.Totals().EqualityDeletes == 0 {
		t.foreignSince = time.Time{}
		return nil
	}
	if t.foreignSince.IsZero() {
		t.foreignSince = t.m.o.Clock.Now()
	}
	return &lake.Failure{Code: errs.NotImplemented, Since: t.foreignSince, Detail: fmt.Sprintf(
		"another writer has put %d equality deletes into the lake table of table %s: reads of the files that they apply to are refused until that writer has compacted them", s.Totals().EqualityDeletes, desc.Path)}
}

// offsets are by bucket key, of buckets that the workers have.
func (m *Manager) offsets(ctx context.Context, desc *millrace.Table, have lake.Offsets) (map[string]millrace.Offset, error) {
	ps, err := m.partitions(ctx, desc)
	if err != nil {
		return nil, err
	}
	out := map[string]millrace.Offset{}
	for _, p := range ps {
		for n := range uint16(desc.Buckets) {
			if len(out) == lake.MaxStatusOffsets {
				return out, nil
			}
			pc := piece{partition: p, bucket: n}
			if at, known := have[pc.id(desc)]; known {
				out[millrace.BucketKey(nameOf(p), n)] = at
			}
		}
	}
	return out, nil
}

const (
	// seenFor is how long the newest snapshot is taken to be the newest without asking:
	// what other processes commit is seen then.
	seenFor = 10 * time.Second
	// seenAtMost is for how long an older one is better than none, when the lake does
	// not answer; well within lake.ReadGrace.
	seenAtMost = 10 * time.Minute
)

// Newest is the newest snapshot of a table's lake table; nil when there is none.
func (m *Manager) Newest(ctx context.Context, desc *millrace.Table) (lake.Snapshot, error) {
	if desc.Options.Lake == nil {
		return nil, nil
	}
	t := m.table(desc.ID)
	t.mu.Lock()
	s, age, sure := t.newest, m.o.Clock.Now().Sub(t.seenAt), t.sure()
	t.mu.Unlock()
	if sure && age < seenFor {
		return s, nil
	}
	now, err := t.lookSoon(ctx, desc)
	if err != nil && age < seenAtMost && ctx.Err() == nil {
		return s, nil
	}
	return now, err
}

// Snapshot is a snapshot by number; errs.SnapshotGone when it is no longer kept.
func (m *Manager) Snapshot(ctx context.Context, desc *millrace.Table, id int64) (lake.Snapshot, error) {
	if desc.Options.Lake == nil {
		return nil, errs.New(errs.SnapshotGone, "table %s has no lake table", desc.Path)
	}
	t := m.table(desc.ID)
	t.mu.Lock()
	s := t.newest
	t.mu.Unlock()
	if s != nil && s.ID() == id {
		return s, nil
	}
	lt, err := t.open(ctx, desc)
	if err != nil {
		return nil, err
	}
	return lt.Snapshot(ctx, id)
}
