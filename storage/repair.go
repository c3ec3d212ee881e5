package storage

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/wal"
)

// Repair says which shards of a data directory that nobody serves have logs that they
// cannot be opened with, and what would be lost. When the loss is accepted, what can be
// read of those logs is kept, and they begin anew behind it; copies of what was there
// before, of the log above all, are put into the directory copies. See shard.Repair.
//
// The error joins those of shards that cannot be repaired so; the others are.
func Repair(ctx context.Context, o Options, accept bool, copies string) ([]*shard.Loss, error) {
	o.Registerer = prometheus.NewRegistry()
	w, err := New(o)
	if err != nil {
		return nil, err
	}
	defer w.cache.Unref()
	dir := path.Join(o.Dir, walDir)
	lost, files, err := openForRepair(w, dir, accept, copies)
	if err != nil {
		return nil, err
	}
	begin := map[millrace.ShardID]wal.Tail{}
	var losses []*shard.Loss
	var failed error
	for i := range o.Shards {
		id := millrace.ShardID(i)
		log, err := files.Shard(id)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		so := w.options(id, log)
		so.InLake = o.InLake[id]
		loss, tail, err := shard.Repair(ctx, so, accept, path.Join(copies, path.Base(w.ShardDir(id))))
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("shard %d: %w", id, err))
		case loss != nil:
			losses, begin[id] = append(losses, loss), tail
		}
	}
	if err := files.Close(); err != nil {
		return losses, errors.Join(failed, err)
	}
	if len(losses) == 0 || !accept {
		return losses, failed
	}
	if !lost {
		if err := copyDir(o.FS, dir, path.Join(copies, walDir)); err != nil {
			return losses, errors.Join(failed, err)
		}
	}
	files, err = wal.OpenFiles(o.FS, dir, w.walOptions(begin))
	if err != nil {
		return losses, errors.Join(failed, fmt.Errorf("storage.Repair: %w", err))
	}
	return losses, errors.Join(failed, files.Close())
}

// openForRepair opens the log. One that does not open at all is put aside when the loss
// is accepted: then it is lost as a whole, and what the shards have on disk is kept.
func openForRepair(w *Worker, dir string, accept bool, copies string) (lost bool, _ *wal.Files, err error) {
	fs := w.o.FS
	files, err := wal.OpenFiles(fs, dir, w.walOptions(nil))
	if err == nil || !accept || !errs.Is(err, errs.CorruptData) {
		return false, files, err
	}
	if err := copyDir(fs, dir, path.Join(copies, walDir)); err != nil {
		return false, nil, err
	}
	if err := fs.RemoveAll(dir); err != nil {
		return false, nil, fmt.Errorf("storage.Repair: %w", err)
	}
	files, err = wal.OpenFiles(fs, dir, w.walOptions(nil))
	return true, files, err
}

func (w *Worker) walOptions(begin map[millrace.ShardID]wal.Tail) wal.Options {
	return wal.Options{
		ClusterID: w.o.Cluster, Shards: w.o.Shards, RotateBytes: w.o.WALFileBytes, Begin: begin,
		Clock: w.o.Clock, Logger: w.o.Logger, Registerer: prometheus.NewRegistry(),
	}
}

func copyDir(fs vfs.FS, from, to string) error {
	if err := fs.MkdirAll(path.Dir(to), 0o755); err != nil {
		return fmt.Errorf("storage.Repair: %w", err)
	}
	if _, err := vfs.Clone(fs, fs, from, to, vfs.CloneSync); err != nil {
		return fmt.Errorf("storage.Repair: %w", err)
	}
	return shard.SyncTree(fs, path.Dir(to))
}
