package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/catalog/backup"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/remote"
	"github.com/millrace/millrace/storage/shard"
)

// Restored says what a restore brought back.
type Restored struct {
	ClusterID string // hex
	Shards    int
	Tables    int
	// Changes is how many changes the catalog has had.
	Changes int64
	// Points are what the shards go on from.
	Points []RestoredShard
}

// RestoredShard is what a shard goes on from.
type RestoredShard struct {
	Shard millrace.ShardID
	// Checkpoint is when its checkpoint was published; zero when there was none.
	Checkpoint time.Time
	// Behind are the buckets that go on where the lake ends, which has more of them than the
	// checkpoint.
	Behind []shard.Onward
}

func restored(id millrace.ShardID, r *shard.Renewal) RestoredShard {
	slices.SortFunc(r.Behind, func(a, b shard.Onward) int { return a.Bucket.Compare(b.Bucket) })
	out := RestoredShard{Shard: id, Behind: r.Behind}
	if r.From != nil {
		out.Checkpoint = checkpointTime(r.From.Published())
	}
	return out
}

// unfinishedDir is the catalog of a restore under way. It becomes the catalog when
// everything else is there.
const unfinishedDir = catalogDir + ".restoring"

// Restore makes a data directory, which has nothing yet, of what an object store holds
// of a cluster: the newest export of the catalog, and of each shard the newest
// checkpoint. The logs begin anew, so rows that are in no checkpoint are missing. The
// server that is started on it, alone or as the first worker of a cluster, has everything
// else here and goes on by itself.
//
// A restore that failed is begun again by calling it again.
func Restore(ctx context.Context, s *Settings, from string, ask AskLake, log *slog.Logger) (_ *Restored, err error) {
	dir, err := filepath.Abs(s.DataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	objects, cluster, err := openRestoreSource(ctx, s, from)
	if err != nil {
		return nil, err
	}
	if err := makeDataDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	if err := clearForRestore(dir, cluster); err != nil {
		return nil, err
	}
	out := &Restored{ClusterID: hex.EncodeToString(cluster[:])}
	inLake, err := out.catalog(ctx, s, ask, vfs.Default, filepath.Join(dir, unfinishedDir), objects, cluster, log)
	if err != nil {
		return nil, err
	}
	if err := out.shards(ctx, dir, objects, cluster, inLake, log); err != nil {
		return nil, err
	}
	if err := os.Rename(filepath.Join(dir, unfinishedDir), filepath.Join(dir, catalogDir)); err != nil {
		return nil, err
	}
	return out, syncDir(dir)
}

// clearForRestore makes sure that the data directory has nothing, or what is left of a
// restore of the same cluster, and removes that. From then on no server starts on it
// until it is whole: cluster.json names a cluster whose catalog is not there.
func clearForRestore(dir string, cluster [16]byte) error {
	_, err := os.Stat(filepath.Join(dir, catalogDir))
	if err == nil {
		return errs.New(errs.InvalidRequest, "data directory %s has a catalog already; restore into one that is empty", dir)
	}
	if !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, clusterFile)); errors.Is(err, iofs.ErrNotExist) {
		for _, name := range []string{walDir, shardsDir} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return errs.New(errs.InvalidRequest, "data directory %s has data and no catalog; restore into one that is empty", dir)
			}
		}
	}
	if err := guardCluster(dir, cluster); err != nil {
		return err
	}
	for _, name := range []string{walDir, shardsDir, unfinishedDir} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// The folders of the worker in a data directory.
const (
	walDir    = "wal"
	shardsDir = "shards"
)

// catalog restores the catalog into a directory, and learns from it what there is, and
// from the lake how far that is.
func (r *Restored) catalog(ctx context.Context, s *Settings, ask AskLake, fs vfs.FS, at string, objects objstore.Reader, cluster [16]byte, log *slog.Logger) (_ map[millrace.ShardID][]shard.InLake, err error) {
	kv, err := catalog.OpenPebble(fs, at, log)
	if err != nil {
		return nil, err
	}
	if r.Changes, err = backup.Restore(ctx, objects, backup.Prefix(cluster), kv, log); err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	if err := kv.Close(); err != nil {
		return nil, err
	}
	c, err := catalog.Open(ctx, catalog.Options{Dir: at, FS: fs, Clock: wallClock{}.Now, Logger: log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if c.ClusterID() != cluster {
		return nil, errs.New(errs.CorruptData, "the catalog in %s is of cluster %x, and %s says %x", objects.URI(), c.ClusterID(), remote.ClusterFile, cluster)
	}
	r.Shards, r.Tables = c.Shards(), len(c.AllTables())
	return lakeEnds(ctx, s, ask, c, log)
}

// shards restores the shards, two at a time.
func (r *Restored) shards(ctx context.Context, dir string, objects objstore.Store, cluster [16]byte, inLake map[millrace.ShardID][]shard.InLake, log *slog.Logger) error {
	store, err := remote.Open(remote.Options{Cluster: cluster, Objects: objects, Clock: wallClock{}, Logger: log})
	if err != nil {
		return err
	}
	defer store.Close()
	points := make([]RestoredShard, r.Shards)
	eg, of := errgroup.WithContext(ctx)
	eg.SetLimit(2)
	for i := range r.Shards {
		eg.Go(func() error {
			id := millrace.ShardID(i)
			made, err := shard.Rebuild(of, shard.Options{
				ID: id, Dir: filepath.Join(dir, shardsDir, fmt.Sprintf("%05d", id)), Cluster: cluster,
				FS: vfs.Default, Clock: wallClock{}, Logger: log, Remote: store.Shard(id), InLake: inLake[id],
			})
			if err == nil {
				points[i] = restored(id, made)
			}
			return err
		})
	}
	r.Points = points
	return eg.Wait()
}
