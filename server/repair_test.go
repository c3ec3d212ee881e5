package server

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage"
)

// Shows that a data directory whose log is gone is found, that nothing is changed until
// the loss is accepted, that the server's shards open after that, and that a directory
// in use is left alone.
func TestRepairLog(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, makeDataDir(dir))
	quiet := slog.New(slog.DiscardHandler)
	cat, err := catalog.Open(ctx, catalog.Options{Dir: filepath.Join(dir, catalogDir), FS: vfs.Default, Clock: wallClock{}.Now, Logger: quiet})
	require.NoError(t, err)
	o := storage.Options{Dir: dir, Cluster: cat.ClusterID(), Shards: cat.Shards(), FS: vfs.Default, Clock: wallClock{}, Logger: quiet}
	require.NoError(t, cat.Close())
	open := func() error {
		o.Registerer = prometheus.NewRegistry()
		w, err := storage.Open(ctx, o)
		require.NoError(t, err)
		broken := w.Err()
		require.NoError(t, w.Close(ctx))
		return broken
	}
	require.NoError(t, open())
	require.NoError(t, open())
	s := &Settings{DataDir: dir}
	losses, _, err := RepairLog(ctx, s, true, true, quiet)
	require.NoError(t, err)
	require.Empty(t, losses)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "wal")))
	require.True(t, errs.Is(open(), errs.CorruptData))
	losses, copies, err := RepairLog(ctx, s, false, true, quiet)
	require.NoError(t, err)
	require.Len(t, losses, o.Shards)
	_, err = os.Stat(copies)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.True(t, errs.Is(open(), errs.CorruptData))
	lock, err := lockDir(dir)
	require.NoError(t, err)
	_, _, err = RepairLog(ctx, s, true, true, quiet)
	require.ErrorContains(t, err, "in use")
	require.NoError(t, lock.release())
	losses, copies, err = RepairLog(ctx, s, true, true, quiet)
	require.NoError(t, err)
	require.Len(t, losses, o.Shards)
	require.DirExists(t, filepath.Join(copies, "wal"))
	require.NoError(t, open())
}
