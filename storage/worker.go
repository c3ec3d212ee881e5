package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
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
)

// Options are a worker's settings and components.
type Options struct {
	// Settings.
	Dir             string // the data directory; it exists
	Cluster         [16]byte
	Shards          int
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
	// Components.
	FS         vfs.FS
	Clock      shard.Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Hook       func(point string) // for tests; see shard.Options
}

// rowCacheBytes is what rows get of the caches. A row that is held takes its own
// length where a block takes that of all its neighbours, so most of a working set of
// rows fits; the other half is for filters, indexes, scans and compactions.
func (o *Options) rowCacheBytes() int64 { return o.CacheBytes / 2 }

// Worker is an open worker.
type Worker struct {
	files  *wal.Files
	shards []*shard.Shard
	cache  *pebble.Cache
}

// Open opens the log and all shards. A shard that is damaged is in the worker all
// the same and answers with its error; Err tells of it.
func Open(ctx context.Context, o Options) (*Worker, error) {
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	for _, d := range []string{"wal", "shards"} {
		if err := o.FS.MkdirAll(path.Join(o.Dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("storage.Open: %w", err)
		}
	}
	for _, d := range []string{o.Dir, path.Dir(o.Dir)} {
		if err := bucket.SyncDir(o.FS, d); err != nil {
			return nil, fmt.Errorf("storage.Open: %w", err)
		}
	}
	files, err := wal.OpenFiles(o.FS, path.Join(o.Dir, "wal"), wal.Options{
		ClusterID: o.Cluster, Shards: o.Shards, RotateBytes: o.WALFileBytes,
		Clock: o.Clock, Logger: o.Logger, Registerer: o.Registerer,
	})
	if err != nil {
		return nil, fmt.Errorf("storage.Open: %w", err)
	}
	w := &Worker{files: files, cache: pebble.NewCache(o.CacheBytes - o.rowCacheBytes()), shards: make([]*shard.Shard, o.Shards)}
	m := shard.NewMetrics(o.Registerer)
	var eg errgroup.Group
	for i := range w.shards {
		id := millrace.ShardID(i)
		eg.Go(func() error {
			w.shards[i] = w.openShard(ctx, id, o, m)
			return nil
		})
	}
	return w, eg.Wait()
}

func (w *Worker) openShard(ctx context.Context, id millrace.ShardID, o Options, m *shard.Metrics) *shard.Shard {
	log, err := w.files.Shard(id)
	if err != nil {
		return shard.Damaged(id, err, o.Logger)
	}
	s, err := shard.Open(ctx, shard.Options{
		ID: id, Dir: path.Join(o.Dir, "shards", fmt.Sprintf("%05d", id)), Cluster: o.Cluster,
		CheckpointBytes: o.CheckpointBytes, CheckpointEvery: o.CheckpointEvery, SealBytes: o.SealBytes,
		TailBytes: o.TailBytes, BucketTailBytes: o.BucketTailBytes, QueueBytes: o.QueueBytes, MemTableBytes: o.MemTableBytes,
		Codec: o.Codec, MaxSnapshots: o.MaxSnapshots, KeepExpired: o.KeepExpired,
		FS: o.FS, Log: log, Cache: w.cache, RowCacheBytes: o.rowCacheBytes() / int64(o.Shards), Clock: o.Clock, Logger: o.Logger, Metrics: m, Hook: o.Hook,
	})
	if err != nil {
		return shard.Damaged(id, err, o.Logger)
	}
	return s
}

// Shards are the worker's shards, by id.
func (w *Worker) Shards() []*shard.Shard { return w.shards }

// Err is why the worker is not well: the log takes no more, a shard serves nothing,
// or one cannot be checkpointed or met damage. A full disk is not among it: writes are
// refused with errs.StorageFull, reads go on, and it ends when there is room again.
func (w *Worker) Err() error {
	err := w.files.Err()
	for _, s := range w.shards {
		if t := s.Trouble(); t != nil && (s.Err() != nil || !errs.Is(t, errs.StorageFull)) {
			err = errors.Join(err, t)
		}
	}
	return err
}

// DropUnknown drops the data of tables, and of partitions, that are not known: their
// DROP was decided and not carried out when the process ended. known is asked about
// partition 0 for the table itself.
func (w *Worker) DropUnknown(ctx context.Context, known func(millrace.TableID, millrace.PartitionID) bool) error {
	for _, s := range w.shards {
		for _, id := range s.Tables() {
			if !known(id, 0) {
				if err := s.DropTable(ctx, id); err != nil {
					return err
				}
				continue
			}
			for _, p := range s.Partitions(id) {
				if !known(id, p) {
					if err := s.DropPartition(ctx, id, p); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// Tell shows the shards tables as they are in the catalog; see shard.Shard.Tell.
func (w *Worker) Tell(tables ...*millrace.Table) {
	for _, s := range w.shards {
		s.Tell(tables...)
	}
}

// Close takes checkpoints and closes everything.
func (w *Worker) Close(ctx context.Context) error {
	var eg errgroup.Group
	for _, s := range w.shards {
		eg.Go(func() error { return s.Close(ctx) })
	}
	err := errors.Join(eg.Wait(), w.files.Close())
	w.cache.Unref()
	return err
}
