package kv_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/kv"
)

var (
	one = millrace.BucketID{Table: 1, Partition: 2, Bucket: 3}
	two = millrace.BucketID{Table: 1, Partition: 3, Bucket: 3}
)

func open(t testing.TB, fs vfs.FS, onDeath func(error)) *kv.Store {
	t.Helper()
	cache := pebble.NewCache(1 << 20)
	t.Cleanup(cache.Unref)
	s, err := kv.Open(kv.Options{FS: fs, Dir: "state", Cache: cache, MemTableBytes: 256 << 10, Logger: slog.New(slog.DiscardHandler), OnDeath: onDeath})
	require.NoError(t, err)
	return s
}

func openCached(t testing.TB, fs vfs.FS, rowCacheBytes int64) *kv.Store {
	t.Helper()
	cache := pebble.NewCache(1 << 20)
	t.Cleanup(cache.Unref)
	s, err := kv.Open(kv.Options{FS: fs, Dir: "state", Cache: cache, RowCacheBytes: rowCacheBytes, MemTableBytes: 256 << 10, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return s
}

func put(t testing.TB, s *kv.Store, lsn millrace.LSN, b millrace.BucketID, rows ...string) {
	t.Helper()
	batch := s.NewBatch()
	for _, r := range rows {
		key, row, _ := strings.Cut(r, "=")
		require.NoError(t, batch.PutRow(string(kv.AppendRowKey(nil, b, []byte(key))), []byte(row)))
	}
	require.NoError(t, batch.SetMeta(b, kv.Meta{Next: millrace.Offset(lsn), TimeMicros: 7, Rows: int64(len(rows))}))
	require.NoError(t, batch.Commit(lsn))
}

func rowAt(s *kv.Store, b millrace.BucketID, key []byte) ([]byte, error) {
	out := make([][]byte, 1)
	err := s.Rows([][]byte{kv.AppendRowKey(nil, b, key)}, out)
	return out[0], err
}

func rowsOf(t testing.TB, sn *kv.Snapshot, b millrace.BucketID, prefix, after string) []string {
	t.Helper()
	var a []byte
	if after != "" {
		a = []byte(after)
	}
	it, err := sn.Rows(context.Background(), b, []byte(prefix), a)
	require.NoError(t, err)
	var out []string
	for it.Next() {
		out = append(out, string(it.Key())+"="+string(it.Row()))
	}
	require.NoError(t, it.Close())
	return out
}

// Shows that a snapshot holds the rows and metas of one instant, walked by prefix and
// from a key on, without those of other buckets; and that dropping a bucket takes all
// of it and nothing else.
func TestSnapshots(t *testing.T) {
	s := open(t, vfs.NewMem(), nil)
	put(t, s, 1, one, "a=1", "aa=2", "ab=3", "b=4", "\xff=5", "\xff\xff=6")
	put(t, s, 2, two, "a=other")
	sn := s.NewSnapshot()
	put(t, s, 3, one, "aa=changed", "c=new")
	batch := s.NewBatch()
	require.NoError(t, batch.SetWriter(one, "w", &kv.Writer{Epoch: 1, Taken: []kv.Taken{{Seq: 1}}}))
	require.NoError(t, batch.DropBuckets(one.Table, one.Partition))
	require.NoError(t, batch.Commit(4))

	all := []string{"a=1", "aa=2", "ab=3", "b=4", "\xff=5", "\xff\xff=6"}
	require.Equal(t, all, rowsOf(t, sn, one, "", ""))
	require.Equal(t, all[:3], rowsOf(t, sn, one, "a", ""))
	require.Equal(t, all[2:3], rowsOf(t, sn, one, "a", "aa"))
	require.Equal(t, all[1:], rowsOf(t, sn, one, "", "a"))
	require.Equal(t, all[4:], rowsOf(t, sn, one, "\xff", ""))
	require.Empty(t, rowsOf(t, sn, one, "", "\xff\xff"))
	m, err := sn.Meta(one)
	require.NoError(t, err)
	require.Equal(t, kv.Meta{Next: 1, TimeMicros: 7, Rows: 6}, m)
	require.NoError(t, sn.Close())

	sn = s.NewSnapshot()
	require.Empty(t, rowsOf(t, sn, one, "", ""))
	require.Equal(t, []string{"a=other"}, rowsOf(t, sn, two, "", ""))
	m, err = sn.Meta(one)
	require.NoError(t, err)
	require.Zero(t, m)
	require.NoError(t, sn.Close())
	w, err := s.Writer(one, "w")
	require.NoError(t, err)
	require.Nil(t, w)
	lsn, err := s.Applied()
	require.NoError(t, err)
	require.EqualValues(t, 4, lsn)
	require.NoError(t, s.Close())
}

// Shows that after a crash the store stands at the end of some record, with all that
// the record changed, and at the last one when it was flushed (K1).
func TestCrash(t *testing.T) {
	for _, flush := range []bool{false, true} {
		fs := vfs.NewCrashableMem()
		s := open(t, fs, nil)
		pad := strings.Repeat("x", 4000)
		for i := range 400 {
			put(t, s, millrace.LSN(i+1), one, fmt.Sprintf("k=%d", i), fmt.Sprintf("k%d=%s", i, pad))
			put(t, s, millrace.LSN(i+1), two, fmt.Sprintf("k=%d", i))
		}
		if flush {
			require.NoError(t, s.Flush(context.Background()))
			require.NoError(t, s.Flush(context.Background())) // there is nothing to do
		}
		image := fs.CrashClone(vfs.CrashCloneCfg{})
		require.NoError(t, s.Close())
		s = open(t, image, nil)
		lsn, err := s.Applied()
		require.NoError(t, err)
		if flush {
			require.EqualValues(t, 400, lsn)
		}
		m, err := s.Meta(one)
		require.NoError(t, err)
		require.EqualValues(t, lsn, m.Next)
		row, err := rowAt(s, one, []byte("k"))
		require.NoError(t, err)
		if lsn > 0 {
			require.Equal(t, fmt.Sprint(lsn-1), string(row))
		}
		require.NoError(t, s.Close())
	}
}

// Shows that idle writers are forgotten, so many at a time, and others are not.
func TestForgetIdle(t *testing.T) {
	s := open(t, vfs.NewMem(), nil)
	batch := s.NewBatch()
	for i := range 10 {
		for _, b := range []millrace.BucketID{one, two} {
			require.NoError(t, batch.SetWriter(b, fmt.Sprint("w", i), &kv.Writer{SeenMicros: int64(i), Taken: []kv.Taken{{Seq: 1, Start: 2, End: 3}}}))
		}
	}
	require.NoError(t, batch.Commit(1))
	after, steps, removed := "", 0, 0
	for {
		batch := s.NewBatch()
		looked, n, next, err := batch.ForgetIdle(context.Background(), one, after, 4, func(scope string, seen int64) bool { return seen < 7 && scope != "w2" })
		require.NoError(t, err)
		require.LessOrEqual(t, looked, 4)
		require.NoError(t, batch.Commit(1))
		removed += n
		steps++
		if after = next; next == "" {
			break
		}
	}
	require.Equal(t, 6, removed)
	require.Equal(t, 3, steps)
	for i := range 10 {
		w, err := s.Writer(one, fmt.Sprint("w", i))
		require.NoError(t, err)
		require.Equal(t, i >= 7 || i == 2, w != nil, "w%d", i)
		w, err = s.Writer(two, fmt.Sprint("w", i))
		require.NoError(t, err)
		require.Equal(t, &kv.Writer{SeenMicros: int64(i), Taken: []kv.Taken{{Seq: 1, Start: 2, End: 3}}}, w)
	}
	require.NoError(t, s.Close())
}

// faulty is a file system on which what fail names fails.
func faulty(fs vfs.FS, fail *atomic.Pointer[func(errorfs.Op) error]) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if f := fail.Load(); f != nil {
			return (*f)(op)
		}
		return nil
	}))
}

// Shows that a flush fails while the disk is full, instead of waiting, that a store
// says so when its memory is full, before a commit would wait, and that all is well
// when there is room again (K4).
func TestFull(t *testing.T) {
	var fail atomic.Pointer[func(errorfs.Op) error]
	s := open(t, faulty(vfs.NewMem(), &fail), nil)
	full := func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") {
			return syscall.ENOSPC
		}
		return nil
	}
	put(t, s, 1, one, "a=1")
	fail.Store(&full)
	for range 3 {
		err := s.Flush(context.Background())
		require.True(t, errs.Is(err, errs.StorageFull), "%v", err)
		require.True(t, errs.Is(s.Err(), errs.StorageFull), "%v", s.Err())
	}
	pad := strings.Repeat("x", 100_000)
	var refused error
	for i := 2; refused == nil; i++ {
		var room bool
		if room, refused = s.Room(); room {
			put(t, s, millrace.LSN(i), one, fmt.Sprintf("%d=%s", i, pad))
		}
		require.Less(t, i, 2000)
	}
	require.True(t, errs.Is(refused, errs.StorageFull), "%v", refused)
	row, err := rowAt(s, one, []byte("a"))
	require.NoError(t, err)
	require.Equal(t, "1", string(row))
	fail.Store(nil)
	require.Eventually(t, func() bool { return s.Flush(context.Background()) == nil }, time.Minute, time.Millisecond)
	require.NoError(t, s.Err())
	room, err := s.Room()
	require.NoError(t, err)
	require.True(t, room)
	require.NoError(t, s.Close())
}

// Shows that what is fatal to Pebble makes the store dead and nothing else: it tells
// once, writes nothing more, what waits is answered, reads go on, and what is on disk
// opens (K3).
func TestDeath(t *testing.T) {
	for _, what := range []string{"MANIFEST", ""} { // "": the directory
		mem := vfs.NewCrashableMem()
		var fail atomic.Pointer[func(errorfs.Op) error]
		var written atomic.Int64
		var dead atomic.Bool
		told := make(chan error, 2)
		fs := errorfs.Wrap(faulty(mem, &fail), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if dead.Load() && op.Kind == errorfs.OpFileWrite {
				written.Add(1)
			}
			return nil
		}))
		s := open(t, fs, func(err error) { told <- err })
		put(t, s, 1, one, "a=1")
		require.NoError(t, s.Flush(context.Background()))
		put(t, s, 2, one, "a=2")
		broken := func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync && (what != "" && strings.Contains(op.Path, what) || what == "" && op.Path == "state") {
				return errorfs.ErrInjected
			}
			return nil
		}
		fail.Store(&broken)
		err := s.Flush(context.Background())
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		require.ErrorIs(t, <-told, errorfs.ErrInjected)
		<-s.Dead()
		dead.Store(true)
		fail.Store(nil)
		require.Error(t, s.Err())
		require.Error(t, s.Flush(context.Background()))
		row, err := rowAt(s, one, []byte("a"))
		require.NoError(t, err)
		require.Equal(t, "2", string(row))
		require.Error(t, s.Close())
		require.Zero(t, written.Load(), "a dead store writes")
		require.Empty(t, told)
		for _, percent := range []int{0, 100} {
			cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: percent}
			if percent > 0 {
				cfg.RNG = newRand()
			}
			again := open(t, mem.CrashClone(cfg), nil)
			lsn, err := again.Applied()
			require.NoError(t, err)
			require.GreaterOrEqual(t, lsn, millrace.LSN(1))
			require.NoError(t, again.Close())
		}
	}
}

// Shows that a store which died of a full disk, or was not opened since it is full,
// opens in the same process when there is room again (K3).
func TestOpenAfterDeath(t *testing.T) {
	dir := t.TempDir()
	var fail atomic.Pointer[func(errorfs.Op) error]
	fs := faulty(vfs.Default, &fail)
	at := func() (*kv.Store, error) {
		return kv.Open(kv.Options{FS: fs, Dir: dir, MemTableBytes: 256 << 10, Logger: slog.New(slog.DiscardHandler)})
	}
	s, err := at()
	require.NoError(t, err)
	put(t, s, 1, one, "a=1")
	require.NoError(t, s.Flush(t.Context()))
	put(t, s, 2, one, "a=2")
	for _, part := range []string{"MANIFEST", ""} { // "": all
		full := func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, part) {
				return syscall.ENOSPC
			}
			return nil
		}
		fail.Store(&full)
		if part != "" {
			require.True(t, errs.Is(s.Flush(t.Context()), errs.StorageFull))
			require.Error(t, s.Close())
		}
		for range 3 {
			_, err = at()
			require.True(t, errs.Is(err, errs.StorageFull), "%v", err)
		}
	}
	fail.Store(nil)
	s, err = at()
	require.NoError(t, err)
	row, err := rowAt(s, one, []byte("a"))
	require.NoError(t, err)
	require.Equal(t, "1", string(row))
	put(t, s, 2, one, "a=2")
	require.NoError(t, s.Flush(t.Context()))
	require.NoError(t, s.Close())
}

// Shows that a store that cannot be made is an error, whatever fails at whichever
// step, and that the next try succeeds.
func TestOpenFails(t *testing.T) {
	for k := int64(0); ; k++ {
		mem := vfs.NewCrashableMem()
		var n atomic.Int64
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			if n.Add(1)-1 == k {
				return errorfs.ErrInjected
			}
			return nil
		}))
		cache := pebble.NewCache(1 << 20)
		s, err := kv.Open(kv.Options{FS: fs, Dir: "state", Cache: cache, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			require.True(t, errors.Is(err, errorfs.ErrInjected), "%d: %v", k, err)
		}
		again := open(t, mem.CrashClone(vfs.CrashCloneCfg{}), nil)
		require.NoError(t, again.Close())
		cache.Unref()
		if n.Load() <= k {
			require.NoError(t, err)
			return
		}
	}
}

// Shows that dropping a partition, or a table, takes every bucket of it, and none of
// its neighbours.
func TestDropBuckets(t *testing.T) {
	s := open(t, vfs.NewMem(), nil)
	var ids []millrace.BucketID
	for _, table := range []millrace.TableID{1, 2, 3, 1 << 31} {
		for _, p := range []millrace.PartitionID{1, 255, 256, 1<<32 - 1} {
			for _, b := range []uint16{0, 1, 1<<16 - 1} {
				ids = append(ids, millrace.BucketID{Table: table, Partition: p, Bucket: b})
			}
		}
	}
	for i, id := range ids {
		put(t, s, millrace.LSN(i+1), id, "\x00=1", "\xff=2")
	}
	left := func() (out []millrace.BucketID) {
		sn := s.NewSnapshot()
		for _, id := range ids {
			if len(rowsOf(t, sn, id, "", "")) > 0 {
				out = append(out, id)
			}
		}
		require.NoError(t, sn.Close())
		return out
	}
	without := func(in []millrace.BucketID, table millrace.TableID, p millrace.PartitionID) []millrace.BucketID {
		return slices.DeleteFunc(slices.Clone(in), func(id millrace.BucketID) bool { return id.Table == table && (p == 0 || id.Partition == p) })
	}
	want := ids
	for i, d := range []millrace.BucketID{{Table: 1, Partition: 255}, {Table: 2, Partition: 1<<32 - 1}, {Table: 2}} {
		batch := s.NewBatch()
		require.NoError(t, batch.DropBuckets(d.Table, d.Partition))
		require.NoError(t, batch.Commit(millrace.LSN(100+i)))
		want = without(want, d.Table, d.Partition)
		require.Equal(t, want, left())
	}
	require.NoError(t, s.Close())
}
