package storage_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/storagetest"
)

// small is a world with one shard whose tails go to segments at once.
func small(t testing.TB) *storagetest.World {
	w := storagetest.NewWorld(t, 1)
	o := &w.Opts
	o.Shards, o.CheckpointBytes, o.SealBytes, o.TailBytes, o.BucketTailBytes = 1, 0, 0, 0, 1
	o.QueueBytes, o.WALFileBytes, o.MemTableBytes = 0, 0, 0
	return w
}

// write makes a write and requires the answer that the model gives.
func write(t testing.TB, w *storagetest.World, m *storagetest.Modelled, wr *storagetest.Write) {
	t.Helper()
	want := m.Write(wr)
	res, err := w.Shard(m.Table, wr.Bucket).Write(context.Background(), m.Op(wr, 0))
	require.Equal(t, want.Code, errs.CodeOf(err), "%v", err)
	if err == nil {
		require.Equal(t, want, storagetest.Outcome{Start: int64(res.Start), End: int64(res.End), Duplicate: res.Duplicate})
	}
}

// rows are whole rows of a keyed table with keys [from, to).
func keyedRows(from, to int, tag string) []storagetest.Row {
	var out []storagetest.Row
	for i := from; i < to; i++ {
		out = append(out, storagetest.Row{int64(i), "k", int32(i), tag, nil})
	}
	return out
}

func checkpoint(t testing.TB, w *storagetest.World) {
	t.Helper()
	for _, s := range w.Worker.Shards() {
		require.NoError(t, s.Checkpoint(context.Background()))
	}
}

func dropTable(t testing.TB, w *storagetest.World, m *storagetest.Modelled) {
	t.Helper()
	for _, s := range w.Worker.Shards() {
		if m.Partition == 0 {
			require.NoError(t, s.DropTable(context.Background(), m.ID))
		} else {
			require.NoError(t, s.DropPartition(context.Background(), m.ID, m.Partition))
		}
	}
	for i, o := range w.Tables {
		if o == m {
			w.Tables = append(w.Tables[:i:i], w.Tables[i+1:]...)
			return
		}
	}
}

// Shows that a worker that crashes after a table was dropped opens again: the newest
// manifest names the table's files until the next checkpoint. After that they are
// gone.
func TestDropKeepsFilesOfTheManifest(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		w := small(t)
		w.MustOpen()
		stays := w.Add(storagetest.NewTable(1, 1, 1, 2, storagetest.KeyedColumns...))
		goes := w.Add(storagetest.NewTable(2, 2, 1, 2, storagetest.KeyedColumns...))
		write(t, w, stays, &storagetest.Write{Rows: keyedRows(0, 10, "a")})
		write(t, w, goes, &storagetest.Write{Rows: keyedRows(0, 2000, "a")})
		write(t, w, goes, &storagetest.Write{Bucket: 1, Rows: keyedRows(0, 2000, "b")})
		checkpoint(t, w)
		write(t, w, goes, &storagetest.Write{Bucket: 1, Rows: keyedRows(0, 20, "c")})
		dropTable(t, w, goes)
		w.Crash(percent)
		w.Check()
		require.Len(t, w.Worker.Shards()[0].Tables(), 1)
		names, err := w.FS.List(storagetest.Dir + "/shards/00000/segments")
		require.NoError(t, err)
		require.Contains(t, names, "0000000002")
		write(t, w, stays, &storagetest.Write{Rows: keyedRows(5, 15, "d")})
		checkpoint(t, w)
		names, err = w.FS.List(storagetest.Dir + "/shards/00000/segments")
		require.NoError(t, err)
		require.NotContains(t, names, "0000000002")
		w.Crash(percent)
		w.Check()
		w.Close()
	}
}

// Shows that a table, or a partition, can be dropped, and others opened, sealed and
// written to, at any moment of a checkpoint: what is left by a crash at any later
// moment of it opens, and holds what was acknowledged.
func TestDropDuringCheckpoint(t *testing.T) {
	t.Run("table", func(t *testing.T) { testDropDuringCheckpoint(t, 0) })
	t.Run("partition", func(t *testing.T) { testDropDuringCheckpoint(t, 2) })
}

func testDropDuringCheckpoint(t *testing.T, partition millrace.PartitionID) {
	points := []string{"checkpoint:segments", "checkpoint:tails", "checkpoint:state", "checkpoint:manifest", "checkpoint:purged"}
	for i, at := range append([]string{"start"}, points...) {
		for _, crashAt := range append(points[i:], "end") {
			t.Run(at+"/"+crashAt, func(t *testing.T) {
				w := small(t)
				w.Opts.Shards = 1
				var hook atomic.Pointer[func(string)]
				w.Opts.Hook = func(p string) {
					if f := hook.Load(); f != nil {
						(*f)(p)
					}
				}
				w.MustOpen()
				stays := w.Add(storagetest.NewTable(1, 1, 1, 2, storagetest.KeyedColumns...))
				table := storagetest.NewTable(2, 1, 1, 2, storagetest.KeyedColumns...)
				goes := w.Add(table.InPartition(partition))
				write(t, w, stays, &storagetest.Write{Rows: keyedRows(0, 500, "a")})
				write(t, w, goes, &storagetest.Write{Rows: keyedRows(0, 500, "a")})
				checkpoint(t, w)
				write(t, w, goes, &storagetest.Write{Rows: keyedRows(0, 50, "b")})
				var once, crash sync.Once
				meanwhile := func() {
					once.Do(func() {
						write(t, w, goes, &storagetest.Write{Rows: keyedRows(10, 20, "c")})
						dropTable(t, w, goes)
						born := w.Add(storagetest.NewTable(3, 1, 1, 2, storagetest.KeyedColumns...))
						write(t, w, born, &storagetest.Write{Rows: keyedRows(0, 700, "a")})
						write(t, w, stays, &storagetest.Write{Rows: keyedRows(0, 700, "d")})
						if partition != 0 {
							sealed := w.Add(table.InPartition(partition + 1))
							write(t, w, sealed, &storagetest.Write{Rows: keyedRows(0, 7, "f")})
							sealPartition(t, w, sealed)
						}
					})
				}
				image := w.FS
				f := func(p string) {
					if p == at {
						meanwhile()
					}
					if p == crashAt {
						crash.Do(func() { image = w.Image(100) })
					}
				}
				hook.Store(&f)
				f("start")
				checkpoint(t, w)
				hook.Store(nil)
				if crashAt == "end" {
					image = w.Image(0)
				}
				w.Close()
				w.FS = image
				w.MustOpen()
				w.Check()
				if partition == 0 {
					require.Len(t, w.Worker.Shards()[0].Tables(), 2)
				} else {
					require.Equal(t, []millrace.PartitionID{partition + 1}, w.Worker.Shards()[0].Partitions(2))
				}
				for _, m := range w.Tables {
					write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 5, "e")}) // a sealed one refuses it
				}
				w.Close()
				w.MustOpen()
				w.Check()
				w.Close()
			})
		}
	}
}

// Shows that a write that comes after the drop of its table is refused, and that a
// drop waits for a first write that is under way, whether or not the shard had heard
// of the table before.
func TestWriteAfterDrop(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			w := small(t)
			w.MustOpen()
			defer w.Close()
			m := w.Add(storagetest.NewTable(1, 2, 1, 2, storagetest.KeyedColumns...))
			if known {
				write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 5, "a")})
			}
			sh := w.Worker.Shards()[0]
			op := m.Op(&storagetest.Write{Bucket: 1, Rows: keyedRows(0, 5, "a")}, 0)
			p, err := sh.Start(context.Background(), op)
			require.NoError(t, err)
			require.NoError(t, sh.DropTable(context.Background(), m.ID))
			_, err = p.Wait(context.Background())
			require.NoError(t, err)
			require.Empty(t, sh.Tables())
			_, err = sh.Write(context.Background(), op)
			require.True(t, errs.Is(err, errs.TableNotFound), "%v", err)
			require.NoError(t, sh.DropTable(context.Background(), m.ID))
			// A table that never had a bucket here.
			other := storagetest.NewTable(9, 1, 1, 2, storagetest.KeyedColumns...)
			require.NoError(t, sh.DropTable(context.Background(), other.ID))
			_, err = sh.Write(context.Background(), other.Op(&storagetest.Write{Rows: keyedRows(0, 5, "a")}, 0))
			require.True(t, errs.Is(err, errs.TableNotFound), "%v", err)
			w.Tables = nil
			w.Crash(0)
			require.Empty(t, w.Worker.Shards()[0].Tables())
		})
	}
}
