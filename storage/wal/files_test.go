package wal_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var cluster = wal.ClusterID{1, 2, 3, 4}

// tick is a clock that moves a millisecond each time it is read.
type tick struct{ n int64 }

func (c *tick) Now() time.Time { c.n++; return time.UnixMilli(c.n) }

// options are for tests: log ids that can be replayed.
func options(shards int) wal.Options {
	return wal.Options{ClusterID: cluster, Shards: shards, Clock: &tick{}, Random: rand.NewChaCha8([32]byte{1})}
}

func mustOpen(t testing.TB, fs vfs.FS, dir string, opts wal.Options) *wal.Files {
	t.Helper()
	f, err := wal.OpenFiles(fs, dir, opts)
	require.NoError(t, err)
	return f
}

func mustShard(t testing.TB, f *wal.Files, id millrace.ShardID) wal.Log {
	t.Helper()
	l, err := f.Shard(id)
	require.NoError(t, err)
	return l
}

func opener(t *testing.T, fs vfs.FS, dir string, opts wal.Options) waltest.Opener {
	return func() waltest.Session {
		f := mustOpen(t, fs, dir, opts)
		return waltest.Session{
			Log:   func(id millrace.ShardID) wal.Log { return mustShard(t, f, id) },
			Close: func() { require.NoError(t, f.Close()) },
		}
	}
}

// The file log keeps the contract in memory and on disk, with files that rotate
// never, often, and at each write.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		rotate int64
		disk   bool
	}{
		{"Memory", 0, false},
		{"MemorySmallFiles", 100_000, false},
		{"MemoryTinyFiles", 1, false},
		{"Disk", 1 << 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			waltest.RunSuite(t, func(t *testing.T) waltest.Opener {
				opts := options(waltest.Shards)
				opts.RotateBytes = c.rotate
				if c.disk {
					return opener(t, vfs.Default, t.TempDir()+"/a/b", opts)
				}
				return opener(t, vfs.NewMem(), "a/wal", opts)
			})
		})
	}
}
