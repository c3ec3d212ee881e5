package iceberg

import (
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/lake"
)

var _ lake.Snapshot = (*snapshot)(nil)

// Files implements lake.Snapshot.
func (s *snapshot) Files(ctx context.Context, scope lake.Scope) ([]lake.File, error) {
	c, err := s.t.contentsOf(ctx, s.meta, &s.snap)
	if err != nil {
		return nil, err
	}
	var out []lake.File
	for _, f := range c.data {
		if !f.inScope(&scope) {
			continue
		}
		if f.refused != nil {
			return nil, f.refused
		}
		out = append(out, lake.File{Path: f.path, Bytes: f.bytes, Rows: f.rows, Deleted: f.deleted(), Values: f.values, Bucket: f.bucket, Handle: f})
	}
	return out, nil
}

// inScope says whether a file may hold rows of a scope.
func (f *lakeFile) inScope(s *lake.Scope) bool {
	if s.Buckets != nil && f.bucket != lake.NoBucket {
		if _, found := slices.BinarySearch(s.Buckets, uint16(f.bucket)); !found {
			return false
		}
	}
	if s.Partition != nil && f.values != nil && !s.Partition(f.values) {
		return false
	}
	return s.Filter == nil || s.Filter.MayMatch(func(name string) (filter.Stats, bool) {
		i := s.Schema.Index(name)
		if i < 0 {
			return filter.Stats{}, false
		}
		return f.columnStats(s.Schema.Columns[i])
	})
}

// columnStats are the statistics of a scalar column; false when there are none.
func (f *lakeFile) columnStats(c millrace.Column) (filter.Stats, bool) {
	i, found := slices.BinarySearchFunc(f.stats, int(c.ID), func(st columnStats, id int) int { return st.id - id })
	if !found || c.Type.Nested() {
		return filter.Stats{}, false
	}
	st := newStats(c.Type, f.rows, f.stats[i].nulls, f.stats[i].nans)
	setBounds(&st, c.Type, f.stats[i].lower, f.stats[i].upper)
	return st, true
}

// Rows implements lake.Snapshot.
func (s *snapshot) Rows(ctx context.Context, f *lake.File, r lake.Read) (lake.Rows, error) {
	df, ok := f.Handle.(*lakeFile)
	if !ok {
		return nil, errs.New(errs.Internal, "file %s is not one that a snapshot of lake table %s has listed", f.Path, s.t.location)
	}
	rows, err := s.t.read(ctx, s.snap.SnapshotID, df, reading{Read: r})
	if err != nil {
		return nil, err // and no nil pointer, which were no nil Rows
	}
	return rows, nil
}

// read reads the live rows of a file of a snapshot. What r leaves out as deleted is left out
// too.
func (t *lakeTable) read(ctx context.Context, snapshot int64, f *lakeFile, r reading) (*rows, error) {
	rs, err := t.readFile(ctx, f, r)
	if err != nil {
		return nil, t.missing(ctx, snapshot, err)
	}
	rs.missing = func(err error) error { return t.missing(ctx, snapshot, err) }
	return rs, nil
}

func (t *lakeTable) readFile(ctx context.Context, f *lakeFile, r reading) (*rows, error) {
	if f.refused != nil {
		return nil, f.refused
	}
	deleted, err := t.deletedOf(ctx, f)
	if err != nil {
		return nil, err
	}
	switch {
	case r.deleted == nil:
		r.deleted = deleted
	case deleted != nil:
		r.deleted = roaring.Or(deleted, r.deleted)
	}
	rs, err := openRows(ctx, t.f.o.Store, f.key, f.bytes, r)
	if err != nil {
		return nil, err
	}
	if n := rs.file.starts[len(rs.file.starts)-1]; n != f.rows {
		_ = rs.Close()
		return nil, errs.New(errs.CorruptData, "file %s of the lake has %d rows, its manifest says %d", f.key, n, f.rows)
	}
	return rs, nil
}
