package iceberg

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
)

// found are positions that go from a file of a round's base.
type found struct {
	slice     lake.Slice
	file      *lakeFile
	positions *roaring.Bitmap // nil: none
}

// Delete implements lake.Round. It reads the key columns of the slice's files, as far
// as their statistics leave room for one of the keys; what is done about the rows that
// it finds is settle's.
func (r *round) Delete(ctx context.Context, s lake.Slice, keys map[string]struct{}) (int64, error) {
	if r.base == nil || len(keys) == 0 {
		return 0, nil
	}
	c, err := r.t.contentsOf(ctx, r.at.meta, &r.base.snap)
	if err != nil {
		return 0, err
	}
	set := newKeySet(r.desc.Columns(r.desc.PrimaryKey), keys)
	total := int64(0)
	for _, f := range c.data {
		if total == int64(len(keys)) { // a key has one live row at most
			break
		}
		if !f.inSlice(s) || r.isRemoved(f.path) || !set.mayHold(f.columnStats) {
			continue
		}
		n, err := r.find(ctx, s, f, set)
		if err != nil {
			return 0, err
		}
		total += n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ended {
		return 0, errClosed
	}
	r.mu.written.DeletedRows += total
	return total, nil
}

// inSlice says whether a file may hold rows of a slice.
func (f *lakeFile) inSlice(s lake.Slice) bool {
	if s.Partition != nil && !slices.Equal(f.values, s.Partition.Values) {
		return false
	}
	return s.Bucket == lake.NoBucket || f.bucket == lake.NoBucket || f.bucket == s.Bucket
}

func (r *round) isRemoved(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.mu.remove[path]
	return ok
}

// find looks through a file of the base for live rows with one of the keys.
func (r *round) find(ctx context.Context, s lake.Slice, f *lakeFile, set *keySet) (int64, error) {
	if f.spec != r.spec.ID() { // deletes would not apply to it
		return 0, errs.New(errs.NotImplemented, "file %s of lake table %s has another partition spec than the table by now: rewrite it with the writer that changed the spec", f.path, r.t.location)
	}
	r.mu.Lock()
	before := r.mu.found[f.path]
	r.mu.Unlock()
	if before == nil {
		before = &found{slice: s, file: f, positions: roaring.New()}
	}
	rs, err := r.t.read(ctx, r.base.snap.SnapshotID, f, reading{
		Read: lake.Read{Columns: set.columns}, deleted: before.positions,
		mayHold: set.mayHold,
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = rs.Close() }()
	cols := make([]int, len(set.columns))
	for i := range cols {
		cols[i] = i
	}
	positions := before.positions.Clone()
	n := int64(0)
	var key []byte
	for {
		batch, at, err := rs.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		for i := range int(batch.NumRows()) {
			key = row.AppendKey(key[:0], batch, cols, i)
			if _, ok := set.all[string(key)]; ok {
				positions.Add(uint32(at[i]))
				n++
			}
		}
		batch.Release()
	}
	if n == 0 {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.found == nil {
		r.mu.found = map[string]*found{}
	}
	r.mu.found[f.path] = &found{slice: s, file: f, positions: positions}
	return n, nil
}

// settle writes what became of the rows that Delete has found: files of their positions,
// one a slice, or the files without them.
func (r *round) settle(ctx context.Context) error {
	r.mu.Lock()
	all := r.mu.found
	r.mu.found = nil
	r.mu.Unlock()
	type sliceKey struct {
		partition millrace.PartitionID
		bucket    int
	}
	slicesOf := map[sliceKey][]*found{}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		f := all[path]
		if r.isRemoved(path) {
			continue // the slice was cleared since
		}
		f.slice.Bucket = f.file.bucket // other rows of a file that has several buckets stay
		k := sliceKey{bucket: f.slice.Bucket}
		if f.slice.Partition != nil {
			k.partition = f.slice.Partition.ID
		}
		slicesOf[k] = append(slicesOf[k], f)
	}
	rewrite := r.desc.Options.Lake != nil && r.desc.Options.Lake.Deletes == millrace.RewriteFiles
	for _, files := range slicesOf {
		var err error
		if rewrite {
			err = r.rewriteFound(ctx, files[0].slice, files)
		} else {
			err = r.writePositions(ctx, files[0].slice, files)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rewriteFound rewrites files without what was found in them; what is left of deletes
// from before the table was set to be rewritten is written anew.
func (r *round) rewriteFound(ctx context.Context, s lake.Slice, files []*found) error {
	if err := r.rewrite(ctx, s, files); err != nil {
		return err
	}
	c, err := r.t.contentsOf(ctx, r.at.meta, &r.base.snap)
	if err != nil {
		return err
	}
	p := &part{slice: s}
	for _, d := range c.deletes {
		if slices.ContainsFunc(files, func(f *found) bool { return slices.Contains(f.file.deletes, d) }) {
			p.deletes = append(p.deletes, d)
		}
	}
	_, err = r.mergeDeletes(ctx, c, p)
	return err
}

// rewrite writes the live rows of files of a slice into new ones, without what was
// found in them, and takes the old ones out.
func (r *round) rewrite(ctx context.Context, s lake.Slice, files []*found) error {
	w, err := r.newFileWriter(ctx, s)
	if err != nil {
		return err
	}
	defer w.abort()
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.file.path
		if err := r.copyRows(ctx, w, f); err != nil {
			return err
		}
	}
	done, err := w.close()
	if err != nil {
		return err
	}
	if err := r.added(done, 0, w.bytes); err != nil {
		return err
	}
	return r.removed(paths, 0)
}

// copyRows writes the live rows of a file.
func (r *round) copyRows(ctx context.Context, w *fileWriter, f *found) error {
	rs, err := r.t.read(ctx, r.base.snap.SnapshotID, f.file, reading{Read: lake.Read{Columns: lakeColumns(r.desc)}, deleted: f.positions})
	if err != nil {
		return err
	}
	defer func() { _ = rs.Close() }()
	for {
		batch, _, err := rs.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = w.write(batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
}
