package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/catalog/backup"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func openCatalog(t *testing.T, fs vfs.FS) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Open(t.Context(), catalog.Options{Dir: "catalog", FS: fs, Clock: time.Now, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func openObjects(t *testing.T) objstore.Store {
	t.Helper()
	s, err := objstore.Open(t.Context(), "file://"+t.TempDir(), objstore.Options{})
	require.NoError(t, err)
	return s
}

// failing fails writes while told to.
type failing struct {
	objstore.Store

	fail atomic.Bool
}

func (f *failing) Put(ctx context.Context, key string, body []byte) error {
	if f.fail.Load() {
		return errs.New(errs.Unavailable, "told to")
	}
	return f.Store.Put(ctx, key, body)
}

func keys(t *testing.T, s objstore.Store, prefix string) []string {
	t.Helper()
	var out []string
	require.NoError(t, s.List(t.Context(), prefix, func(i objstore.Info) error {
		out = append(out, i.Key)
		return nil
	}))
	return out
}

func run(t *testing.T, w *backup.Writer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// A change is in an export a second later; while the object store is away it succeeds
// nevertheless and an alarm is raised; what was missed is written when it is back; a catalog
// is restored from the exports alone, and goes on with exports that are newer than all.
func TestExportAndRestore(t *testing.T) {
	c, objects := openCatalog(t, vfs.NewMem()), &failing{Store: openObjects(t)}
	prefix, reg := backup.Prefix(c.ClusterID()), prometheus.NewRegistry()
	run(t, backup.NewWriter(backup.Options{Catalog: c, Store: objects, Prefix: prefix, Logger: quiet, Registerer: reg}))
	has := func(revision int64) func() bool {
		return func() bool {
			_, err := objects.Stat(t.Context(), fmt.Sprintf("%s%020d", prefix, revision))
			return err == nil
		}
	}
	require.Eventually(t, has(0), time.Minute, time.Millisecond, "it begins with an export")
	_, err := c.CreateDatabase(t.Context(), "a", "")
	require.NoError(t, err)
	require.Eventually(t, has(1), time.Minute, time.Millisecond)

	objects.fail.Store(true)
	behind := func(want float64) func() bool {
		return func() bool { return gauge(t, reg, "millrace_catalog_export_behind") == want }
	}
	table, _, err := c.CreateTable(t.Context(), "a", catalog.Spec{Name: "t", Columns: []catalog.ColumnSpec{{Name: "v", Type: "INT"}}}, false)
	require.NoError(t, err)
	require.Eventually(t, behind(1), time.Minute, time.Millisecond)
	require.False(t, has(2)())
	objects.fail.Store(false)
	require.Eventually(t, has(2), time.Minute, time.Millisecond)
	require.Eventually(t, behind(0), time.Minute, time.Millisecond)

	// The newest is damaged: the one before is used, and that is said.
	b, _, err := c.Export(t.Context())
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, objects.Put(t.Context(), fmt.Sprintf("%s%020d", prefix, 7), b))
	var said bytes.Buffer
	fs := vfs.NewMem()
	kv, err := catalog.OpenPebble(fs, "catalog", quiet)
	require.NoError(t, err)
	revision, err := backup.Restore(t.Context(), objects, prefix, kv, slog.New(slog.NewTextHandler(&said, nil)))
	require.NoError(t, err)
	require.EqualValues(t, 2, revision)
	require.Contains(t, said.String(), "level=ERROR")
	_, err = backup.Restore(t.Context(), objects, prefix, kv, quiet)
	require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
	require.NoError(t, kv.Close())

	again := openCatalog(t, fs)
	require.Equal(t, c.ClusterID(), again.ClusterID())
	got, err := again.Table(t.Context(), table.Path)
	require.NoError(t, err)
	require.Equal(t, table, got)
	require.EqualValues(t, 8, again.Revision())
	_, err = again.CreateDatabase(t.Context(), "b", "")
	require.NoError(t, err)
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// Many changes at a time are few exports, and the newest ten stay.
func TestKept(t *testing.T) {
	c, objects := openCatalog(t, vfs.NewMem()), openObjects(t)
	for n := range 20 {
		require.NoError(t, objects.Put(t.Context(), fmt.Sprintf("p/%020d", n), []byte("old")))
	}
	require.NoError(t, objects.Put(t.Context(), "p/other", []byte("not ours")))
	for n := range 50 {
		_, err := c.CreateDatabase(t.Context(), fmt.Sprint("d", n), "")
		require.NoError(t, err)
	}
	run(t, backup.NewWriter(backup.Options{Catalog: c, Store: objects, Prefix: "p/", Logger: quiet}))
	require.Eventually(t, func() bool { return len(keys(t, objects, "p/")) == backup.Kept+1 }, time.Minute, time.Millisecond)
	for n := range 50 {
		_, err := c.CreateDatabase(t.Context(), fmt.Sprint("e", n), "")
		require.NoError(t, err)
	}
	newest := fmt.Sprintf("p/%020d", 100)
	require.Eventually(t, func() bool { _, err := objects.Stat(t.Context(), newest); return err == nil }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return len(keys(t, objects, "p/")) == backup.Kept+1 }, time.Minute, time.Millisecond)
	require.Contains(t, keys(t, objects, "p/"), fmt.Sprintf("p/%020d", 50), "no more than two were written")
}

// Nothing to restore from is said as such.
func TestNothingToRestore(t *testing.T) {
	kv, err := catalog.OpenPebble(vfs.NewMem(), "catalog", quiet)
	require.NoError(t, err)
	_, err = backup.Restore(t.Context(), openObjects(t), "p/", kv, quiet)
	require.True(t, errs.Is(err, errs.InvalidRequest), "%v", errors.Unwrap(err))
	require.NoError(t, kv.Close())
}

// A writer that ends in order leaves nothing unwritten, and writes nothing twice.
func TestFinish(t *testing.T) {
	c, objects := openCatalog(t, vfs.NewMem()), openObjects(t)
	prefix := backup.Prefix(c.ClusterID())
	w := backup.NewWriter(backup.Options{Catalog: c, Store: objects, Prefix: prefix, Logger: quiet})
	_, err := c.CreateDatabase(t.Context(), "a", "")
	require.NoError(t, err)
	require.NoError(t, w.Finish(t.Context()))
	require.Len(t, keys(t, objects, prefix), 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	_, err = c.CreateDatabase(t.Context(), "b", "")
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, w.Finish(t.Context()))
	require.Equal(t, fmt.Sprintf("%s%020d", prefix, 2), keys(t, objects, prefix)[len(keys(t, objects, prefix))-1])
	n := len(keys(t, objects, prefix))
	require.NoError(t, w.Finish(t.Context()))
	require.Len(t, keys(t, objects, prefix), n)
}
