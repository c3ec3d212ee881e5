package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/shard"
)

// RepairLog says which shards of a stopped server, or of a cluster that is stopped, have a
// log that they cannot be opened with, and repairs them when the loss is accepted; see
// storage.Repair. Copies are the directory for what was there before; "" when nothing is
// kept, as where the log is a stream.
func RepairLog(ctx context.Context, s *Settings, accept bool, ask AskLake, log *slog.Logger) (_ []*shard.Loss, copies string, err error) {
	if s.clustered() {
		return repairCluster(ctx, s, accept, ask, log)
	}
	dir, err := filepath.Abs(s.DataDir)
	if err != nil {
		return nil, "", fmt.Errorf("data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	clock := wallClock{}
	c, err := catalog.Open(ctx, catalog.Options{Dir: filepath.Join(dir, catalogDir), FS: vfs.Default, Clock: clock.Now, Logger: log})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := guardCluster(dir, c.ClusterID()); err != nil {
		return nil, "", err
	}
	inLake, err := lakeEnds(ctx, s, ask, c, log)
	if err != nil {
		return nil, "", err
	}
	copies = filepath.Join(dir, "repair-"+clock.Now().UTC().Format("20060102T150405Z"))
	losses, err := storage.Repair(ctx, storage.Options{
		Dir: dir, Cluster: c.ClusterID(), Shards: c.Shards(), KeepExpired: keepExpired,
		FS: vfs.Default, Clock: clock, Logger: log, InLake: inLake,
	}, accept, copies)
	return losses, copies, err
}
