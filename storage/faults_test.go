package storage_test

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/storagetest"
)

// faulty is a world of two shards whose file operations fail as a test says.
type faulty struct {
	*storagetest.World
	t    *testing.T
	fail atomic.Pointer[func(op errorfs.Op) error]
	m    *storagetest.Modelled // bucket 0 is on shard 0, bucket 1 on shard 1
	n    int
}

func newFaulty(t *testing.T) *faulty {
	w := small(t)
	w.Opts.Shards, w.Opts.TailBytes, w.Opts.MemTableBytes = 2, 64<<10, 256<<10
	f := &faulty{World: w, t: t}
	w.Wrap = func(fs vfs.FS) vfs.FS {
		return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if fail := f.fail.Load(); fail != nil {
				return (*fail)(op)
			}
			return nil
		}))
	}
	w.MustOpen()
	f.m = w.Add(storagetest.NewTable(2, 2, 2, 2, storagetest.KeyedColumns...))
	for range 3 {
		f.write(0)
		f.write(1)
	}
	checkpoint(t, w)
	f.write(0)
	return f
}

// when makes operations fail on whose kind and path it says so, so many times (-1:
// until clear).
func (f *faulty) when(times int, err error, on func(op errorfs.Op) bool) {
	var n atomic.Int64
	fail := func(op errorfs.Op) error {
		if !on(op) || times >= 0 && n.Add(1) > int64(times) {
			return nil
		}
		return err
	}
	f.fail.Store(&fail)
}

func (f *faulty) clear() { f.fail.Store(nil) }

func (f *faulty) next(bucket uint16) *storagetest.Write {
	f.n++
	return &storagetest.Write{Bucket: bucket, Rows: keyedRows(f.n*10, f.n*10+60, strings.Repeat("v", 100))}
}

func (f *faulty) write(bucket uint16) {
	f.t.Helper()
	write(f.t, f.World, f.m, f.next(bucket))
}

// try makes a write that may be refused, and says with what.
func (f *faulty) try(bucket uint16) errs.Code {
	f.t.Helper()
	w := f.next(bucket)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := f.Shard(f.m.Table, bucket).Write(ctx, f.m.Op(w, 0))
	if err == nil {
		f.m.Buckets[bucket].Write(f.m.Table, w)
	}
	return errs.CodeOf(err)
}

// untilRefused writes until a write is refused.
func (f *faulty) untilRefused(bucket uint16) errs.Code {
	f.t.Helper()
	for range 5000 {
		if code := f.try(bucket); code != "" {
			return code
		}
	}
	f.t.Fatal("writes are never refused")
	return ""
}

// untilTaken waits until writes are taken again.
func (f *faulty) untilTaken(bucket uint16) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.try(bucket) == "" }, time.Minute, 5*time.Millisecond)
}

// crashed goes on with what a crash leaves, with nothing failing, whatever became of
// the worker.
func (f *faulty) crashed(percent int) {
	f.t.Helper()
	f.clear()
	old, image := f.Worker, f.Image(percent)
	f.FS = image
	f.MustOpen()
	f.Check()
	_ = old.Close(context.Background()) // it may be broken
}

func (f *faulty) checkpoint(shard int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return f.Worker.Shards()[shard].Checkpoint(ctx)
}

// inLog, inSegments, inState and ofManifest say which files an operation is on.
func inLog(op errorfs.Op) bool { return strings.Contains(op.Path, "/wal/") }

func inSegments(op errorfs.Op) bool { return strings.Contains(op.Path, "/00000/segments/") }

func inState(suffix string) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		return strings.Contains(op.Path, "/00000/state/") && strings.Contains(op.Path, suffix)
	}
}

func ofManifest(op errorfs.Op) bool { return strings.Contains(op.Path, "/00000/manifest-") }

func syncs(on func(errorfs.Op) bool) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			return on(op)
		default:
			return false
		}
	}
}

// writes are the operations that take room.
func writes(on func(errorfs.Op) bool) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFilePreallocate, errorfs.OpRename, errorfs.OpMkdirAll:
			return on(op)
		default:
			return false
		}
	}
}

// Shows that after a failed fsync of the log nothing is acknowledged any more, by any
// shard, health says so, and what was acknowledged is there after a crash (F8).
func TestLogFsyncFails(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		f := newFaulty(t)
		f.when(1, errorfs.ErrInjected, syncs(inLog))
		w := f.next(0)
		_, err := f.Shard(f.m.Table, 0).Write(context.Background(), f.m.Op(w, 0))
		require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
		require.Error(t, f.Worker.Err())
		require.Equal(t, errs.Unavailable, f.try(0))
		require.NotEqual(t, errs.Code(""), f.try(1)) // the first is told of the log, and then of the shard
		require.Equal(t, errs.Unavailable, f.try(1))
		f.clear() // the disk is well again: that does not count
		require.Equal(t, errs.Unavailable, f.try(0))
		require.Equal(t, errs.Unavailable, f.try(1))
		require.NotEmpty(t, errs.CodeOf(f.checkpoint(0)))

		old, image := f.Worker, f.Image(percent)
		f.FS = image
		f.MustOpen()
		lg, v, err := f.Shard(f.m.Table, 0).Log(f.m.BucketID(0))
		require.NoError(t, err)
		require.NotNil(t, lg)
		if int(v.End) != len(f.m.Buckets[0].Log) { // it was written after all
			f.m.Buckets[0].Write(f.m.Table, w)
		}
		f.Check()
		f.write(0)
		f.write(1)
		f.Close()
		require.Error(t, old.Err())
		_ = old.Close(context.Background()) // it is broken
	}
}

// Shows that a checkpoint whose files cannot be made durable fails and is told of, the
// log keeps everything, writes and reads go on, and nothing is lost; and that it
// succeeds again by itself where what failed can be done again (F8).
func TestCheckpointFsyncFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		on    func(errorfs.Op) bool
		again bool // succeeds when it is tried again
		dead  bool // the shard serves nothing until a restart
	}{
		{"segment", inSegments, false, false},
		{"tails", func(op errorfs.Op) bool { return strings.Contains(op.Path, "/00000/tails-") }, true, false},
		{"manifest", ofManifest, true, false},
		{"state table", inState(".sst"), true, false},
		{"state manifest", inState("MANIFEST"), false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFaulty(t)
			if c.name == "tails" { // there have to be some
				f.Close()
				f.Opts.BucketTailBytes = 0
				f.MustOpen()
				f.write(0)
			}
			f.when(1, errorfs.ErrInjected, syncs(c.on))
			f.write(0) // what was written before may be in files already
			err := f.checkpoint(0)
			require.Error(t, err)
			require.Error(t, f.Worker.Err())
			require.NoError(t, f.checkpoint(1))
			f.write(1)
			if c.dead {
				require.Error(t, f.Worker.Shards()[0].Err())
				require.NotEmpty(t, f.try(0))
				f.crashed(0)
				f.write(0)
				f.Close()
				return
			}
			f.write(0)
			f.Check()
			if c.again {
				require.Eventually(t, func() bool { return f.Worker.Err() == nil }, time.Minute, 5*time.Millisecond)
				require.NoError(t, f.checkpoint(0))
			} else {
				require.Error(t, f.checkpoint(0))
			}
			f.write(0)
			f.crashed(0)
			require.NoError(t, f.checkpoint(0))
			f.Close()
		})
	}
}

// Shows that without room for the log, writes are refused so that they can be tried
// again, and reads go on; with room, they are taken without a restart (F7).
func TestLogFull(t *testing.T) {
	f := newFaulty(t)
	f.when(-1, syscall.ENOSPC, writes(inLog))
	for range 5 {
		require.Equal(t, errs.StorageFull, f.try(0))
		require.Equal(t, errs.StorageFull, f.try(1))
	}
	require.NoError(t, f.Worker.Err())
	f.Check()
	f.clear()
	f.write(0)
	f.write(1)
	f.when(3, syscall.ENOSPC, writes(inLog))
	f.untilTaken(0)
	f.crashed(0)
	f.write(0)
	f.Close()
}

// Shows that without room for segments, for the state or for manifests, writes are
// refused when the memory for what cannot be moved to disk is full, not before; reads
// and the other shards go on; and with room, writes are taken and checkpoints succeed
// again, without a restart (F7).
func TestCheckpointFull(t *testing.T) {
	for _, c := range []struct {
		name    string
		on      func(errorfs.Op) bool
		refuses bool
	}{
		{"segments", inSegments, true},
		{"state", inState(".sst"), true},
		{"manifest", ofManifest, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFaulty(t)
			f.when(-1, syscall.ENOSPC, writes(c.on))
			f.write(0) // what was written before may be in files already
			err := f.checkpoint(0)
			require.True(t, errs.Is(err, errs.StorageFull), "%v", err)
			f.write(0)
			if c.refuses {
				require.Equal(t, errs.StorageFull, f.untilRefused(0))
				require.Equal(t, errs.StorageFull, f.try(0))
			}
			f.write(1)
			require.NoError(t, f.checkpoint(1))
			require.NoError(t, f.Worker.Err(), "a full disk is not a broken one")
			require.Error(t, f.Worker.Shards()[0].Trouble())
			f.Check()
			f.clear()
			f.untilTaken(0)
			require.Eventually(t, func() bool { return f.checkpoint(0) == nil }, time.Minute, 5*time.Millisecond)
			require.NoError(t, f.Worker.Shards()[0].Trouble())
			f.crashed(0)
			f.write(0)
			f.Close()
		})
	}
}

// Shows that a state that cannot be written any more ends its shard and nothing else:
// writes that wait are answered, it closes, and the process lives.
func TestStateDies(t *testing.T) {
	f := newFaulty(t)
	f.when(-1, syscall.ENOSPC, writes(inState("MANIFEST")))
	require.True(t, errs.Is(f.checkpoint(0), errs.StorageFull))
	require.Error(t, f.Worker.Err())
	require.Equal(t, errs.StorageFull, f.try(0))
	_, err := f.Worker.Shards()[0].Snapshot()
	require.True(t, errs.Is(err, errs.StorageFull), "%v", err)
	f.write(1)
	f.crashed(100)
	f.write(0)
	f.Close()
}
