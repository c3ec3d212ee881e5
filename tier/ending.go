package tier

import (
	"context"
	"maps"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// TakeOver returns when the lake has all rows of a sealed partition. A table that is not
// tiered has nothing to take over.
func (m *Manager) TakeOver(ctx context.Context, t *millrace.Table, p *millrace.Partition) error {
	if !enabled(t) {
		return nil
	}
	src, err := m.from()
	if err != nil {
		return err
	}
	if _, err := m.now(ctx, t); err != nil {
		return err
	}
	s, err := m.table(t.ID).snapshot(ctx, t)
	if err != nil {
		return err
	}
	have := offsetsOf(s)
	logs, err := src.LogRanges(ctx, t, []*millrace.Partition{p})
	if err != nil {
		return err
	}
	for n := range uint16(t.Buckets) {
		lr := logs[0][n]
		if lr.End > have[p.BucketID(n)] {
			return errs.New(errs.Unavailable, "bucket %s of table %s is in the lake up to offset %d of %d", millrace.BucketKey(p.Name, n), t.Path, have[p.BucketID(n)], lr.End)
		}
	}
	return nil
}

// DropPartition removes the rows of a partition from the lake.
// REQUIRES: the catalog says that it is being dropped, or knows it no more, so that no
// round takes it up.
func (m *Manager) DropPartition(ctx context.Context, t *millrace.Table, p *millrace.Partition) error {
	if t.Options.Lake == nil {
		return nil
	}
	lt := m.table(t.ID)
	for try := 1; ; try++ {
		if err := lt.seize(ctx); err != nil {
			return err
		}
		err := lt.interruptibly(ctx, func(ctx context.Context) error { return lt.clear(ctx, t, p) })
		<-lt.busy
		if !lt.again(err) {
			return err
		}
		if try == maxTries {
			return errs.New(errs.Unavailable, "the rows of partition %s of table %s are not removed from the lake: others commit there all the time", p.Name, t.Path)
		}
		lt.waitAnew(ctx, try)
	}
}

// clear commits the end of a partition's rows; nothing, when the lake has none.
// REQUIRES: t.busy held.
func (t *table) clear(ctx context.Context, desc *millrace.Table, p *millrace.Partition) error {
	lt, err := t.open(ctx, desc)
	if isNotMade(desc, err) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := lt.Begin(ctx, desc)
	if err != nil {
		return err
	}
	defer r.Abort(context.WithoutCancel(ctx))
	offsets := next(r.Base())
	was := len(offsets)
	maps.DeleteFunc(offsets, func(b millrace.BucketID, _ millrace.Offset) bool { return b.Partition == p.ID })
	if len(offsets) == was {
		return nil
	}
	if err := r.Clear(ctx, lake.Slice{Partition: p, Bucket: lake.NoBucket}); err != nil {
		return err
	}
	began := t.m.o.Clock.Now()
	s, err := r.Commit(ctx, offsets)
	if err != nil {
		t.stale()
		return err
	}
	t.committed(desc, s, r.Written(), t.m.o.Clock.Now().Sub(began))
	return nil
}

// DropTable ends tiering of a table that the catalog has let go of; a lake table
// that the catalog says is to be removed is gone when it answers, unless that takes long or
// fails: then it is gone on with, also after a restart (Purges).
func (m *Manager) DropTable(ctx context.Context, desc *millrace.Table) error {
	if desc.Options.Lake == nil {
		return nil
	}
	for _, p := range m.o.Catalog.Purges() {
		if p.Table != desc.ID {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, purgeWait)
		defer cancel()
		if done := m.purge(p, m.o.Clock.Now()); done != nil {
			select {
			case <-done:
			case <-limited.Done():
			}
		}
		return nil
	}
	return m.quiet(ctx, desc.ID)
}
