package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/trace"
)

// Options are a worker's settings and components.
type Options struct {
	// Settings.
	Dir     string // the data directory; it exists
	Cluster [16]byte
	Shards  int
	// ShardsHere is about how many shards a worker of a cluster has open, followed ones
	// included; it parts the memory for rows. Default Shards.
	ShardsHere      int
	CacheBytes      int64 // rows and blocks of keyed tables, all shards; default 64 MiB
	CheckpointBytes int64
	CheckpointEvery time.Duration
	SealBytes       int64
	TailBytes       int64
	BucketTailBytes int64
	QueueBytes      int64
	MemTableBytes   uint64
	WALFileBytes    int64 // size at which a file of the log is ended; default 64 MiB
	Codec           segment.Codec
	MaxSnapshots    int
	KeepExpired     time.Duration // see shard.Options
	// Remote gives each shard where its checkpoints also go; nil: nowhere.
	Remote      func(millrace.ShardID) shard.Remote
	FollowEvery time.Duration // see shard.Options
	// InLake is what the lake has of each shard's buckets; of Repair.
	InLake map[millrace.ShardID][]shard.InLake
	// Components.
	FS         vfs.FS
	Clock      shard.Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Tracer     *trace.Tracer      // nil: nothing is traced
	Hook       func(point string) // for tests; see shard.Options
}

// rowCacheBytes is what rows get of the caches. A row that is held takes its own
// length where a block takes that of all its neighbours, so most of a working set of
// rows fits; the other half is for filters, indexes, scans and compactions.
func (o *Options) rowCacheBytes() int64 { return o.CacheBytes / 2 }

// Worker has shards open: all of them on a single node, in a cluster those that it
// serves or follows, which come and go.
type Worker struct {
	o       Options
	files   *wal.Files // nil in a cluster
	cache   *pebble.Cache
	metrics *shard.Metrics

	mu     sync.RWMutex
	places map[millrace.ShardID]*place
}

// New makes a worker of a cluster, without shards.
func New(o Options) (*Worker, error) {
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.ShardsHere == 0 {
		o.ShardsHere = o.Shards
	}
	if err := o.FS.MkdirAll(path.Join(o.Dir, "shards"), 0o755); err != nil {
		return nil, fmt.Errorf("storage.New: %w", err)
	}
	for _, d := range []string{o.Dir, path.Dir(o.Dir)} {
		if err := bucket.SyncDir(o.FS, d); err != nil {
			return nil, fmt.Errorf("storage.New: %w", err)
		}
	}
	w := &Worker{
		o: o, cache: pebble.NewCache(o.CacheBytes - o.rowCacheBytes()), metrics: shard.NewMetrics(o.Registerer),
		places: map[millrace.ShardID]*place{},
	}
	newMetrics(o.Registerer, w)
	return w, nil
}

// Open opens the log in the data directory and all shards. A shard that is damaged is
// in the worker all the same and answers with its error; Err tells of it.
func Open(ctx context.Context, o Options) (*Worker, error) {
	if err := o.FS.MkdirAll(path.Join(o.Dir, walDir), 0o755); err != nil {
		return nil, fmt.Errorf("storage.Open: %w", err)
	}
	w, err := New(o)
	if err != nil {
		return nil, err
	}
	w.files, err = wal.OpenFiles(o.FS, path.Join(o.Dir, walDir), wal.Options{
		ClusterID: o.Cluster, Shards: o.Shards, RotateBytes: o.WALFileBytes,
		Clock: o.Clock, Logger: o.Logger, Registerer: o.Registerer,
	})
	if err != nil {
		w.cache.Unref()
		return nil, fmt.Errorf("storage.Open: %w", err)
	}
	var eg errgroup.Group
	for i := range o.Shards {
		eg.Go(func() error {
			id := millrace.ShardID(i)
			log, err := w.files.Shard(id)
			if err == nil {
				_, err = w.Open(ctx, id, log, Lease{})
			}
			if err != nil {
				w.place(id).shard.Store(shard.Damaged(id, err, o.Logger))
			}
			return nil
		})
	}
	return w, eg.Wait()
}

const walDir = "wal"

// Shard is a shard that is open here for service; nil when it is not.
func (w *Worker) Shard(id millrace.ShardID) *shard.Shard {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.places[id]; p != nil {
		return p.shard.Load()
	}
	return nil
}

// Follower is a shard that is followed here; nil when it is not.
func (w *Worker) Follower(id millrace.ShardID) *shard.Follower {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.places[id]; p != nil {
		return p.follower.Load()
	}
	return nil
}

// Shards are the shards that are open here for service, by id.
func (w *Worker) Shards() []*shard.Shard {
	var out []*shard.Shard
	for _, p := range w.all() {
		if s := p.shard.Load(); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// all are the places, by id.
func (w *Worker) all() []*place {
	w.mu.RLock()
	defer w.mu.RUnlock()
	out := make([]*place, 0, len(w.places))
	for _, id := range slices.Sorted(maps.Keys(w.places)) {
		out = append(out, w.places[id])
	}
	return out
}

// Err is why the worker is not well: the log takes no more, a shard serves nothing,
// cannot be followed, or one cannot be checkpointed or met damage. A full disk is not
// among it: writes are refused with errs.StorageFull, reads go on, and it ends when
// there is room again.
func (w *Worker) Err() error {
	var err error
	if w.files != nil {
		err = w.files.Err()
	}
	for _, p := range w.all() {
		if s := p.shard.Load(); s != nil {
			if t := s.Trouble(); t != nil && (s.Err() != nil || !errs.Is(t, errs.StorageFull)) {
				err = errors.Join(err, t)
			}
		}
		if f := p.follower.Load(); f != nil {
			err = errors.Join(err, f.Err())
		}
	}
	return err
}

// DropUnknown drops in the shards that are open what is not known; see
// shard.Shard.DropUnknown.
func (w *Worker) DropUnknown(ctx context.Context, known func(millrace.TableID, millrace.PartitionID) bool) error {
	for _, s := range w.Shards() {
		if err := s.DropUnknown(ctx, known); err != nil {
			return err
		}
	}
	return nil
}

// Tell shows the shards that are open tables as they are in the catalog; see
// shard.Shard.Tell.
func (w *Worker) Tell(tables ...*millrace.Table) {
	for _, s := range w.Shards() {
		s.Tell(tables...)
	}
}

// Close takes checkpoints and closes everything.
func (w *Worker) Close(ctx context.Context) error {
	var eg errgroup.Group
	for _, p := range w.all() {
		eg.Go(func() error { return w.closePlace(ctx, p) })
	}
	err := eg.Wait()
	if w.files != nil {
		err = errors.Join(err, w.files.Close())
	}
	w.cache.Unref()
	return err
}
