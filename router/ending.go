package router

import (
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A partition ends in steps, each of which is durable before the next, and each of
// which may be taken again after a crash (Keeper does):
//
//	closing   the catalog says so: no write is routed to it any more
//	sealed    every shard's log has its seal: what was under way is before it, or refused
//	expired   no read is planned on it any more
//	gone      its buckets are dropped in every shard, and the catalog forgets it
//
// After that a write may make another partition of the same values, unless their time
// has passed.

// DropPartition ends a partition, with all its rows.
func (r *Router) DropPartition(ctx context.Context, t *millrace.Table, name string) error {
	if !t.Partitioned() {
		return errs.New(errs.PartitionNotFound, "table %s is not partitioned, so it has no partition to drop", t.Path)
	}
	p, err := r.o.Catalog.Partition(ctx, t.ID, name)
	if err != nil {
		return err
	}
	return r.endPartition(ctx, p)
}

// endPartition takes the steps that a partition has still to go.
func (r *Router) endPartition(ctx context.Context, p *millrace.Partition) error {
	r.ending.Lock()
	defer r.ending.Unlock()
	p, err := r.o.Catalog.PartitionByID(ctx, p.Table, p.ID)
	if errs.Is(err, errs.PartitionNotFound) || errs.Is(err, errs.TableNotFound) {
		return nil // another one was faster
	}
	for err == nil && p.State != millrace.PartitionExpired {
		next := millrace.PartitionExpired
		switch p.State {
		case millrace.PartitionOpen:
			next = millrace.PartitionClosing
		case millrace.PartitionClosing:
			next = millrace.PartitionSealed
			if err := r.sealPartition(ctx, p); err != nil {
				return err
			}
		default: // sealed; a lake would take its rows over here
		}
		p, err = r.o.Catalog.SetPartitionState(ctx, p.Table, p.ID, next)
	}
	if err != nil {
		return err
	}
	for _, id := range shardsOf(p) {
		if err := r.shard(id).DropPartition(ctx, p.Table, p.ID); err != nil {
			return err
		}
	}
	r.spread.next.Delete(partitionKey{p.Table, p.ID})
	_, err = r.o.Catalog.RemovePartition(ctx, p.Table, p.ID)
	return err
}

// sealPartition seals a partition in the shards that it has buckets in. One that serves
// nothing takes no write either, and drops at its next start what the catalog has
// forgotten.
func (r *Router) sealPartition(ctx context.Context, p *millrace.Partition) error {
	for _, id := range shardsOf(p) {
		if sh := r.shard(id); sh.Err() == nil {
			if err := sh.SealPartition(ctx, p.Table, p.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// shardsOf are the shards of a partition's buckets, each once.
func shardsOf(p *millrace.Partition) []millrace.ShardID {
	out := slices.Clone(p.Shards)
	slices.Sort(out)
	return slices.Compact(out)
}
