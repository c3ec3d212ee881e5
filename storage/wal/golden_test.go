package wal_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

var update = flag.Bool("update", false, "write the golden files of the current format version anew")

// goldenEntries is what the golden files hold, by shard.
func goldenEntries() [2][]wal.Entry {
	return [2][]wal.Entry{
		{
			wal.EpochEntry(1),
			{Kind: wal.BucketOpen, Data: []byte("open")},
			{Kind: wal.Data, Data: waltest.Pattern(1, 500)},
			{Kind: 200, Ignorable: true, Data: []byte("of a later release")},
		},
		{
			wal.EpochEntry(9),
			{Kind: wal.IDRange, Data: []byte("ids")},
			{Kind: wal.Noop},
			{Kind: wal.Data, Data: waltest.Pattern(2, 1500)},
			{Kind: wal.BucketSeal},
			{Kind: wal.BucketDrop},
		},
	}
}

func writeGolden(t *testing.T) image {
	t.Helper()
	fs := vfs.NewMem()
	opts := options(2)
	opts.RotateBytes = 10_000
	f := mustOpen(t, fs, dir, opts)
	for s, es := range goldenEntries() {
		log := mustShard(t, f, millrace.ShardID(s))
		_, err := log.Append(context.Background(), es[:2])
		require.NoError(t, err)
		for _, e := range es[2:] {
			_, err := log.Append(context.Background(), []wal.Entry{e})
			require.NoError(t, err)
		}
	}
	require.NoError(t, f.Close())
	return snapshot(t, fs, dir)
}

// Files that each format version left are read by this release, and what this release
// writes is what the newest of them says, to the byte. Run with -update after a change
// of version only.
func TestGoldenFiles(t *testing.T) {
	const current = "testdata/formats/1"
	now := writeGolden(t)
	require.Greater(t, len(now), 1, "more than one file")
	if *update {
		require.NoError(t, os.MkdirAll(current, 0o755))
		for name, b := range now {
			require.NoError(t, os.WriteFile(filepath.Join(current, name), b, 0o644))
		}
	}
	versions, err := filepath.Glob("testdata/formats/*")
	require.NoError(t, err)
	require.NotEmpty(t, versions)
	for _, v := range versions {
		im := snapshot(t, vfs.Default, v)
		if v == current {
			require.Equal(t, now.files(), im.files())
			for name := range now {
				require.True(t, bytes.Equal(now[name], im[name]), "%s is not what this release writes", name)
			}
		}
		f := mustOpen(t, im.mem(t, dir), dir, options(2))
		for s, want := range goldenEntries() {
			got, err := waltest.ReadAll(mustShard(t, f, millrace.ShardID(s)), 0)
			require.NoError(t, err)
			for _, e := range want {
				if e.Kind > wal.Noop {
					continue
				}
				require.Equal(t, e.Kind, got[0].Entry.Kind)
				require.Equal(t, string(e.Data), string(got[0].Entry.Data))
				got = got[1:]
			}
			require.Empty(t, got)
		}
		require.NoError(t, f.Close())
	}
}
