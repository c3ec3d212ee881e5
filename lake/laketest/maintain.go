package laketest

import (
	"context"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

// keptFor is how long a snapshot is kept.
const keptFor = 24 * time.Hour

// Maintain merges all files of a slice that were written with one schema into one, and
// expires old snapshots.
func (t *Table) Maintain(_ context.Context, desc *millrace.Table) (lake.Maintained, error) {
	var m lake.Maintained
	if err := t.f.ask(Maintain, t.id); err != nil {
		return m, err
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if t.newest() == nil {
		return m, nil
	}
	if desc.Options.Lake.Compact {
		t.merge(&m)
	}
	if desc.Options.Lake.Expire {
		t.expire(&m)
	}
	return m, nil
}

// merge makes a snapshot with fewer files, if there can be one.
// REQUIRES: f.mu held.
func (t *Table) merge(m *lake.Maintained) {
	type slice struct {
		partition millrace.PartitionID
		bucket    int
		schema    millrace.SchemaID
		system    bool
	}
	base := t.newest()
	groups, order := map[slice][]*file{}, []slice{}
	for _, f := range base.files {
		k := slice{f.partition, f.bucket, f.schema, f.system != nil}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], f)
	}
	s := &Snapshot{
		t: t, committedAt: latest(t.f.now(), base.committedAt), round: base.round, schema: base.schema,
		offsets: base.offsets, skipped: base.skipped, gaps: base.gaps, deleted: map[*file]map[int64]struct{}{},
	}
	changed := false
	for _, k := range order {
		fs := groups[k]
		if len(fs) == 1 && len(base.deleted[fs[0]]) == 0 {
			s.files = append(s.files, fs[0])
			continue
		}
		changed = true
		out := t.without(fs[0], base.deleted[fs[0]])
		for _, f := range fs[1:] {
			out.take(f, base.deleted[f])
		}
		for _, f := range fs {
			m.FilesMerged++
			if len(base.deleted[f]) > 0 {
				m.DeletesMerged++
			}
		}
		if len(out.rows) > 0 {
			s.files = append(s.files, out)
			m.FilesWritten++
		}
	}
	if changed {
		t.publish(s)
		m.Commits++
	}
}

// expire lets go of snapshots that were replaced long enough ago.
// REQUIRES: f.mu held.
func (t *Table) expire(m *lake.Maintained) {
	for len(t.snaps) > 1 && t.f.now().Sub(t.snaps[1].committedAt) >= max(keptFor, lake.ReadGrace) {
		t.snaps = t.snaps[1:]
		m.SnapshotsExpired++
	}
}
