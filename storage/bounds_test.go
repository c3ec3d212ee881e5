package storage_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that a writer that is faster than segments can be written is held back: what
// waits in memory stays within its bound, nothing is refused, and nothing is lost.
func TestTailsAreBounded(t *testing.T) {
	const tails, queue = 64 << 10, 16 << 10
	w := small(t)
	w.Opts.TailBytes, w.Opts.BucketTailBytes, w.Opts.QueueBytes = tails, 8<<10, queue
	slow := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "/segments/") {
			time.Sleep(2 * time.Millisecond)
		}
		return nil
	})
	w.Wrap = func(fs vfs.FS) vfs.FS { return errorfs.Wrap(fs, slow) }
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 8, 1, 0, storagetest.LogColumns...))
	var most int64
	sh := w.Worker.Shards()[0]
	for i := range 1500 {
		wr := &storagetest.Write{Bucket: uint16(i % 8), Rows: []storagetest.Row{{int64(i), strings.Repeat("v", 1000), nil, nil, nil}}}
		write(t, w, m, wr)
		var sum int64
		for b := range m.Buckets {
			_, v, err := sh.Log(m.BucketID(uint16(b)))
			require.NoError(t, err)
			if v != nil {
				sum += v.TailBytes()
			}
		}
		most = max(most, sum)
	}
	t.Logf("at most %d bytes of tails", most)
	require.LessOrEqual(t, most, int64(2*tails+2*queue))
	require.Greater(t, most, int64(tails/2))
	require.Eventually(t, func() bool {
		for b := range m.Buckets {
			_, v, err := sh.Log(m.BucketID(uint16(b)))
			require.NoError(t, err)
			if v.TailBytes() > 8<<10 {
				return false
			}
		}
		return true
	}, waitFor, tick, "the tail of each bucket comes within its own bound")
	w.Check()
	w.Crash(0)
	w.Check()
	w.Close()
}

// Shows that writes that wait for a log that stands still are bounded in bytes: the
// next one waits for room, and is refused when its time is over, without being written.
func TestQueueIsBounded(t *testing.T) {
	const queue = 64 << 10
	w := small(t)
	w.Opts.QueueBytes = queue
	stand := make(chan struct{})
	var block atomic.Bool
	w.Opts.Hook = func(p string) {
		if block.Load() && p == "log:before" {
			<-stand
		}
	}
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 1, 1, 0, storagetest.LogColumns...))
	sh := w.Worker.Shards()[0]
	block.Store(true)
	var under []*shard.Pending
	for i := 0; ; i++ {
		wr := &storagetest.Write{Rows: []storagetest.Row{{int64(i), strings.Repeat("v", 1000), nil, nil, nil}}}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		p, err := sh.Start(ctx, m.Op(wr, 0))
		cancel()
		if err != nil {
			require.True(t, errs.Is(err, errs.Overloaded), "%v", err)
			break
		}
		m.Buckets[0].Write(m.Table, wr)
		under = append(under, p)
		require.Less(t, i*1000, 2*queue, "the queue takes everything")
	}
	require.Greater(t, len(under)*1000, queue/3)
	// One that does not want to wait for its answer does not know it.
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	_, err := under[0].Wait(ctx)
	cancel()
	require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
	close(stand)
	for _, p := range under {
		_, err := p.Wait(context.Background())
		require.NoError(t, err)
		_, err = p.Wait(context.Background()) // asking again is all right
		require.NoError(t, err)
	}
	w.Check()
	w.Close()
}

// Shows that snapshots held for readers are bounded, end when nobody uses them for
// long or their time is over, and live as long as somebody reads them.
func TestHeldSnapshots(t *testing.T) {
	w := small(t)
	w.Opts.MaxSnapshots = 3
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 1, 1, 2, storagetest.KeyedColumns...))
	write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 10, "a")})
	sh := w.Worker.Shards()[0]
	hold := func(idle, ttl time.Duration) string {
		sn, err := sh.Snapshot()
		require.NoError(t, err)
		return sh.Hold(sn, m.ID, idle, ttl)
	}
	gone := func(id string) bool {
		sn, err := sh.Held(id)
		if err == nil {
			sn.Release()
			return false
		}
		require.True(t, errs.Is(err, errs.SnapshotGone), "%v", err)
		return true
	}
	first := hold(time.Minute, 0)
	reading, err := sh.Held(first)
	require.NoError(t, err)
	w.Clock.Add(time.Second)
	second := hold(time.Minute, 0)
	w.Clock.Add(time.Second)
	third := hold(time.Minute, 90*time.Second)
	w.Clock.Add(time.Second)
	require.False(t, gone(second)) // used again
	fourth := hold(time.Hour, 2*time.Minute)
	require.True(t, gone(first), "the one used longest ago goes")
	require.False(t, gone(second))
	write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 10, "b")})
	require.Empty(t, storagetest.DiffStates(storagetest.Fold(m.Table, m.Buckets[0].Log[:10]), w.ReadState(reading, m.Table, 0)), "it reads on")
	reading.Release()
	w.Clock.Add(50 * time.Second)
	require.False(t, gone(third))
	w.Clock.Add(50 * time.Second)
	require.True(t, gone(second), "idle")
	require.True(t, gone(third), "its time is over")
	require.NoError(t, sh.Rehold(fourth, time.Hour, time.Hour))
	w.Clock.Add(50 * time.Minute)
	require.False(t, gone(fourth))
	sh.LetGo(fourth)
	require.True(t, gone(fourth))
	require.True(t, errs.Is(sh.Rehold(fourth, time.Hour, time.Hour), errs.SnapshotGone))
	w.Close()
}

// Shows that a bucket never written to has an empty log, and that a shard tells where
// it stands.
func TestStatus(t *testing.T) {
	w := small(t)
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 2, 1, 2, storagetest.KeyedColumns...))
	write(t, w, m, &storagetest.Write{Rows: keyedRows(0, 10, "a")})
	sh := w.Worker.Shards()[0]
	lg, v, err := sh.Log(m.BucketID(1))
	require.NoError(t, err)
	require.Nil(t, lg)
	require.Nil(t, v)
	n, err := sh.Rows(m.BucketID(0))
	require.NoError(t, err)
	require.EqualValues(t, 10, n)
	st := sh.Status()
	require.Equal(t, shard.Status{Epoch: 1, LSN: st.LSN, Buckets: 1}, st)
	checkpoint(t, w)
	require.Equal(t, st.LSN, sh.Status().CheckpointLSN)
	w.Crash(0)
	require.Equal(t, millrace.Epoch(2), w.Worker.Shards()[0].Status().Epoch)
	w.Close()
}
