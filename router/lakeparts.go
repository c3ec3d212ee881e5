package router

import (
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A plan that reads the lake pins the newest snapshot first and looks at the logs then,
// so that what the snapshot has is below what the logs are read from. A partition that
// ends meanwhile goes over to the lake, into a snapshot that the plan did not see; then
// it is planned anew.

const (
	// placeTries bounds how often that is done.
	placeTries = 8
	// maxFileParts bounds the parts that files of no one bucket are spread over.
	maxFileParts = 256
)

// placeAll makes the plan's parts.
func (r *Router) placeAll(ctx context.Context, p *Plan, from, until Position) error {
	lake := p.Tier == LakeTier || r.readsLake(p, from)
	past := lake || from.Kind == AtOffsets && r.inLake(p.Table)
	for range placeTries {
		before, err := r.listed(ctx, p.Table)
		if err != nil {
			return err
		}
		var failed error
		if lake {
			failed = r.pinHistory(ctx, p)
		}
		ps := []*millrace.Partition{nil}
		if p.Table.Partitioned() {
			if ps, err = r.partitions(ctx, p, past); err != nil {
				return err
			}
		}
		if err := r.placePartitions(ctx, p, ps, from, until, failed); err != nil {
			return err
		}
		if p.Tier == LakeTier {
			if err := r.lag(ctx, p, ps); err != nil {
				return err
			}
		}
		if !lake || !p.Table.Partitioned() {
			return nil
		}
		if moved, err := r.ended(ctx, p.Table, before, ps); err != nil || !moved {
			return err
		}
		p.Close()
		p.Parts = nil
	}
	return errs.New(errs.Unavailable, "partitions of table %s end faster than a read can begin: try again", p.Table.Path)
}

// readsLake says whether a read of the union has something to look for in the lake.
func (r *Router) readsLake(p *Plan, from Position) bool {
	switch {
	case p.Tier != UnionTier || !r.inLake(p.Table):
		return false
	case p.Table.Keyed() && p.View == RowsView:
		// The workers have all keys but those of partitions that have ended, and find
		// few of them faster.
		return p.Table.Partitioned() || p.keyPrefix() == nil
	default:
		return from.Kind == Full
	}
}

// listed are the table's partitions; none when it has no such.
func (r *Router) listed(ctx context.Context, t *millrace.Table) ([]*millrace.Partition, error) {
	if !t.Partitioned() {
		return nil, nil
	}
	return r.o.Catalog.Partitions(ctx, t.ID)
}

// ended says whether one of the partitions of a plan is no longer as the plan took it:
// what had ended when the snapshot was pinned is in the lake, and what has not ended
// yet is in the logs.
func (r *Router) ended(ctx context.Context, t *millrace.Table, before, used []*millrace.Partition) (bool, error) {
	now, err := r.listed(ctx, t)
	if err != nil || same(before, now) {
		return false, err
	}
	for _, q := range used {
		was := q.State
		if was == millrace.PartitionExpired {
			i := slices.IndexFunc(before, func(b *millrace.Partition) bool { return b.ID == q.ID })
			if i < 0 || before[i].State != millrace.PartitionExpired {
				return true, nil
			}
			continue
		}
		is, err := r.o.Catalog.PartitionByID(ctx, t.ID, q.ID)
		switch {
		case errs.Is(err, errs.PartitionNotFound) || err == nil && is.State == millrace.PartitionExpired:
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, nil
}

// placePartitions places the buckets of some partitions. failed is why there is no
// snapshot of the lake, which matters only to those who need one.
func (r *Router) placePartitions(ctx context.Context, p *Plan, ps []*millrace.Partition, from, until Position, failed error) error {
	var live, past []*millrace.Partition
	for _, q := range ps {
		switch {
		case q == nil && p.Tier != LakeTier || q != nil && from.names(p.Table, q) && !q.Gone:
			live = append(live, q) // also what a partition that ended had in its log, for a while
		case p.Tier == LakeTier || q.State == millrace.PartitionExpired:
			past = append(past, q)
		default:
			live = append(live, q)
		}
	}
	if err := p.fits(len(live) * len(p.scope.buckets)); err != nil {
		return err
	}
	if failed != nil && (!p.Table.Keyed() || len(past) > 0) {
		return failed
	}
	if p.history != nil && (!p.Table.Keyed() || len(past) > 0) {
		if err := p.listFiles(ctx, partitionNames(ps), p.scope.buckets); err != nil {
			return err
		}
		if err := p.placeFiles(ps); err != nil {
			return err
		}
		p.placePast(past)
	}
	if err := r.placeLive(ctx, p, live, from, until); err != nil {
		return err
	}
	if err := p.fits(len(p.Parts)); err != nil {
		return err
	}
	return r.chooseOverlay(ctx, p)
}

// names says whether the position has an offset in a partition.
func (p *Position) names(t *millrace.Table, q *millrace.Partition) bool {
	for n := range t.Buckets {
		if _, ok := p.Offsets[millrace.BucketKey(q.Name, uint16(n))]; ok {
			return true
		}
	}
	return false
}

// lag says how far the plan's snapshot is behind the logs of the buckets that it reads.
func (r *Router) lag(ctx context.Context, p *Plan, ps []*millrace.Partition) error {
	if p.history == nil {
		return nil
	}
	var ms int64
	live := slices.DeleteFunc(slices.Clone(ps), func(q *millrace.Partition) bool { return q != nil && q.State == millrace.PartitionExpired })
	parts := slices.Collect(p.partsOf(live))
	if err := r.look(ctx, p, Question{}, refs(parts, nil)); err != nil {
		return err
	}
	for _, part := range parts {
		if off, _ := p.history.offset(part.Bucket); off < part.look.End {
			ms = max(0, r.o.Clock.Now().Sub(p.history.snap.CommittedAt()).Milliseconds())
			break
		}
	}
	p.history.lag = &ms
	return nil
}

// partitionNames are the names of partitions, which come sorted.
func partitionNames(ps []*millrace.Partition) []string {
	out := make([]string, 0, len(ps))
	for _, q := range ps {
		if q != nil {
			out = append(out, q.Name)
		}
	}
	return out
}

// placeFiles makes parts of the files that are of no one bucket: of log tables, and of
// keyed ones where the lake alone has the rows.
func (p *Plan) placeFiles(ps []*millrace.Partition) error {
	total := 0
	for at, files := range p.history.files {
		if at.bucket == NoBucket {
			total += len(files)
		}
	}
	if total == 0 {
		return nil
	}
	if p.scope.some {
		return errs.New(errs.InvalidValue, "files in the lake hold rows of several buckets of table %s, which do not say of which: read all buckets, or the log alone (tier hot)", p.Table.Path)
	}
	per := (total + maxFileParts - 1) / maxFileParts
	for _, q := range ps {
		part := newPart(p.Table, q, NoBucket)
		files := p.filesOf(&part)
		if len(files) == 0 || !p.history.holds(part.Bucket.Partition, p.Table) {
			continue
		}
		if p.Table.Keyed() && p.Tier != LakeTier && (q == nil || q.State != millrace.PartitionExpired) {
			continue // the workers have these keys
		}
		if p.View.ofLog() { // cursors have one place in them
			p.Parts = append(p.Parts, part)
			continue
		}
		for part.File = 0; part.File < len(files); part.File = part.Files {
			part.Files = min(part.File+per, len(files))
			p.Parts = append(p.Parts, part)
		}
	}
	return nil
}

// placePast places the buckets of which the plan reads the lake alone. Those without
// files are there for the offsets that the lake stands for, unless their partition has
// ended: of such there may be many.
func (p *Plan) placePast(ps []*millrace.Partition) {
	for _, q := range ps {
		for part := range p.partsOf([]*millrace.Partition{q}) {
			off, ok := p.history.offset(part.Bucket)
			part.Lake, part.LakeOnly = ok && len(p.filesOf(&part)) > 0, true
			if !ok || !part.Lake && q != nil && q.LakeOnly() {
				continue
			}
			part.Start, part.End = off, off
			p.Parts = append(p.Parts, part)
		}
	}
}

// placeAfterLake places a part of a log table at the offset where its log goes on after
// the lake's rows. When tiering was off, the log may begin later.
func (p *Plan) placeAfterLake(part *Part) {
	off, ok := p.history.offset(part.Bucket)
	if !ok {
		return
	}
	part.Lake = len(p.filesOf(part)) > 0
	part.Start, part.joins = off, true
	if off < part.look.Kept {
		part.Start = part.look.Start
	}
}
