package iceberg

import (
	"context"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

var (
	_ lake.Format = (*Format)(nil)
	_ lake.Table  = (*lakeTable)(nil)
	_ lake.Round  = (*round)(nil)
)

// Open implements lake.Format.
func (f *Format) Open(ctx context.Context, desc *millrace.Table) (lake.Table, error) {
	t, err := f.open(ctx, desc)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Ends are the offsets of the newest snapshot of a table's lake table; nil when there is
// none. Other than Open it makes nothing.
func (f *Format) Ends(ctx context.Context, desc *millrace.Table) (lake.Offsets, error) {
	t := f.handle(desc.ID, desc.Path)
	t.desc = desc
	if v, err := t.load(ctx); v == nil || err != nil {
		return nil, err
	}
	_, s, err := t.current(ctx)
	if err != nil || s == nil {
		return nil, err
	}
	return s.Offsets(), nil
}

// Newest implements lake.Table.
func (t *lakeTable) Newest(ctx context.Context) (lake.Snapshot, error) {
	_, s, err := t.current(ctx)
	if err != nil || s == nil {
		return nil, err
	}
	return s, nil
}

// Snapshot implements lake.Table.
func (t *lakeTable) Snapshot(ctx context.Context, id int64) (lake.Snapshot, error) {
	s, err := t.byID(ctx, id)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Begin implements lake.Table.
func (t *lakeTable) Begin(ctx context.Context, desc *millrace.Table) (lake.Round, error) {
	r, err := t.begin(ctx, desc)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Base implements lake.Round.
func (r *round) Base() lake.Snapshot {
	if r.base == nil {
		return nil
	}
	return r.base
}

// Commit implements lake.Round.
func (r *round) Commit(ctx context.Context, next lake.Offsets) (lake.Snapshot, error) {
	s, err := r.commit(ctx, next)
	if err != nil {
		return nil, err
	}
	return s, nil
}
