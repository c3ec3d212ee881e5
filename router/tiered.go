package router

import (
	"context"
	"errors"
	"maps"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// Tiered tells the owners of buckets, wherever they are, how far their logs are in the
// lake: below that they may let go. Buckets of tables and partitions that are gone are
// left out. What the error is about was not told, nor what other errors hide; it is told
// again by who knows it still.
func (r *Router) Tiered(ctx context.Context, next map[millrace.BucketID]millrace.Offset) error {
	byShard := map[millrace.ShardID]map[millrace.BucketID]millrace.Offset{}
	homes := map[millrace.BucketID][]millrace.ShardID{} // of all buckets of a table or partition, by its first
	for id, at := range next {
		of := millrace.BucketID{Table: id.Table, Partition: id.Partition}
		shards, known := homes[of]
		if !known {
			var err error
			if shards, err = r.shardsOf(ctx, id.Table, id.Partition); err != nil {
				return err
			}
			homes[of] = shards
		}
		if int(id.Bucket) >= len(shards) {
			continue
		}
		sh := shards[id.Bucket]
		if byShard[sh] == nil {
			byShard[sh] = map[millrace.BucketID]millrace.Offset{}
		}
		byShard[sh][id] = at
	}
	ids := slices.Sorted(maps.Keys(byShard))
	failed := make([]error, len(ids))
	_ = r.onEach(ids, func(i int) error {
		failed[i] = r.on(ctx, ids[i], func(sh *shard.Shard) error {
			sh.Tiered(byShard[ids[i]])
			return nil
		}, func(rem Remote) error { return rem.Tiered(ctx, byShard[ids[i]]) })
		return nil // the others are told all the same
	})
	return errors.Join(failed...)
}

// shardsOf are the shards of the buckets of a table, or of a partition of it; none when
// it is gone.
func (r *Router) shardsOf(ctx context.Context, table millrace.TableID, partition millrace.PartitionID) ([]millrace.ShardID, error) {
	if partition != 0 {
		p, err := r.o.Catalog.PartitionByID(ctx, table, partition)
		if errs.Is(err, errs.PartitionNotFound) || errs.Is(err, errs.TableNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return p.Shards, nil
	}
	t, err := r.o.Catalog.TableByID(ctx, table)
	if errs.Is(err, errs.TableNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return t.Shards, nil
}
