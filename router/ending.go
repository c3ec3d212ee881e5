package router

import (
	"context"
	"log/slog"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// A partition ends in steps, each of which is durable before the next, and each of
// which may be taken again after a crash (Keeper does):
//
//	closing   the catalog says so: no write is routed to it any more
//	sealed    every shard's log has its seal: what was under way is before it, or refused
//
// One that is dropped, or ends by its age and was never in the lake, is marked as being
// dropped first, and goes on:
//
//	expired   no read is planned on it any more
//	forgotten its buckets are dropped in every shard, its rows in the lake are removed,
//	          and the catalog forgets it
//
// After that a write may make another partition of the same values, unless their time
// has passed. One of a table in the lake that ends by its age goes on:
//
//	taken over  the lake has all its rows
//	expired     reads find it in the lake
//	gone        its buckets are dropped in every shard, when reads that began before
//	            have had their time; the catalog keeps it

// keepPartition is how long the shards keep an expired partition for those who planned
// to read it there.
const keepPartition = lake.ReadGrace

// dropWait is how long DROP PARTITION waits for the lake to let go of the rows, unless a
// test says otherwise.
const dropWait = 10 * time.Second

// DropPartition ends a partition, with all its rows. When it returns that is durable and no
// read that begins sees them; those in the lake are removed by then, or, when that takes
// long or fails, by a Keeper later.
func (r *Router) DropPartition(ctx context.Context, t *millrace.Table, name string) error {
	if r.o.Access != nil {
		if err := r.o.Access.Alter(ctx, t); err != nil {
			return err
		}
	}
	if !t.Partitioned() {
		return errs.New(errs.PartitionNotFound, "table %s is not partitioned, so it has no partition to drop", t.Path)
	}
	p, err := r.o.Catalog.Partition(ctx, t.ID, name)
	if err != nil {
		return err
	}
	err = faster(r.dropFromWorkers(ctx, p))
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, r.dropWait)
	defer cancel()
	if err := faster(r.dropFromLake(limited, p)); err != nil {
		r.o.Logger.WarnContext(ctx, "the rows of a dropped partition are not removed from the lake yet, it is tried again",
			slog.String("table", t.Path.String()), slog.String("partition", p.Name), errAttr(err))
	}
	return nil
}

// dropPartition takes the steps that a partition which is dropped has still to go.
func (r *Router) dropPartition(ctx context.Context, p *millrace.Partition) error {
	err := r.dropFromWorkers(ctx, p)
	if err == nil {
		err = r.dropFromLake(ctx, p)
	}
	return faster(err)
}

// faster makes no error of another one's having dropped the partition before.
func faster(err error) error {
	if errs.Is(err, errs.PartitionNotFound) || errs.Is(err, errs.TableNotFound) {
		return nil
	}
	return err
}

// dropFromWorkers makes it durable that a partition is dropped, and its rows gone from the
// workers and from what reads see.
func (r *Router) dropFromWorkers(ctx context.Context, p *millrace.Partition) error {
	p, err := r.o.Catalog.DropPartition(ctx, p.Table, p.ID)
	if err != nil {
		return err
	}
	return r.dropFromShards(ctx, p)
}

// dropFromLake takes the steps that are left then: its rows in the lake go, and the catalog
// forgets it, after which another one may have its values.
func (r *Router) dropFromLake(ctx context.Context, p *millrace.Partition) error {
	p, err := r.o.Catalog.PartitionByID(ctx, p.Table, p.ID)
	if err != nil {
		return err
	}
	t, err := r.o.Catalog.TableByID(ctx, p.Table)
	if err != nil {
		return err
	}
	if t.Options.Lake != nil {
		lk, err := r.tiering()
		if err != nil {
			return err
		}
		if err := lk.DropPartition(ctx, t, p); err != nil {
			return err
		}
	}
	_, err = r.o.Catalog.RemovePartition(ctx, p.Table, p.ID)
	return err
}

// dropFromShards takes the steps up to expired, and drops the partition's buckets.
func (r *Router) dropFromShards(ctx context.Context, p *millrace.Partition) error {
	r.ending.Lock()
	defer r.ending.Unlock()
	p, err := r.sealPartition(ctx, p)
	if err == nil && p.State != millrace.PartitionExpired {
		p, err = r.o.Catalog.SetPartitionState(ctx, p.Table, p.ID, millrace.PartitionExpired)
	}
	if err != nil || p.Gone {
		return err
	}
	return r.dropBuckets(ctx, p)
}

// sealPartition takes the steps up to sealed. REQUIRES: r.ending is held.
func (r *Router) sealPartition(ctx context.Context, p *millrace.Partition) (*millrace.Partition, error) {
	p, err := r.o.Catalog.PartitionByID(ctx, p.Table, p.ID)
	if err == nil && p.State == millrace.PartitionOpen {
		p, err = r.o.Catalog.SetPartitionState(ctx, p.Table, p.ID, millrace.PartitionClosing)
	}
	if err != nil || p.State != millrace.PartitionClosing {
		return p, err
	}
	if err := r.endInShards(ctx, p, true); err != nil {
		return nil, err
	}
	return r.o.Catalog.SetPartitionState(ctx, p.Table, p.ID, millrace.PartitionSealed)
}

// dropBuckets drops a partition's buckets in every shard.
func (r *Router) dropBuckets(ctx context.Context, p *millrace.Partition) error {
	if err := r.endInShards(ctx, p, false); err != nil {
		return err
	}
	r.spread.next.Delete(partitionKey{p.Table, p.ID})
	return nil
}

// endInShards seals or drops a partition in every shard that has buckets of it. One that
// serves nothing takes no write either, and drops at its next start what the catalog has
// forgotten.
func (r *Router) endInShards(ctx context.Context, p *millrace.Partition, seal bool) error {
	ids := shardsOf(p)
	return r.onEach(ids, func(i int) error {
		return r.end(ctx, ids[i], Ending{Table: p.Table, Partition: p.ID, Seal: seal})
	})
}

// retire takes the steps up to expired of a partition that ends by its age and whose
// rows go to the lake. While tiering is off, what is not there is let go of, as it is of
// tables without a lake.
func (r *Router) retire(ctx context.Context, p *millrace.Partition) error {
	t, err := r.o.Catalog.TableByID(ctx, p.Table)
	if err != nil {
		return err
	}
	sealed := func() (*millrace.Partition, error) {
		r.ending.Lock()
		defer r.ending.Unlock()
		return r.sealPartition(ctx, p)
	}
	if p, err = sealed(); err != nil || p.Dropping || p.State == millrace.PartitionExpired {
		return err
	}
	if t.Options.Lake.Enabled {
		lk, err := r.tiering()
		if err != nil {
			return err
		}
		if err := lk.TakeOver(ctx, t, p); err != nil {
			return err
		}
	}
	r.ending.Lock()
	defer r.ending.Unlock()
	p, err = r.o.Catalog.PartitionByID(ctx, p.Table, p.ID)
	if err != nil || p.Dropping || p.State == millrace.PartitionExpired {
		return err
	}
	_, err = r.o.Catalog.SetPartitionState(ctx, p.Table, p.ID, millrace.PartitionExpired)
	return err
}

// letGo drops an expired partition of the lake from the shards, when those who planned
// to read it there have had their time; else it says when that is.
func (r *Router) letGo(ctx context.Context, p *millrace.Partition) (due time.Time, err error) {
	if due = p.ExpiredAt.Add(keepPartition); r.o.Clock.Now().Before(due) {
		return due, nil
	}
	r.ending.Lock()
	defer r.ending.Unlock()
	if err := r.dropBuckets(ctx, p); err != nil {
		return due, err
	}
	_, err = r.o.Catalog.PartitionGone(ctx, p.Table, p.ID)
	return time.Time{}, err
}

// tiering is what tiers the tables of the lake.
func (r *Router) tiering() (Lake, error) {
	if r.o.Lake == nil {
		return nil, errs.New(errs.Unavailable, "no process of the cluster runs the role tier, which the tables of the lake need")
	}
	return r.o.Lake, nil
}

// shardsOf are the shards of a partition's buckets, each once.
func shardsOf(p *millrace.Partition) []millrace.ShardID {
	out := slices.Clone(p.Shards)
	slices.Sort(out)
	return slices.Compact(out)
}
