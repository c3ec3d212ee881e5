package laketest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
)

// Round is a commit in the making.
type Round struct {
	t       *Table
	desc    *millrace.Table
	base    *Snapshot
	added   []*file
	deleted map[*file]map[int64]struct{} // of the base's files, by this round
	cleared map[*file]bool
	free    []lake.Slice // cleared: their offsets may go or move back
	over    bool
	written lake.Written
	skipped int64
	gaps    int64
}

// Base is the snapshot that it builds on.
func (r *Round) Base() lake.Snapshot {
	if r.base == nil {
		return nil
	}
	return r.base
}

// Written is what the round has written so far.
func (r *Round) Written() lake.Written { return r.written }

var errOver = errors.New("laketest: the round is over")

// slice is a slice in our terms; it refuses those that the table cannot have.
func (r *Round) slice(s lake.Slice) (id millrace.PartitionID, values []string, err error) {
	if (s.Partition != nil) != r.desc.Partitioned() || s.Bucket < lake.NoBucket || s.Bucket >= r.desc.Buckets {
		return 0, nil, fmt.Errorf("laketest: table %s has no slice %+v", r.desc.Path, s)
	}
	if s.Partition == nil {
		return 0, nil, nil
	}
	return s.Partition.ID, s.Partition.Values, nil
}

// Append begins to write rows of a slice.
func (r *Round) Append(_ context.Context, s lake.Slice) (lake.Appender, error) {
	if err := r.t.f.ask(Append, r.t.id); err != nil {
		return nil, err
	}
	id, values, err := r.slice(s)
	if err != nil {
		return nil, err
	}
	ownBucket := r.desc.Keyed() || len(r.desc.BucketKey) == 1 && r.desc.Buckets > 1
	if ownBucket && s.Bucket == lake.NoBucket {
		return nil, fmt.Errorf("laketest: files of table %s hold rows of one bucket each", r.desc.Path)
	}
	return &appender{r: r, partition: id, values: values, bucket: s.Bucket, codec: row.NewCodec(r.desc.Schema)}, nil
}

// appender writes rows of one slice.
type appender struct {
	r         *Round
	partition millrace.PartitionID
	values    []string
	bucket    int
	codec     *row.Codec
	cur       *file
	files     []*file
	closed    bool
}

// Write appends rows.
func (a *appender) Write(rec arrow.RecordBatch) error {
	if err := a.r.t.f.ask(Write, a.r.t.id); err != nil {
		return err
	}
	if a.r.over || a.closed {
		return errOver
	}
	desc := a.r.desc
	n, system := len(desc.Schema.Columns), desc.Options.Lake.SystemColumns
	want := n
	if system {
		want += 3
	}
	if int(rec.NumCols()) != want {
		return fmt.Errorf("laketest: %d columns of table %s, not %d", rec.NumCols(), desc.Path, want)
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
		if c := desc.Schema.Columns[i]; !arrow.TypeEqual(rec.Column(i).DataType(), row.ArrowType(c.Type)) {
			return fmt.Errorf("laketest: column %s is %s", c.Name, rec.Column(i).DataType())
		}
	}
	data := row.Project(rec, all)
	defer data.Release()
	for i := range int(rec.NumRows()) {
		if a.cur == nil || a.cur.bytes >= desc.Options.Lake.TargetFileBytes {
			a.cur = a.r.t.newFile(a.partition, a.values, a.bucket, desc.Schema.ID)
			a.files = append(a.files, a.cur)
		}
		f := a.cur
		b := a.codec.AppendRow(nil, data, i)
		f.rows, f.bytes = append(f.rows, b), f.bytes+int64(len(b))
		if desc.Keyed() {
			f.keys = append(f.keys, string(row.AppendKey(nil, data, desc.KeyIndexes(desc.PrimaryKey), i)))
		}
		if system {
			f.system = append(f.system, System{
				Bucket:    uint16(rec.Column(n).(*array.Int32).Value(i)),
				Offset:    millrace.Offset(rec.Column(n + 1).(*array.Int64).Value(i)),
				Timestamp: rec.Column(n + 2).(*array.Timestamp).Value(i),
			})
		}
	}
	return nil
}

// Close finishes the files.
func (a *appender) Close() error {
	if err := a.r.t.f.ask(Close, a.r.t.id); err != nil {
		return err
	}
	if a.r.over || a.closed {
		return errOver
	}
	a.closed = true
	for _, f := range a.files {
		a.r.written.Files++
		a.r.written.Bytes += f.bytes
		a.r.written.Rows += int64(len(f.rows))
	}
	a.r.added = append(a.r.added, a.files...)
	return nil
}

func (t *Table) newFile(id millrace.PartitionID, values []string, bucket int, schema millrace.SchemaID) *file {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.files++
	return &file{path: fmt.Sprintf("%s/data/%d", t.Location(), t.files), partition: id, values: values, bucket: bucket, schema: schema}
}

// Delete removes the base's live rows that have one of the keys.
func (r *Round) Delete(_ context.Context, s lake.Slice, keys map[string]struct{}) (int64, error) {
	if err := r.t.f.ask(Delete, r.t.id); err != nil {
		return 0, err
	}
	id, _, err := r.slice(s)
	switch {
	case err != nil:
		return 0, err
	case !r.desc.Keyed() || s.Bucket == lake.NoBucket:
		return 0, fmt.Errorf("laketest: rows are deleted by key in one bucket of a keyed table, not in %+v of %s", s, r.desc.Path)
	case r.over:
		return 0, errOver
	case r.base == nil:
		return 0, nil
	}
	var n int64
	for _, f := range r.base.files {
		if f.partition != id || f.bucket != s.Bucket || r.cleared[f] {
			continue
		}
		for i, k := range f.keys {
			if _, hit := keys[k]; !hit {
				continue
			}
			if _, gone := r.base.deleted[f][int64(i)]; gone {
				continue
			}
			if r.deleted[f] == nil {
				r.deleted[f] = map[int64]struct{}{}
			}
			if _, gone := r.deleted[f][int64(i)]; !gone {
				r.deleted[f][int64(i)] = struct{}{}
				n++
			}
		}
	}
	r.written.DeletedRows += n
	return n, nil
}

// Clear removes all rows that the base has of a slice.
func (r *Round) Clear(_ context.Context, s lake.Slice) error {
	if err := r.t.f.ask(Clear, r.t.id); err != nil {
		return err
	}
	id, _, err := r.slice(s)
	if err != nil {
		return err
	}
	if r.over {
		return errOver
	}
	r.free = append(r.free, s)
	if r.base == nil {
		return nil
	}
	for _, f := range r.base.files {
		if f.partition == id && (s.Bucket == lake.NoBucket || f.bucket == s.Bucket) && !r.cleared[f] {
			r.cleared[f] = true
			r.written.DeletedRows += int64(len(f.rows) - len(r.base.deleted[f]))
		}
	}
	return nil
}

// Commit publishes the round.
func (r *Round) Commit(_ context.Context, next lake.Offsets) (lake.Snapshot, error) {
	if r.over {
		return nil, errOver
	}
	if err := r.t.f.ask(BeforeCommit, r.t.id); err != nil {
		r.over = true
		return nil, err
	}
	s, err := r.commit(next)
	if err != nil {
		return nil, err
	}
	if err := r.t.f.ask(AfterCommit, r.t.id); err != nil {
		return nil, err
	}
	return s, nil
}

// Skip notes that the round passes over records.
func (r *Round) Skip(records int64) { r.skipped += records }

// Reach notes that the round has gone over all buckets.
func (r *Round) Reach(gaps int64) { r.gaps = max(r.gaps, gaps) }

func (r *Round) commit(next lake.Offsets) (*Snapshot, error) {
	t := r.t
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	r.over = true
	if t.purged {
		return nil, errs.New(errs.CorruptData, "the lake table of table %d was purged", t.id)
	}
	if t.newest() != r.base {
		return nil, lake.ErrConflict
	}
	s := &Snapshot{t: t, committedAt: t.f.now(), round: 1, schema: r.desc.Schema.ID, offsets: maps.Clone(next), deleted: map[*file]map[int64]struct{}{}}
	if r.base != nil {
		s.round = r.base.round + 1
		s.skipped, s.gaps = r.base.skipped, r.base.gaps
		s.committedAt = latest(s.committedAt, r.base.committedAt)
		r.takeOver(s)
	}
	s.skipped += r.skipped
	s.gaps = max(s.gaps, r.gaps)
	s.files = append(s.files, r.added...)
	if err := r.check(s); err != nil {
		return nil, err
	}
	t.learn(r.desc)
	t.publish(s)
	return s, nil
}

// takeOver puts into s what is left of the base's files.
// REQUIRES: f.mu held.
func (r *Round) takeOver(s *Snapshot) {
	for _, f := range r.base.files {
		if r.cleared[f] {
			continue
		}
		gone := r.base.deleted[f]
		if more := r.deleted[f]; len(more) > 0 {
			gone = maps.Clone(more)
			maps.Copy(gone, r.base.deleted[f])
		}
		if len(gone) > 0 && r.desc.Options.Lake.Deletes == millrace.RewriteFiles {
			f, gone = r.t.without(f, gone), nil
		}
		if len(f.rows) == 0 {
			continue
		}
		s.files = append(s.files, f)
		if len(gone) > 0 {
			s.deleted[f] = gone
		}
	}
}

// without is a file with the rows of f that are not gone.
// REQUIRES: f.mu held.
func (t *Table) without(f *file, gone map[int64]struct{}) *file {
	t.files++
	out := *f
	out.path = fmt.Sprintf("%s/data/%d", t.Location(), t.files)
	out.rows, out.keys, out.system, out.bytes = nil, nil, nil, 0
	out.take(f, gone)
	return &out
}

// take appends the rows of from that are not gone.
func (f *file) take(from *file, gone map[int64]struct{}) {
	for i, b := range from.rows {
		if _, no := gone[int64(i)]; no {
			continue
		}
		f.rows, f.bytes = append(f.rows, b), f.bytes+int64(len(b))
		if from.keys != nil {
			f.keys = append(f.keys, from.keys[i])
		}
		if from.system != nil {
			f.system = append(f.system, from.system[i])
		}
	}
}

// publish makes s the newest.
// REQUIRES: f.mu held.
func (t *Table) publish(s *Snapshot) {
	t.f.lastID++
	s.id = t.f.lastID
	t.snaps = append(slices.Clip(t.snaps), s)
}

// Abort ends a round that is not committed.
func (r *Round) Abort(context.Context) { r.over = true }
