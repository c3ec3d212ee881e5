package router

import (
	"context"
	"slices"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// followers are the readers that follow partitioned tables. They are woken when a
// partition is first written to, since nobody can subscribe to one that is not there.
type followers struct {
	mu     sync.Mutex
	tables map[millrace.TableID]*followed
}

// followed is a table that readers follow, and its partitions as they were told of.
type followed struct {
	told    []*millrace.Partition
	readers map[*Reader]struct{}
}

func (f *followers) add(rd *Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tables == nil {
		f.tables = map[millrace.TableID]*followed{}
	}
	t := f.tables[rd.plan.Table.ID]
	if t == nil {
		t = &followed{readers: map[*Reader]struct{}{}}
		f.tables[rd.plan.Table.ID] = t
	}
	t.readers[rd] = struct{}{}
}

func (f *followers) remove(rd *Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tables[rd.plan.Table.ID]
	if t == nil {
		return
	}
	delete(t.readers, rd)
	if len(t.readers) == 0 {
		delete(f.tables, rd.plan.Table.ID)
	}
}

// tell wakes the readers of a table when its partitions are others than before. It is
// called before something is written to them, so that no record of a new one waits for
// the next heartbeat.
func (r *Router) tell(ctx context.Context, t *millrace.Table) error {
	r.followers.mu.Lock()
	defer r.followers.mu.Unlock()
	f := r.followers.tables[t.ID]
	if f == nil {
		return nil
	}
	ps, err := r.o.Catalog.Partitions(ctx, t.ID)
	if err != nil || same(ps, f.told) {
		return err
	}
	f.told = ps
	for rd := range f.readers {
		select {
		case rd.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// same says whether two lists of partitions are one.
func same(a, b []*millrace.Partition) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// follow subscribes a part to what is written to its bucket.
func (rd *Reader) follow(pr *partReader) {
	if pr.LakeOnly {
		return
	}
	if pr.sub != nil {
		pr.sub.Close() // of another owner's time
		pr.sub = nil
	}
	if sh, err := rd.r.here(pr.Shard); err == nil {
		pr.sub = sh.Subscribe(rd.wake, []millrace.BucketID{pr.Bucket})
	}
}

// refresh lets partitions join that were made since the reader began, and those leave
// that have ended: dropped, or gone to the lake and from the workers. They join at their earliest record, so that none is missed, and
// behind the parts that have keyed state to read, so that a cursor can say which do.
func (rd *Reader) refresh(ctx context.Context) error {
	if !rd.plan.Follow || rd.plan.fixed || !rd.plan.Table.Partitioned() {
		return nil
	}
	ps, err := rd.r.o.Catalog.Partitions(ctx, rd.plan.Table.ID)
	if err != nil || same(ps, rd.listed) {
		return err
	}
	rd.listed = ps
	there := make(map[millrace.PartitionID]struct{}, len(ps))
	var born []*millrace.Partition
	for _, p := range ps {
		_, known := rd.known[p.ID]
		if p.State == millrace.PartitionExpired && (!known || p.Gone || p.Dropping) {
			continue
		}
		there[p.ID] = struct{}{}
		if !known {
			born = append(born, p)
		}
	}
	if err := rd.leave(there); err != nil {
		return err
	}
	rd.known = there
	return rd.join(ctx, born)
}

// leave drops the parts of partitions that are not there any more. What the lake has of
// them stays.
func (rd *Reader) leave(there map[millrace.PartitionID]struct{}) error {
	var err error
	rd.parts = slices.DeleteFunc(rd.parts, func(pr *partReader) bool {
		_, stays := there[pr.Bucket.Partition]
		if !stays && pr.lake {
			pr.LakeOnly, pr.End, stays, pr.far = true, pr.Start, true, nil
		}
		if !stays && err == nil {
			err = pr.close()
		}
		return !stays
	})
	if rd.turn >= len(rd.parts) {
		rd.turn = 0
	}
	return err
}

func (rd *Reader) join(ctx context.Context, born []*millrace.Partition) error {
	born, err := rd.plan.holding(born, false)
	if err != nil || len(born) == 0 {
		return err
	}
	first := len(rd.parts)
	for _, p := range born {
		for _, n := range rd.plan.scope.buckets {
			pr := &partReader{Part: newPart(rd.plan.Table, p, n)}
			pr.End = millrace.NoOffset
			rd.follow(pr)
			rd.parts = append(rd.parts, pr)
		}
	}
	rd.stats.Buckets = max(rd.stats.Buckets, len(rd.parts))
	if len(rd.parts) > MaxMergedBuckets {
		return tooManyBuckets(len(rd.parts))
	}
	parts := make([]*Part, 0, len(rd.parts)-first)
	for _, pr := range rd.parts[first:] {
		parts = append(parts, &pr.Part)
	}
	if err := rd.r.look(ctx, &Plan{Table: rd.plan.Table}, Question{}, parts); err != nil {
		return err
	}
	for _, pr := range rd.parts[first:] {
		pr.Start, pr.born = pr.look.Start, pr.look.There
	}
	rd.followFar()
	return nil
}

// recoverable says whether the reader can go on after an error of the part whose turn
// it is: that part's partition has ended meanwhile, and left.
func (rd *Reader) recoverable(ctx context.Context) bool {
	if len(rd.parts) == 0 {
		return false
	}
	pr := rd.parts[rd.turn]
	return pr.Partition != "" && rd.refresh(ctx) == nil && !slices.Contains(rd.parts, pr)
}

// close lets go of what a part holds.
func (pr *partReader) close() error {
	if pr.sub != nil {
		pr.sub.Close()
	}
	return pr.closeState()
}

// lost is the error of a bucket that was there and is not any more.
func (rd *Reader) lost(pr *partReader) error {
	if pr.Partition != "" {
		return errs.New(errs.PartitionNotFound, "partition %s of table %s has ended, and its rows are gone", pr.Partition, rd.plan.Table.Path)
	}
	return errs.New(errs.TableNotFound, "table %s was dropped", rd.plan.Table.Path)
}
