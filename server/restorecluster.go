package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/catalog/backup"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// RestoreCluster brings back a cluster whose NATS has lost everything, from what its
// object store holds: each shard goes on from its newest checkpoint in a log that begins
// anew, and the catalog is that of the newest export. Rows that are in no checkpoint are
// missing. Everything else stays in the object store, where workers find it.
//
// It refuses where NATS has something of the cluster, and while processes of it run. The
// catalog comes last, and a mark in its place first, so that no process begins on half of
// it; a restore that failed is begun again by calling it again.
func RestoreCluster(ctx context.Context, s *Settings, ask AskLake, log *slog.Logger) (*Restored, error) {
	return restoreCluster(ctx, s, ask, log, func(string) error { return nil })
}

// restoreCluster calls step after each that changes something, for tests of what is left
// when it ends there.
func restoreCluster(ctx context.Context, s *Settings, ask AskLake, log *slog.Logger, step func(string) error) (_ *Restored, err error) {
	o, err := openOffline(ctx, s, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	out := &Restored{ClusterID: hex.EncodeToString(o.id[:])}
	inLake, err := out.catalog(ctx, s, ask, vfs.NewMem(), "catalog", o.objects, o.id, log)
	if err != nil {
		return nil, err
	}
	o.inLake = inLake
	there, _, err := o.kv.Load(ctx)
	if err != nil {
		return nil, err
	}
	again := catalog.Importing(there)
	if len(there) > 0 && !again {
		return nil, errs.New(errs.InvalidRequest, "NATS has a catalog of cluster %s: it has not lost everything, so there is nothing to restore; for shards whose log is lost or damaged there is millrace wal repair", s.ClusterName)
	}
	c := &clusterRestore{offline: o, step: step, out: out, again: again, found: make([]*stream.Found, out.Shards)}
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	if err := o.nobody(ctx); err != nil {
		return nil, err
	}
	if err := catalog.BeginImport(ctx, o.kv); err != nil {
		return nil, err
	}
	if err := step("marked"); err != nil {
		return nil, err
	}
	if err := c.shards(ctx); err != nil {
		return nil, err
	}
	if out.Changes, err = backup.Restore(ctx, o.objects, backup.Prefix(o.id), o.kv, log); err != nil {
		return nil, err
	}
	return out, errors.Join(step("imported"), o.clear())
}

// clusterRestore is one on its way.
type clusterRestore struct {
	*offline

	step  func(string) error
	out   *Restored
	again bool // one before has begun
	found []*stream.Found
}

// look sees what logs there are. Those with records are of a cluster that goes on, unless
// a restore that did not end has made them.
func (c *clusterRestore) look(ctx context.Context) error {
	for i := range c.found {
		id := millrace.ShardID(i)
		f, err := c.logs.Find(ctx, id)
		if err != nil {
			return err
		}
		c.found[i] = f
		if f == nil || f.Records == 0 {
			continue
		}
		made := false
		if c.again {
			m, err := c.remote.Shard(id).Newest(ctx)
			if err != nil {
				return err
			}
			made = m != nil && m.Tail.LogID == f.LogID
		}
		if !made {
			return errs.New(errs.InvalidRequest, "NATS has stream %s with %d records: it has not lost everything; bring back the rest of NATS, or remove what is not to be used any more", cluster.NamesOf(c.id).LogStream(id), f.Records)
		}
	}
	return nil
}

// shards restores the shards, two at a time.
func (c *clusterRestore) shards(ctx context.Context) error {
	points := make([]RestoredShard, len(c.found))
	eg, of := errgroup.WithContext(ctx)
	eg.SetLimit(2)
	for i := range c.found {
		eg.Go(func() (err error) {
			points[i], err = c.shard(of, millrace.ShardID(i))
			if err != nil {
				err = fmt.Errorf("shard %d: %w", i, err)
			}
			return err
		})
	}
	c.out.Points = points
	return eg.Wait()
}

func (c *clusterRestore) shard(ctx context.Context, id millrace.ShardID) (RestoredShard, error) {
	if f := c.found[id]; f != nil && f.Records > 0 { // done by the restore before
		m, err := c.remote.Shard(id).Newest(ctx)
		return restored(id, &shard.Renewal{From: m}), err
	}
	r, err := shard.Renew(ctx, c.offline.shard(id, scratchDir, nil))
	if err != nil {
		return RestoredShard{}, err
	}
	if err := c.step("published"); err != nil {
		return RestoredShard{}, err
	}
	if err := c.begin(ctx, id, r.Begin); err != nil {
		return RestoredShard{}, err
	}
	if err := c.step("begun"); err != nil {
		return RestoredShard{}, err
	}
	return restored(id, r), nil
}

func checkpointTime(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
