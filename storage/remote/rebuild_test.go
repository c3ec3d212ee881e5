package remote_test

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that a worker whose log and disks are gone comes back from the object store
// alone, with what each shard held at its newest checkpoint: for each bucket the log of
// the model up to some offset, not below that of the last publication, and the state
// that this log makes; that it goes on from there, in the same place of the object store
// too; and that it needs nothing from there any more.
func TestRebuild(t *testing.T) {
	seed := seedOf(t)
	for i := range uint64(2) {
		t.Run("", func(t *testing.T) { testRebuild(t, seed+i) })
	}
}

func testRebuild(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	w.tables()
	if w.Rng.IntN(2) == 0 {
		for _, m := range w.Tables {
			m.Options.LocalTTL = -1
		}
	}
	w.MustOpen()
	for range 5 {
		w.write(120)
		w.publish()
	}
	published := w.written()
	w.writeAmidCheckpoints(400)
	time.Sleep(10 * time.Millisecond)
	w.Close()

	fresh := vfs.NewCrashableMem()
	w.newStore(w.objects)
	require.NoError(t, fresh.MkdirAll(storagetest.Dir, 0o755))
	for id := range millrace.ShardID(w.Opts.Shards) {
		_, err := shard.Rebuild(t.Context(), shard.Options{
			ID: id, Dir: path.Join(storagetest.Dir, "shards", fmt.Sprintf("%05d", id)), Cluster: w.Opts.Cluster, FS: fresh, Remote: w.store.Shard(id), Logger: slog.New(w.Log), Clock: w.Clock,
		})
		require.NoError(t, err)
	}
	w.FS = fresh
	w.away() // nothing is needed from there
	w.MustOpen()
	w.cutModel(published)

	// It goes on with a log of its own, and where the old one's checkpoints are.
	other := storagetest.NewTable(9, 2, w.Opts.Shards, 2, storagetest.KeyedColumns...)
	w.Tables = nil
	w.Add(other)
	w.write(100)
	w.objects.Heal()
	w.publish()
	w.write(30)
	w.reopen(w.loseShards)
	w.Check()
	w.Close()
}

// Shows that a log which is not that of the checkpoints does not go on from them by
// itself: the shard stays closed and says what helps.
func TestLogIsLost(t *testing.T) {
	w := newWorld(t, 11)
	calm(w)
	w.MustOpen()
	w.write(100)
	w.publish()
	w.Close()
	w.FS = vfs.NewCrashableMem()
	w.newStore(w.objects)
	var err error
	w.Worker, err = w.TryOpen()
	require.NoError(t, err)
	err = w.Worker.Err()
	require.NoError(t, mustFail(err, errs.CorruptData))
	require.ErrorContains(t, err, "millrace restore")
	w.Close()
}

// writeAmidCheckpoints makes n writes while checkpoints go on, so that a state stands in
// the middle of them.
func (w *world) writeAmidCheckpoints(n int) {
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			for _, s := range w.Worker.Shards() {
				_ = s.Checkpoint(context.Background())
			}
		}
	}()
	w.write(n)
	close(stop)
	<-done
}

// written is how far the logs of the model are.
func (w *world) written() map[millrace.BucketID]int {
	out := map[millrace.BucketID]int{}
	for _, m := range w.Tables {
		for b := range m.Buckets {
			out[m.BucketID(uint16(b))] = len(m.Buckets[b].Log)
		}
	}
	return out
}

// cutModel requires of each bucket the log of the model up to some offset, not below one
// that is given, and of keyed ones the state that this log makes. It says how many
// records of the model are behind that.
func (w *world) cutModel(atLeast map[millrace.BucketID]int) (behind int) {
	t := w.t
	t.Helper()
	for _, m := range w.Tables {
		for b := range m.Buckets {
			id := m.BucketID(uint16(b))
			lg, v, err := w.Shard(m.Table, uint16(b)).Log(id)
			require.NoError(t, err)
			if lg == nil {
				require.Zero(t, atLeast[id])
				*m.Buckets[b] = *storagetest.NewBucket()
				continue
			}
			require.GreaterOrEqual(t, int(v.End), atLeast[id])
			behind += len(m.Buckets[b].Log) - int(v.End)
			log, _, err := storagetest.ReadView(lg, v, v.Kept, m.Table)
			require.NoError(t, err)
			want := m.Buckets[b].Log[:v.End]
			require.Empty(t, storagetest.DiffLogs(want[v.Kept:], log))
			if m.Keyed {
				sn, err := w.Shard(m.Table, uint16(b)).Snapshot()
				require.NoError(t, err)
				require.Empty(t, storagetest.DiffStates(storagetest.Fold(m.Table, want), w.ReadState(sn, m.Table, uint16(b))))
				sn.Release()
			}
		}
	}
	t.Logf("%d records behind the end", behind)
	return behind
}
