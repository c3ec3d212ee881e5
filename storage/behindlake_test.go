package storage_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// setBack is a world whose state knows all that write wrote, and whose manifest and log end before that.
func setBack(t *testing.T, begin, write func(w *storagetest.World)) *storagetest.World {
	t.Helper()
	w := small(t)
	w.MustOpen()
	begin(w)
	w.Close()
	older := w.Image(100)
	var img *vfs.MemFS
	w.Opts.Hook = func(p string) {
		if p == "checkpoint:state" && img == nil {
			img = w.Image(100)
		}
	}
	w.MustOpen()
	write(w)
	checkpoint(t, w)
	w.Close()
	w.Opts.Hook, w.FS = nil, img
	wals := storagetest.Dir + "/wal"
	require.NoError(t, w.FS.RemoveAll(wals))
	_, err := vfs.Clone(older, w.FS, wals, wals, vfs.CloneSync)
	require.NoError(t, err)
	return w
}

// repairBehind repairs the log of a world with one shard, whose lake has a bucket up to an offset, and opens it.
func repairBehind(t *testing.T, w *storagetest.World, m *storagetest.Modelled, end millrace.Offset) shard.BucketLoss {
	t.Helper()
	o := w.Opts
	o.FS, o.Clock, o.Logger = w.FS, w.Clock, slog.New(w.Log)
	o.InLake = map[millrace.ShardID][]shard.InLake{0: {{Table: m.Table.Table, Bucket: m.BucketID(0), End: end}}}
	losses, err := storage.Repair(context.Background(), o, true, storagetest.Dir+"/repair")
	require.NoError(t, err)
	require.Len(t, losses, 1)
	w.MustOpen()
	for _, b := range losses[0].Buckets {
		if b.ID == m.BucketID(0) {
			return b
		}
	}
	require.Fail(t, "nothing is told of the bucket")
	return shard.BucketLoss{}
}

// Shows that a log which goes on where the lake ends knows the numbered batches up to there, and takes those behind it anew,
// which are told of as lost.
func TestRepairKeepsBatchesInLake(t *testing.T) {
	var m *storagetest.Modelled
	write := func(from, to uint64) func(w *storagetest.World) {
		return func(w *storagetest.World) {
			if m == nil {
				m = w.Add(storagetest.NewTable(1, 1, 1, 0, storagetest.LogColumns...))
			}
			for seq := from; seq <= to; seq++ {
				_, err := numbered(w, m, "w", 1, seq)
				require.NoError(t, err)
			}
		}
	}
	w := setBack(t, write(1, 3), write(4, 10))
	told := repairBehind(t, w, m, 7)
	require.EqualValues(t, 7, told.End)
	require.NotNil(t, told.InLake)
	require.EqualValues(t, 3, told.Lost)
	for seq := uint64(4); seq <= 10; seq++ {
		res, err := numbered(w, m, "w", 1, seq)
		require.NoError(t, err)
		require.Equal(t, seq <= 7, res.Duplicate, "batch %d", seq)
		require.EqualValues(t, seq-1, res.Start)
	}
	w.Close()
}

// Shows that the rows of a keyed table stay which no manifest and no log knows of any more, when the lake tells what table
// they are of; wherever the lake ends.
func TestRepairKeepsRowsOfTableInLake(t *testing.T) {
	for _, ahead := range []millrace.Offset{-3, 0, 5} {
		var k *storagetest.Modelled
		var end millrace.Offset
		w := setBack(t, func(w *storagetest.World) {
			_, err := numbered(w, w.Add(storagetest.NewTable(1, 1, 1, 0, storagetest.LogColumns...)), "w", 1, 1)
			require.NoError(t, err)
		}, func(w *storagetest.World) {
			k = w.Add(storagetest.NewTable(2, 1, 1, 2, storagetest.KeyedColumns...))
			gen := storagetest.Generator{Rng: w.Rng, Keys: 50}
			for range 30 {
				wr := gen.Write(k.Table, 0)
				if res, err := w.Shard(k.Table, 0).Write(context.Background(), k.Op(wr, 0)); err == nil {
					k.Write(wr)
					end = max(end, res.End)
				}
			}
		})
		told := repairBehind(t, w, k, end+ahead)
		want := end
		if ahead > 0 {
			want = end + ahead + 1
		}
		require.Equal(t, want, told.End)
		require.Equal(t, ahead <= 0, told.Begins)
		sn, err := w.Shard(k.Table, 0).Snapshot()
		require.NoError(t, err)
		rows := w.ReadState(sn, k.Table, 0)
		require.NotEmpty(t, rows)
		require.Empty(t, storagetest.DiffStates(storagetest.Fold(k.Table, k.Buckets[0].Log), rows))
		meta, err := sn.Meta(k.BucketID(0))
		require.NoError(t, err)
		require.EqualValues(t, len(rows), meta.Rows)
		require.Equal(t, want, meta.Next)
		sn.Release()
		w.Close()
	}
}
