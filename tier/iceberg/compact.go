package iceberg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/apache/iceberg-go/table"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

// Compaction is tiered by size: files of a slice whose size lies within a factor of
// four are of one tier, and tierFiles of them are merged into a file of a higher one.
// So a slice has fewer than tierFiles small files of each tier, and a row is rewritten
// once a tier at most. Delete files go by rows the same way. A file that has lost
// wornPart of its rows is rewritten by itself.
const (
	tierFiles    = 6
	smallestTier = 256 << 10 // bytes; all below is one tier
	smallestRows = 1 << 10   // of delete files
	wornPart     = 0.25
	compactBytes = 256 << 20 // that one call rewrites, but for its first merge
	fullFilePart = 0.75      // of the target: such a file is not small any more
	maxSources   = 64        // of one merge
)

// compact makes one commit of merges, unless there is nothing to merge. Readers and
// rounds go on meanwhile: when a commit comes in between, this one is given up.
func (t *lakeTable) compact(ctx context.Context, desc *millrace.Table, done *lake.Maintained) error {
	r, err := t.begin(ctx, desc)
	if err != nil {
		return err
	}
	if r.base == nil || !r.at.meta.CurrentSchema().Equals(r.schema) {
		return nil // the next round brings the schema, and rows
	}
	merged, err := r.merge(ctx)
	if err == nil && merged {
		err = r.publishMerge(ctx, done)
	}
	r.Abort(ctx)
	if errors.Is(err, errConflict) {
		return nil
	}
	return err
}

// publishMerge commits merges, with the progress of the base.
func (r *round) publishMerge(ctx context.Context, done *lake.Maintained) error {
	r.mu.Lock()
	e := r.mu.edit
	r.mu.Unlock()
	_, _, started, err := r.t.publish(ctx, &commit{at: r.at, base: r.base, spec: &r.spec, edit: e, operation: table.OpReplace, own: r.own})
	if started && !errors.Is(err, errConflict) {
		r.mu.Lock()
		r.mu.ended = true // what may be published stays
		r.mu.Unlock()
	}
	if err != nil {
		return err
	}
	deletes := 0
	for path := range e.remove {
		if strings.HasSuffix(path, "-deletes.parquet") {
			deletes++
		}
	}
	done.Commits++
	done.FilesMerged += len(e.remove) - deletes
	done.DeletesMerged += deletes
	done.FilesWritten += len(e.addData)
	return nil
}

// part is the files of one slice.
type part struct {
	slice   lake.Slice
	data    []*lakeFile
	deletes []*deleteFile
}

// merge merges what should be, slice by slice, and says whether there was anything.
func (r *round) merge(ctx context.Context) (bool, error) {
	c, err := r.t.contentsOf(ctx, r.at.meta, &r.base.snap)
	if err != nil {
		return false, err
	}
	target := int64(millrace.DefaultTargetFileBytes)
	if o := r.desc.Options.Lake; o != nil && o.TargetFileBytes > 0 {
		target = o.TargetFileBytes
	}
	rewritten, merged := int64(0), false
	for _, p := range r.parts(c) {
		for rewritten < compactBytes {
			files, err := r.pick(ctx, p, target)
			if err != nil {
				return false, err
			}
			if len(files) == 0 {
				break
			}
			for _, f := range files {
				rewritten += f.bytes
			}
			p.data = slices.DeleteFunc(p.data, func(f *lakeFile) bool { return slices.Contains(files, f) })
			if err := r.mergeData(ctx, p.slice, files); err != nil {
				return false, err
			}
			merged = true
		}
		n, err := r.mergeDeletes(ctx, c, p)
		if err != nil {
			return false, err
		}
		merged = merged || n
	}
	return merged, nil
}

// parts are the slices of the base's files, in order, as far as we can rewrite them.
func (r *round) parts(c *contents) []*part {
	byName := map[string]*part{}
	of := func(values []string, bucket int, path string) *part {
		k := fmt.Sprintf("%q/%d", values, bucket)
		p := byName[k]
		if p == nil {
			p = &part{slice: lake.Slice{Bucket: bucket}}
			if values != nil {
				p.slice.Partition = &millrace.Partition{ID: partitionOfName(path), Values: values}
			}
			byName[k] = p
		}
		return p
	}
	for _, f := range c.data {
		if f.refused == nil && f.spec == r.spec.ID() {
			p := of(f.values, f.bucket, f.path)
			p.data = append(p.data, f)
		}
	}
	for _, d := range c.deletes {
		p := of(d.values, d.bucket, d.path)
		p.deletes = append(p.deletes, d)
	}
	var out []*part
	for _, k := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[k])
	}
	return out
}

// pick chooses files of a slice to be merged; none: there is nothing to do.
func (r *round) pick(ctx context.Context, p *part, target int64) ([]*lakeFile, error) {
	tiers := map[int][]*lakeFile{}
	for _, f := range p.data {
		deleted, err := r.t.deletedOf(ctx, f)
		if err != nil {
			return nil, r.t.missing(ctx, r.base.snap.SnapshotID, err)
		}
		if deleted != nil && float64(deleted.GetCardinality()) >= wornPart*float64(f.rows) {
			return []*lakeFile{f}, nil
		}
		if float64(f.bytes) < fullFilePart*float64(target) {
			n := tier(f.bytes, smallestTier)
			tiers[n] = append(tiers[n], f)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(tiers)) {
		files := tiers[n]
		if len(files) < tierFiles {
			continue
		}
		slices.SortFunc(files, func(a, b *lakeFile) int {
			return cmp.Or(cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.path, b.path))
		})
		total := int64(0)
		for i, f := range files[:min(len(files), maxSources)] {
			if total += f.bytes; total >= target && i > 0 {
				return files[:i+1], nil
			}
		}
		return files[:min(len(files), maxSources)], nil
	}
	return nil, nil
}

// tier numbers sizes by powers of four; all up to smallest are tier 0.
func tier(size, smallest int64) int {
	return (bits.Len64(uint64(max(0, size/smallest))) + 1) / 2
}

// mergeData rewrites files of a slice into new ones.
func (r *round) mergeData(ctx context.Context, s lake.Slice, files []*lakeFile) error {
	whole := make([]*found, len(files))
	for i, f := range files {
		whole[i] = &found{slice: s, file: f}
	}
	return r.rewrite(ctx, s, whole)
}

// mergeDeletes writes anew what is still to be said of delete files of a slice: those
// of a tier that is full, those with positions of files that were rewritten, and those
// of files that are not there any more. So each position in a delete file is one of a
// row that is, and totals count it.
func (r *round) mergeDeletes(ctx context.Context, c *contents, p *part) (bool, error) {
	tiers := map[int]int{}
	for _, d := range p.deletes {
		tiers[tier(d.rows, smallestRows)]++
	}
	left := map[string]*lakeFile{}
	for _, f := range c.data {
		if !r.isRemoved(f.path) {
			left[f.path] = f
		}
	}
	var gone []string
	live := map[string]*found{}
	for _, d := range p.deletes {
		all, err := r.t.positionsOf(ctx, d)
		if err != nil {
			return false, err
		}
		stays := tiers[tier(d.rows, smallestRows)] < tierFiles
		for path := range all {
			f := left[path]
			stays = stays && f != nil && f.sequence <= d.sequence
		}
		if stays {
			continue
		}
		gone = append(gone, d.path)
		for path, b := range all {
			f := left[path]
			switch {
			case f == nil || f.sequence > d.sequence:
			case live[path] == nil:
				live[path] = &found{slice: p.slice, file: f, positions: b.Clone()}
			default:
				live[path].positions.Or(b)
			}
		}
	}
	if len(gone) == 0 {
		return false, nil
	}
	var files []*found
	for _, path := range slices.Sorted(maps.Keys(live)) {
		files = append(files, live[path])
	}
	if len(files) > 0 {
		if err := r.writePositions(ctx, p.slice, files); err != nil {
			return false, err
		}
	}
	return true, r.removed(gone, 0)
}
