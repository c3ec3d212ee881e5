package storage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// partitions adds partitions 1 to n of a keyed table to the model.
func partitions(w *storagetest.World, n int) []*storagetest.Modelled {
	tbl := storagetest.NewTable(1, 2, w.Opts.Shards, 2, storagetest.KeyedColumns...)
	out := make([]*storagetest.Modelled, n)
	for i := range out {
		out[i] = w.Add(tbl.InPartition(millrace.PartitionID(i + 1)))
	}
	return out
}

func sealPartition(t testing.TB, w *storagetest.World, m *storagetest.Modelled) {
	t.Helper()
	for _, s := range w.Worker.Shards() {
		require.NoError(t, s.SealPartition(context.Background(), m.ID, m.Partition))
	}
	m.Sealed = true
}

// Shows that a seal stands in the log behind what was acknowledged and before nothing:
// later writes are refused, to buckets that there are and to those that there are not,
// also after crashes and checkpoints, until the partition is dropped; a batch that was
// taken before the seal is known when it is sent again.
func TestSeal(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		w := small(t)
		w.MustOpen()
		ps := partitions(w, 2)
		open, ends := ps[0], ps[1]
		numbered := &storagetest.Write{Rows: keyedRows(0, 3, "n"), Writer: &storagetest.Sequence{Writer: "0:w", Seq: 1}}
		write(t, w, open, &storagetest.Write{Rows: keyedRows(0, 10, "a")})
		write(t, w, ends, numbered)
		sh := w.Worker.Shards()[0]
		var under []*shard.Pending
		for i := range 50 {
			wr := &storagetest.Write{Rows: keyedRows(i, i+2, "b")}
			p, err := sh.Start(context.Background(), ends.Op(wr, 0))
			require.NoError(t, err)
			ends.Write(wr)
			under = append(under, p)
		}
		sealPartition(t, w, ends)
		late, err := sh.Start(context.Background(), ends.Op(&storagetest.Write{Rows: keyedRows(0, 1, "late")}, 0))
		require.NoError(t, err)
		for _, p := range under {
			_, err := p.Wait(context.Background())
			require.NoError(t, err)
		}
		_, err = late.Wait(context.Background())
		require.Equal(t, errs.PartitionExpired, errs.CodeOf(err))
		check := func() {
			t.Helper()
			write(t, w, ends, &storagetest.Write{Rows: keyedRows(0, 1, "late")})
			write(t, w, ends, &storagetest.Write{Bucket: 1, Rows: keyedRows(0, 1, "late")})
			write(t, w, ends, numbered)
			write(t, w, open, &storagetest.Write{Bucket: 1, Rows: keyedRows(0, 1, "c")})
			w.Check()
		}
		check()
		w.Crash(percent)
		check()
		sealPartition(t, w, ends) // says nothing new
		checkpoint(t, w)
		check()
		w.Crash(percent)
		check()
		require.Equal(t, []millrace.PartitionID{1, 2}, w.Worker.Shards()[0].Partitions(1))
		dropTable(t, w, ends)
		require.Equal(t, []millrace.PartitionID{1}, w.Worker.Shards()[0].Partitions(1))
		w.Crash(percent)
		require.Equal(t, []millrace.PartitionID{1}, w.Worker.Shards()[0].Partitions(1))
		w.Check()
		w.Close()
	}
}

// Shows that a partition that never had a bucket can be sealed, stays so, and is
// forgotten when it, or its table, is dropped.
func TestSealOfNothing(t *testing.T) {
	w := small(t)
	w.MustOpen()
	ps := partitions(w, 3)
	w.Tables = nil
	for _, p := range ps {
		sealPartition(t, w, p)
	}
	refused := func(p *storagetest.Modelled) {
		t.Helper()
		_, err := w.Worker.Shards()[0].Write(context.Background(), p.Op(&storagetest.Write{Rows: keyedRows(0, 1, "x")}, 0))
		require.Equal(t, errs.PartitionExpired, errs.CodeOf(err))
	}
	for range 2 {
		for _, p := range ps {
			refused(p)
		}
		checkpoint(t, w)
		w.Crash(0)
	}
	dropTable(t, w, ps[1])
	refused(ps[1])
	w.Crash(0)
	require.Equal(t, []millrace.PartitionID{1, 3}, w.Worker.Shards()[0].Partitions(1))
	checkpoint(t, w)
	w.Close()
	w.MustOpen()
	require.Equal(t, []millrace.PartitionID{1, 3}, w.Worker.Shards()[0].Partitions(1))
	w.Close()
}

// Shows that dropping a partition takes it alone: rows, counters, writers and files,
// those of its neighbours stay; its files stay until a manifest covers the drop.
func TestDropPartition(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		w := small(t)
		w.MustOpen()
		ps := partitions(w, 3)
		for _, p := range ps {
			for b := range uint16(2) {
				write(t, w, p, &storagetest.Write{Bucket: b, Rows: keyedRows(0, 2000, "a")})
			}
		}
		files := func() []string {
			names, err := w.FS.List(storagetest.Dir + "/shards/00000/segments/0000000001")
			require.NoError(t, err)
			return names
		}
		checkpoint(t, w)
		write(t, w, ps[1], &storagetest.Write{Bucket: 1, Rows: keyedRows(0, 20, "c")})
		gone := ps[1]
		dropTable(t, w, gone)
		w.Crash(percent)
		w.Check()
		for b := range uint16(2) {
			sh := w.Worker.Shards()[0]
			lg, _, err := sh.Log(gone.BucketID(b))
			require.NoError(t, err)
			require.Nil(t, lg)
			rows, err := sh.Rows(gone.BucketID(b))
			require.NoError(t, err)
			require.Zero(t, rows)
			found, err := sh.Lookup(context.Background(), gone.BucketID(b), [][]byte{gone.StateKey(keyedRows(1, 2, "a")[0])})
			require.NoError(t, err)
			require.Nil(t, found[0])
		}
		require.Contains(t, files(), "0000000002")
		write(t, w, ps[0], &storagetest.Write{Rows: keyedRows(5, 15, "d")})
		checkpoint(t, w)
		require.ElementsMatch(t, []string{"0000000001", "0000000003"}, files())
		w.Crash(percent)
		w.Check()
		w.Close()
	}
}

// Shows that what the catalog does not know is dropped: tables, and partitions of
// tables that it knows.
func TestDropUnknownPartitions(t *testing.T) {
	w := small(t)
	w.MustOpen()
	ps := partitions(w, 4)
	for _, p := range ps {
		write(t, w, p, &storagetest.Write{Rows: keyedRows(0, 5, "a")})
	}
	other := w.Add(storagetest.NewTable(2, 1, 1, 2, storagetest.KeyedColumns...))
	write(t, w, other, &storagetest.Write{Rows: keyedRows(0, 5, "a")})
	sealPartition(t, w, ps[3])
	var asked []string
	require.NoError(t, w.Worker.DropUnknown(context.Background(), func(id millrace.TableID, p millrace.PartitionID) bool {
		asked = append(asked, fmt.Sprint(id, p))
		return p != 2 && p != 4
	}))
	require.ElementsMatch(t, []string{"1 0", "1 1", "1 2", "1 3", "1 4", "2 0", "2 0"}, asked)
	require.Equal(t, []millrace.PartitionID{1, 3}, w.Worker.Shards()[0].Partitions(1))
	w.Tables = []*storagetest.Modelled{ps[0], ps[2], other}
	w.Crash(0)
	w.Check()
	w.Close()
}

// Shows that a table can be dropped with its partitions, those sealed included, and
// leaves nothing.
func TestDropTableOfPartitions(t *testing.T) {
	w := small(t)
	w.MustOpen()
	ps := partitions(w, 3)
	for _, p := range ps {
		write(t, w, p, &storagetest.Write{Rows: keyedRows(0, 1000, "a")})
	}
	checkpoint(t, w)
	sealPartition(t, w, ps[0])
	dropTable(t, w, ps[1])
	require.NoError(t, w.Worker.Shards()[0].DropTable(context.Background(), 1))
	for i, code := range []errs.Code{errs.TableNotFound, errs.TableNotFound, errs.TableNotFound} {
		_, err := w.Worker.Shards()[0].Write(context.Background(), ps[i].Op(&storagetest.Write{Rows: keyedRows(0, 1, "x")}, 0))
		require.Equal(t, code, errs.CodeOf(err))
	}
	w.Tables = nil
	w.Crash(0)
	require.Empty(t, w.Worker.Shards()[0].Tables())
	require.Empty(t, w.Worker.Shards()[0].Partitions(1))
	checkpoint(t, w)
	names, err := w.FS.List(storagetest.Dir + "/shards/00000/segments")
	require.NoError(t, err)
	require.Empty(t, names)
	w.Close()
}
