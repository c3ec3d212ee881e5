package iceberg

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/apache/iceberg-go/table"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// current gives the newest version and its newest snapshot; nil when that has none.
func (t *lakeTable) current(ctx context.Context) (*version, *snapshot, error) {
	v, err := t.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	if v == nil {
		return nil, nil, errs.New(errs.CorruptData, "the metadata of lake table %s is gone: restore it; nothing is written to the table before", t.location)
	}
	head := v.meta.CurrentSnapshot()
	if head == nil {
		return v, nil, nil
	}
	t.mu.Lock()
	newest := t.mu.newest
	t.mu.Unlock()
	if newest != nil && newest.meta == v.meta {
		return v, newest, nil
	}
	s, err := t.snapshotOf(ctx, v, head)
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.seen == v {
		t.mu.newest = s
	}
	return v, s, nil
}

// snapshotOf is a snapshot that a version has, with how far it is.
func (t *lakeTable) snapshotOf(ctx context.Context, v *version, s *table.Snapshot) (*snapshot, error) {
	p, err := t.progressOf(ctx, v.meta, s)
	if err != nil {
		return nil, err
	}
	return &snapshot{t: t, meta: v.meta, snap: *s, progress: p}, nil
}

// byID is a snapshot by number.
func (t *lakeTable) byID(ctx context.Context, id int64) (*snapshot, error) {
	v, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	if v != nil {
		if s := v.meta.SnapshotByID(id); s != nil {
			return t.snapshotOf(ctx, v, s)
		}
	}
	return nil, errs.New(errs.SnapshotGone, "snapshot %d of lake table %s is no longer kept", id, t.location)
}

// Metadata is the newest metadata of a table's lake table as Iceberg's JSON, and the
// address of its file. The lake table is made when there is none.
func (f *Format) Metadata(ctx context.Context, desc *millrace.Table) (location string, body []byte, err error) {
	t, err := f.open(ctx, desc)
	if err != nil {
		return "", nil, err
	}
	v, err := t.load(ctx)
	if err != nil {
		return "", nil, err
	}
	if body, err = json.Marshal(v.meta); err != nil {
		return "", nil, fmt.Errorf("encode the metadata of lake table %s: %w", t.location, err)
	}
	return v.location, body, nil
}
