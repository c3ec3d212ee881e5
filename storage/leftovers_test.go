package storage_test

import (
	"context"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/storagetest"
)

const (
	waitFor = time.Minute
	tick    = 2 * time.Millisecond
)

const shardDir = storagetest.Dir + "/shards/00000"

func putFile(t testing.TB, fs vfs.FS, name, text string) {
	t.Helper()
	require.NoError(t, fs.MkdirAll(path.Dir(name), 0o755))
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = io.WriteString(f, text)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// Shows that a start removes what no manifest names: files that were never published,
// segments written after the checkpoint, directories of tables that are gone; and
// nothing else, so that what is named is read and appended to from there, start after
// start.
func TestLeftovers(t *testing.T) {
	w := small(t)
	w.Opts.SealBytes = 2 << 10
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 2, 1, 2, storagetest.KeyedColumns...))
	for i := range 6 {
		write(t, w, m, &storagetest.Write{Rows: keyedRows(i*20, i*20+60, "a")})
	}
	checkpoint(t, w)
	write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 60, "b")})
	require.Eventually(t, func() bool { // it is in a segment that no manifest names
		_, v, err := w.Shard(m.Table, 0).Log(m.BucketID(0))
		return err == nil && len(v.Tail()) == 0
	}, waitFor, tick)
	image := w.Image(100)
	w.Close()
	w.FS = image
	bucketDir := shardDir + "/segments/0000000001/0000000000/00000"
	before, err := w.FS.List(bucketDir)
	require.NoError(t, err)
	left := []string{
		shardDir + "/manifest-00000000000000000009.tmp",
		shardDir + "/tails-00000000000000000009",
		shardDir + "/tails-00000000000000000009.tmp",
		bucketDir + "/00000000000000009999.seg",
		bucketDir + "/notes.txt",
		shardDir + "/segments/0000000001/0000000000/00007/00000000000000000000.seg",
		shardDir + "/segments/0000000001/0000000003/00000/00000000000000000000.seg",
		shardDir + "/segments/0000000077/0000000000/00000/00000000000000000000.seg",
	}
	for _, name := range left {
		putFile(t, w.FS, name, "left over")
	}
	w.MustOpen()
	w.Check()
	for _, name := range left {
		_, err := w.FS.Stat(name)
		require.Error(t, err, name)
	}
	for range 3 {
		w.Crash(0) // nothing but an epoch
		w.Check()
	}
	write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 60, "c")})
	checkpoint(t, w)
	w.Crash(0)
	w.Check()
	after, err := w.FS.List(bucketDir)
	require.NoError(t, err)
	require.Greater(t, len(after), len(before), "what was open is not appended to again")
	w.Close()
}

// Shows that a shard does not go on with a log that is not the one it wrote last: an
// older copy of it, an empty one, or another one. It names the trouble and serves
// nothing, and stays as it is.
func TestForeignLog(t *testing.T) {
	make := func(n int) *storagetest.World {
		w := small(t)
		w.MustOpen()
		m := w.Add(storagetest.NewTable(1, 1, 1, 2, storagetest.KeyedColumns...))
		for i := range n {
			write(t, w, m, &storagetest.Write{Rows: keyedRows(i, i+5, "a")})
		}
		return w
	}
	w := make(5)
	older := w.Image(100)
	m := w.Tables[0]
	for range 5 {
		write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 5, "b")})
	}
	checkpoint(t, w)
	newest := w.Image(100)
	w.Close()
	other := make(40)
	foreign := other.Image(100)
	other.Close()
	walDir := storagetest.Dir + "/wal"
	for _, c := range []struct {
		name, says string
		from       *vfs.MemFS
	}{
		{"older", "ends at record", older},
		{"empty", "ends at record", nil},
		{"foreign", "another", foreign},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := copyAll(t, newest)
			require.NoError(t, fs.RemoveAll(walDir))
			if c.from != nil {
				_, err := vfs.Clone(c.from, fs, walDir, walDir, vfs.CloneSync)
				require.NoError(t, err)
			}
			v := small(t)
			v.FS = fs
			var err error
			v.Worker, err = v.TryOpen()
			require.NoError(t, err)
			err = v.Worker.Err()
			require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
			require.Contains(t, err.Error(), c.says)
			_, err = v.Worker.Shards()[0].Write(context.Background(), m.Op(&storagetest.Write{Rows: keyedRows(0, 1, "x")}, 0))
			require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
			require.NoError(t, v.Worker.Shards()[0].DropTable(context.Background(), m.ID))
			require.True(t, errs.Is(v.Worker.Shards()[0].Checkpoint(context.Background()), errs.CorruptData))
			require.True(t, errs.Is(v.Worker.Shards()[0].Rehold("none", 0, 0), errs.CorruptData))
			v.Close()
			// With its own log back, all is well.
			require.NoError(t, fs.RemoveAll(walDir))
			_, err = vfs.Clone(newest, fs, walDir, walDir, vfs.CloneSync)
			require.NoError(t, err)
			v.Tables = w.Tables
			v.MustOpen()
			v.Check()
			v.Close()
		})
	}
}

// copyAll is a copy of a file system, all of it durable.
func copyAll(t testing.TB, from *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	to := vfs.NewCrashableMem()
	_, err := vfs.Clone(from, to, storagetest.Dir, storagetest.Dir, vfs.CloneSync)
	require.NoError(t, err)
	root, err := to.OpenDir("")
	require.NoError(t, err)
	require.NoError(t, root.Sync())
	require.NoError(t, root.Close())
	return to
}

// Shows that damage of a manifest, of what it names, or a manifest of another cluster
// or a newer release is told by name and closes its shard alone.
func TestManifestOfAnother(t *testing.T) {
	w := small(t)
	w.Opts.Shards = 2
	w.MustOpen()
	m := w.Add(storagetest.NewTable(2, 2, 2, 2, storagetest.KeyedColumns...))
	write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 50, "a")})
	write(t, w, m, &storagetest.Write{Bucket: 1, Rows: keyedRows(0, 50, "a")})
	checkpoint(t, w)
	image := w.Image(100)
	w.Close()
	open := func(t *testing.T, fs *vfs.MemFS, what string) {
		v := small(t)
		v.Opts.Shards, v.FS = 2, fs
		var err error
		v.Worker, err = v.TryOpen()
		require.NoError(t, err)
		err = v.Worker.Shards()[0].Err()
		require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
		require.Contains(t, err.Error(), what)
		require.NoError(t, v.Worker.Shards()[1].Err())
		v.Tables = w.Tables
		v.CheckBucket(m, 1)
		v.Close()
	}
	t.Run("of another shard", func(t *testing.T) {
		fs := copyAll(t, image)
		name := newestFile(t, fs, shardDir, "manifest-")
		require.NoError(t, fs.Remove(name))
		other := newestFile(t, fs, storagetest.Dir+"/shards/00001", "manifest-")
		require.NoError(t, vfs.Copy(fs, other, name))
		open(t, fs, "of another cluster or shard")
	})
	t.Run("under another number", func(t *testing.T) {
		fs := copyAll(t, image)
		name := newestFile(t, fs, shardDir, "manifest-")
		require.NoError(t, vfs.Copy(fs, name, shardDir+"/manifest-00000000000000000042"))
		open(t, fs, "manifest-00000000000000000042")
	})
	t.Run("without its segment", func(t *testing.T) {
		fs := copyAll(t, image)
		require.NoError(t, fs.RemoveAll(shardDir+"/segments/0000000002"))
		open(t, fs, ".seg")
	})
	t.Run("without its state", func(t *testing.T) {
		fs := copyAll(t, image)
		require.NoError(t, fs.RemoveAll(shardDir+"/state"))
		open(t, fs, "files of the state are missing")
	})
}

// newestFile is the path of the last file of a directory whose name begins so.
func newestFile(t testing.TB, fs vfs.FS, dir, prefix string) string {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	newest := ""
	for _, n := range names {
		if strings.HasPrefix(n, prefix) && !strings.HasSuffix(n, ".tmp") && n > newest {
			newest = n
		}
	}
	require.NotEmpty(t, newest)
	return path.Join(dir, newest)
}
