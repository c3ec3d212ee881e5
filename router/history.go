package router

import (
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// NoBucket is the bucket of parts and chunks whose rows are of several: files of the
// lake may be so.
const NoBucket uint16 = 0xffff

// history is what a plan reads of the lake: one snapshot, whatever is committed or
// merged meanwhile.
type history struct {
	snap  lake.Snapshot
	lag   *int64                    // ms that it is behind the logs; nil: not known
	files map[fileSlice][]lake.File // of the plan's scope; nil: not listed yet
}

// fileSlice names the files of one bucket, in the order that places count in.
type fileSlice struct {
	partition string
	bucket    uint16
}

// offset is where the log of a bucket goes on after the lake's rows; there are none,
// when there is no such offset.
func (h *history) offset(b millrace.BucketID) (millrace.Offset, bool) {
	if h == nil {
		return 0, false
	}
	o, ok := h.snap.Offsets()[b]
	return o, ok
}

// holds says whether the lake has rows of a partition. Files of one that has its values
// and another number are what a partition left that was dropped.
func (h *history) holds(id millrace.PartitionID, t *millrace.Table) bool {
	for b := range t.Buckets {
		if _, ok := h.offset(millrace.BucketID{Table: t.ID, Partition: id, Bucket: uint16(b)}); ok {
			return true
		}
	}
	return false
}

// pinHistory pins the newest snapshot of the lake.
func (r *Router) pinHistory(ctx context.Context, p *Plan) error {
	p.history = nil
	snap, err := r.o.Lake.Newest(ctx, p.Table)
	if err != nil || snap == nil {
		return err
	}
	return r.readsHistory(ctx, p, snap)
}

// snapshotOf is a snapshot of a table's lake by its number.
func (r *Router) snapshotOf(ctx context.Context, t *millrace.Table, id int64) (lake.Snapshot, error) {
	if !r.inLake(t) {
		return nil, errs.New(errs.SnapshotGone, "table %s has no lake any more: start the read again", t.Path)
	}
	return r.o.Lake.Snapshot(ctx, t, id)
}

// readsHistory makes a snapshot the plan's, unless it was committed after columns of
// the plan were dropped.
func (r *Router) readsHistory(ctx context.Context, p *Plan, snap lake.Snapshot) error {
	if snap.Schema() > p.Table.Schema.ID {
		now, err := r.tableAs(ctx, p.Table, snap.Schema())
		if err != nil {
			return err
		}
		guard := newColumnGuard(p.Table, p.stateColumns())
		if err := guard.check(now.Schema); err != nil {
			return err
		}
	}
	p.history = &history{snap: snap}
	return nil
}

// inLake says whether the table has a lake that reads of it can stand on.
func (r *Router) inLake(t *millrace.Table) bool { return r.o.Lake != nil && t.Options.Lake != nil }

// LakeSnapshot is the snapshot of the lake that the plan reads, 0 when there is none; and,
// of a plan that reads nothing else, by how many milliseconds that is behind the logs.
func (p *Plan) LakeSnapshot() (id int64, lag *int64) {
	if p.history == nil {
		return 0, nil
	}
	return p.history.snap.ID(), p.history.lag
}

// listFiles lists the files of the lake that may hold rows of the plan, for partitions
// and buckets that it names.
func (p *Plan) listFiles(ctx context.Context, partitions []string, buckets []uint16) error {
	scope := lake.Scope{Schema: p.Table.Schema, Filter: p.filter}
	if p.View.ofLog() { // a cursor may come back with another filter
		scope.Filter = nil
	}
	names := p.Table.Names(p.Table.PartitionBy)
	if p.Table.Partitioned() {
		scope.Partition = func(values []string) bool {
			if len(values) != len(names) {
				return false
			}
			_, wanted := slices.BinarySearch(partitions, millrace.PartitionName(names, values))
			return wanted
		}
	}
	if len(buckets) < p.Table.Buckets {
		scope.Buckets = buckets
	}
	files, err := p.history.snap.Files(ctx, scope)
	if err != nil {
		return err
	}
	p.history.files = map[fileSlice][]lake.File{}
	for i := range files {
		f := &files[i]
		at := fileSlice{bucket: uint16(f.Bucket)}
		switch {
		case f.Bucket == lake.NoBucket && p.Table.Buckets == 1:
			at.bucket = 0
		case f.Bucket == lake.NoBucket:
			at.bucket = NoBucket
		case f.Bucket < 0 || f.Bucket >= p.Table.Buckets:
			return errs.New(errs.CorruptData, "file %s in the lake is of bucket %d, and table %s has %d", f.Path, f.Bucket, p.Table.Path, p.Table.Buckets)
		}
		if p.Table.Partitioned() {
			if len(f.Values) != len(names) {
				return errs.New(errs.CorruptData, "file %s in the lake has no partition that table %s could have", f.Path, p.Table.Path)
			}
			at.partition = millrace.PartitionName(names, f.Values)
		}
		p.history.files[at] = append(p.history.files[at], *f)
	}
	return nil
}

// listParts lists the files of some parts, if none were listed yet.
func (p *Plan) listParts(ctx context.Context, some func(*Part) bool) error {
	if p.history.files != nil {
		return nil
	}
	var partitions []string
	buckets := []uint16{}
	for i := range p.Parts {
		part := &p.Parts[i]
		if !some(part) {
			continue
		}
		partitions = append(partitions, part.Partition)
		if part.Bucket.Bucket != NoBucket {
			buckets = append(buckets, part.Bucket.Bucket)
		}
	}
	slices.Sort(partitions)
	slices.Sort(buckets)
	return p.listFiles(ctx, slices.Compact(partitions), slices.Compact(buckets))
}

// ofFiles says whether a part is read from files of the lake, or was.
func (p *Part) ofFiles() bool { return p.Lake || p.Overlay }

// filesOf are the files of a part.
func (p *Plan) filesOf(part *Part) []lake.File {
	files := p.history.files[fileSlice{part.Partition, part.Bucket.Bucket}]
	if part.Files >= 0 {
		files = files[:min(part.Files, len(files))]
	}
	return files
}
