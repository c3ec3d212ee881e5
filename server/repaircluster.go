package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/wal"
)

// repairCluster is RepairLog for a cluster that is stopped: the logs are streams in NATS.
// What a shard goes on from is its checkpoint in the object store and what can be read of
// the stream behind it, or, where they know of more, the files in this data directory.
func repairCluster(ctx context.Context, s *Settings, accept bool, ask AskLake, log *slog.Logger) (_ []*shard.Loss, copies string, err error) {
	o, err := openOffline(ctx, s, log)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	shards, err := o.shardsInCatalog(ctx, ask)
	if err != nil {
		return nil, "", err
	}
	if err := o.nobody(ctx); err != nil {
		return nil, "", err
	}
	copies = filepath.Join(o.dir, "repair-"+o.clock.Now().UTC().Format("20060102T150405Z"))
	var losses []*shard.Loss
	var failed error
	for i := range shards {
		loss, err := o.repair(ctx, millrace.ShardID(i), accept, copies)
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("shard %d: %w", i, err))
		case loss != nil:
			losses = append(losses, loss)
		}
	}
	if _, err := os.Stat(copies); err != nil {
		copies = ""
	}
	return losses, copies, errors.Join(failed, o.clear())
}

// shardsInCatalog says how many shards there are, and learns what the lake has of them.
func (o *offline) shardsInCatalog(ctx context.Context, ask AskLake) (int, error) {
	there, _, err := o.kv.Load(ctx)
	if err != nil {
		return 0, err
	}
	if len(there) == 0 || catalog.Importing(there) {
		return 0, errs.New(errs.InvalidRequest, "NATS has no catalog of cluster %s: if it has lost everything, millrace restore brings it back", o.s.ClusterName)
	}
	c, err := catalog.OpenKV(ctx, o.kv, catalog.Options{Clock: o.clock.Now, Logger: o.log})
	if err != nil {
		return 0, err
	}
	o.undo = append(o.undo, c.Close)
	if c.ClusterID() != o.id {
		return 0, errs.New(errs.InvalidRequest, "the catalog in NATS is of cluster %x, and %s of cluster %x", c.ClusterID(), o.objects.URI(), o.id)
	}
	o.inLake, err = lakeEnds(ctx, o.s, ask, c, o.log)
	return c.Shards(), err
}

// repair is about one shard.
func (o *offline) repair(ctx context.Context, id millrace.ShardID, accept bool, copies string) (*shard.Loss, error) {
	inspected, err := o.logs.Inspect(ctx, id)
	if err != nil && !errs.Is(err, errs.CorruptData) { // else there is nothing to be read of it
		return nil, err
	}
	var log wal.Log
	if err == nil && inspected != nil {
		log = inspected
	}
	loss, _, err := shard.Reclaim(ctx, o.shard(id, scratchDir, log), false)
	if err != nil {
		return nil, err
	}
	here, err := o.repairHere(ctx, id, log, false, copies)
	if err != nil {
		return nil, err
	}
	if here != nil && (loss == nil || loss.Behind || here.loss.Applied > loss.Applied) {
		if !accept {
			return here.loss, nil
		}
		if here, err = o.repairHere(ctx, id, log, true, copies); err != nil {
			return nil, err
		}
		return here.loss, o.begin(ctx, id, here.begin)
	}
	if loss == nil || !accept {
		return loss, nil
	}
	loss, r, err := shard.Reclaim(ctx, o.shard(id, scratchDir, log), true)
	if err != nil || r == nil {
		return loss, err
	}
	return loss, o.begin(ctx, id, r.Begin)
}

// repairedHere is a shard that goes on from the files in this data directory.
type repairedHere struct {
	loss  *shard.Loss
	begin wal.Tail
}

// repairHere looks at the files of a shard in this data directory; nil when they know of
// no more than the log has.
func (o *offline) repairHere(ctx context.Context, id millrace.ShardID, log wal.Log, accept bool, copies string) (*repairedHere, error) {
	so := o.shard(id, shardsDir, log)
	if manifests, err := filepath.Glob(filepath.Join(so.Dir, "manifest-*")); err != nil || len(manifests) == 0 {
		return nil, err
	}
	if log == nil {
		so.Log = shard.NoLog()
	}
	loss, begin, err := shard.Repair(ctx, so, accept, filepath.Join(copies, filepath.Base(so.Dir)))
	switch {
	case errs.Is(err, errs.CorruptData): // they are damaged; others have them
		o.log.WarnContext(ctx, "files of a shard are passed over", slog.Int("shard", int(id)), slog.Any("err", err))
		return nil, nil //nolint:nilnil // There is nothing here.
	case err != nil:
		return nil, err
	case loss == nil || !loss.Ahead:
		return nil, nil //nolint:nilnil // There is nothing here.
	}
	return &repairedHere{loss, begin}, nil
}
