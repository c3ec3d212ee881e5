package storagetest

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/shard"
)

// Clock is a clock that a test sets.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock begins at some time.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)} }

// Now is the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock, also back.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// World is a worker on a file system that can crash, and the model of what it holds.
type World struct {
	TB     testing.TB
	Seed   uint64
	Rng    *rand.Rand
	FS     *vfs.MemFS
	Wrap   func(vfs.FS) vfs.FS // what the worker sees of FS; nil: FS itself
	Opts   storage.Options     // without FS, Clock, Logger and Registerer
	Clock  *Clock
	Log    slog.Handler
	Worker *storage.Worker
	// Registry has the metrics of the worker opened last.
	Registry *prometheus.Registry
	Tables   []*Modelled

	images atomic.Uint64 // taken so far; each draws its own numbers
}

// Modelled is a table and the model of its buckets.
type Modelled struct {
	*Table
	Buckets []*Bucket
	Sealed  bool // the partition takes no more writes
}

// Write does what a write to a bucket does, and says what it must be answered with.
func (m *Modelled) Write(w *Write) Outcome {
	b := m.Buckets[w.Bucket]
	if m.Sealed {
		return b.refuse(w, errs.PartitionExpired)
	}
	return b.Write(m.Table, w)
}

// Dir is the data directory.
const Dir = "data"

// NewWorld makes a world with random settings; MustOpen opens it.
func NewWorld(tb testing.TB, seed uint64) *World {
	w := &World{
		TB: tb, Seed: seed, Rng: rand.New(rand.NewPCG(seed, 1)), FS: vfs.NewCrashableMem(), Clock: NewClock(), Log: slog.DiscardHandler,
		Opts: storage.Options{Dir: Dir, Cluster: [16]byte{7}, CacheBytes: 8 << 20},
	}
	w.Opts.Shards = 1 + w.Rng.IntN(3)
	pick := func(p *int64, of ...int64) { *p = of[w.Rng.IntN(len(of))] }
	pick(&w.Opts.CheckpointBytes, 0, 4<<10, 64<<10, 1<<20)
	pick(&w.Opts.SealBytes, 0, 2<<10, 64<<10)
	pick(&w.Opts.TailBytes, 0, 4<<10, 64<<10)
	pick(&w.Opts.BucketTailBytes, 0, 1<<10, 32<<10)
	pick(&w.Opts.QueueBytes, 0, 16<<10)
	pick(&w.Opts.WALFileBytes, 0, 8<<10, 128<<10)
	var mem int64
	pick(&mem, 0, 256<<10, 1<<20)
	w.Opts.MemTableBytes = uint64(mem)
	w.Opts.Codec = []segment.Codec{segment.LZ4, segment.ZSTD, segment.None}[w.Rng.IntN(3)]
	return w
}

// TryOpen opens a worker on the file system.
func (w *World) TryOpen() (*storage.Worker, error) {
	o := w.Opts
	w.Registry = prometheus.NewRegistry()
	o.FS, o.Clock, o.Logger, o.Registerer = vfs.FS(w.FS), w.Clock, slog.New(w.Log), w.Registry
	if w.Wrap != nil {
		o.FS = w.Wrap(w.FS)
	}
	return storage.Open(context.Background(), o)
}

// MustOpen opens a worker all of whose shards are sound.
func (w *World) MustOpen() {
	w.TB.Helper()
	var err error
	w.Worker, err = w.TryOpen()
	require.NoError(w.TB, err)
	require.NoError(w.TB, w.Worker.Err())
}

// Close closes the worker.
func (w *World) Close() {
	w.TB.Helper()
	require.NoError(w.TB, w.Worker.Close(context.Background()))
}

// Image is the file system as a crash at this moment leaves it, with about that
// part of what was not synced: 100 is what a killed process leaves. It may be called
// from any goroutine.
func (w *World) Image(percentUnsynced int) *vfs.MemFS {
	rng := rand.New(rand.NewPCG(w.Seed, w.images.Add(1)))
	before := names(w.TB, w.FS)
	image := w.FS.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percentUnsynced, RNG: rng})
	after := names(w.TB, w.FS)
	// The clone has what was removed and not synced, always. That is one way to lose
	// power, and no way to be killed.
	for _, name := range slices.Sorted(maps.Keys(names(w.TB, image))) {
		if !before[name] && !after[name] && rng.IntN(100) < percentUnsynced {
			require.NoError(w.TB, image.RemoveAll(name))
		}
	}
	syncDirs(w.TB, image)
	return image
}

// names are all files and directories.
func names(tb testing.TB, fs *vfs.MemFS) map[string]bool {
	out := map[string]bool{}
	var walk func(dir string)
	walk = func(dir string) {
		list, err := fs.List(dir)
		if oserror.IsNotExist(err) {
			return // removed meanwhile
		}
		require.NoError(tb, err)
		for _, n := range list {
			p := fs.PathJoin(dir, n)
			out[p] = true
			if st, err := fs.Stat(p); err == nil && st.IsDir() {
				walk(p)
			}
		}
	}
	walk("/")
	return out
}

// syncDirs makes all directories durable.
func syncDirs(tb testing.TB, fs *vfs.MemFS) {
	for p := range names(tb, fs) {
		if st, err := fs.Stat(p); err == nil && st.IsDir() {
			d, err := fs.OpenDir(p)
			require.NoError(tb, err)
			require.NoError(tb, d.Sync())
			require.NoError(tb, d.Close())
		}
	}
}

// Crash goes on with what a crash at this moment leaves.
func (w *World) Crash(percentUnsynced int) {
	w.TB.Helper()
	image := w.Image(percentUnsynced)
	w.Close()
	w.FS = image
	w.MustOpen()
}

// Add adds a table to the model.
func (w *World) Add(t *Table) *Modelled {
	m := &Modelled{Table: t}
	for range t.Buckets {
		m.Buckets = append(m.Buckets, NewBucket())
	}
	w.Tables = append(w.Tables, m)
	return m
}

// Shard is the shard of a bucket.
func (w *World) Shard(t *Table, bucket uint16) *shard.Shard {
	return w.Worker.Shards()[t.Shards[bucket]]
}

// ReadLog reads all records of a bucket and their times, checking that offsets
// are dense.
func (w *World) ReadLog(t *Table, bucket uint16) (log []Change, micros []int64) {
	w.TB.Helper()
	log, micros, err := ReadLog(w.Shard(t, bucket), t, bucket)
	require.NoError(w.TB, err)
	return log, micros
}

// ReadLog reads all records of a bucket that readers see, and their times.
func ReadLog(sh *shard.Shard, t *Table, bucket uint16) (log []Change, micros []int64, err error) {
	lg, v, err := sh.Log(t.BucketID(bucket))
	if err != nil || lg == nil {
		return nil, nil, err
	}
	return ReadView(lg, v, v.Start, t)
}

// ReadView reads the records of a view from an offset on, and their times.
func ReadView(lg *bucket.Log, v *bucket.View, from millrace.Offset, t *Table) (log []Change, micros []int64, err error) {
	schemas := func(millrace.SchemaID) *millrace.Schema { return t.Schema }
	for off := from; off < v.End; {
		b, err := lg.At(v, off)
		if err != nil {
			return nil, nil, err
		}
		skip := int(off - b.Header.Base)
		if skip < 0 || skip > 0 && off != from {
			return nil, nil, errors.Join(errors.New("offsets are not dense"), b.Release())
		}
		rec, err := b.Payload.Record(memory.DefaultAllocator, schemas, t.Schema.Columns)
		if err != nil {
			return nil, nil, errors.Join(err, b.Release())
		}
		changes, err := b.Payload.Changes()
		if err != nil {
			return nil, nil, errors.Join(err, b.Release())
		}
		for i, r := range Rows(rec) {
			if i < skip {
				continue
			}
			c := Change{Row: r}
			if changes != nil {
				c.Type = changes[i]
			}
			log = append(log, c)
			micros = append(micros, b.Header.TimeAt(i))
		}
		rec.Release()
		off = b.Header.End()
		if err := b.Release(); err != nil {
			return nil, nil, err
		}
	}
	return log, micros, nil
}

// ReadState reads the rows of a bucket as of a snapshot, by Key, checking their order.
func (w *World) ReadState(sn *shard.Snapshot, t *Table, bucket uint16) map[string]Row {
	w.TB.Helper()
	state, err := ReadState(sn, t, bucket)
	require.NoError(w.TB, err)
	return state
}

// ReadState reads the rows of a bucket as of a snapshot, by Key.
func ReadState(sn *shard.Snapshot, t *Table, bucket uint16) (map[string]Row, error) {
	it, err := sn.Rows(context.Background(), t.BucketID(bucket), nil, nil)
	if err != nil {
		return nil, err
	}
	rd := row.NewReader(memory.DefaultAllocator, func(millrace.SchemaID) *millrace.Schema { return t.Schema }, t.Schema.Columns)
	var keys [][]byte
	for it.Next() {
		keys = append(keys, append([]byte(nil), it.Key()...))
		if err := rd.Append(it.Row()); err != nil {
			return nil, errors.Join(err, it.Close())
		}
	}
	if err := it.Close(); err != nil {
		return nil, err
	}
	rec := rd.Record()
	defer rec.Release()
	state := map[string]Row{}
	for i, r := range Rows(rec) {
		if string(keys[i]) != string(t.StateKey(r)) || i > 0 && string(keys[i-1]) >= string(keys[i]) {
			return nil, errors.New("a row lies under another key, or keys are not in order")
		}
		state[t.Key(r)] = r
	}
	return state, nil
}

// Check compares everything that the worker holds with the model.
func (w *World) Check() {
	w.TB.Helper()
	for _, m := range w.Tables {
		for b := range m.Buckets {
			w.CheckBucket(m, uint16(b))
		}
	}
}

// CheckBucket compares the log, the state and the counters of a bucket with the model.
func (w *World) CheckBucket(m *Modelled, bucket uint16) {
	w.TB.Helper()
	want := m.Buckets[bucket]
	lg, v, err := w.Shard(m.Table, bucket).Log(m.BucketID(bucket))
	require.NoError(w.TB, err)
	var log []Change
	var micros []int64
	kept := millrace.Offset(0)
	if lg != nil {
		kept = v.Kept
		log, micros, err = ReadView(lg, v, kept, m.Table)
		require.NoError(w.TB, err)
	}
	require.LessOrEqual(w.TB, int(kept), len(want.Log))
	require.Empty(w.TB, DiffLogs(want.Log[kept:], log), "log of bucket %s from offset %d", m.BucketID(bucket), kept)
	for i := range micros {
		require.True(w.TB, i == 0 || micros[i-1] <= micros[i], "times of bucket %s go back at offset %d", m.BucketID(bucket), i)
	}
	sn, err := w.Shard(m.Table, bucket).Snapshot()
	require.NoError(w.TB, err)
	defer sn.Release()
	meta, err := sn.Meta(m.BucketID(bucket))
	require.NoError(w.TB, err)
	require.EqualValues(w.TB, len(want.Log), meta.Next)
	require.EqualValues(w.TB, len(want.State), meta.Rows, "row counter of bucket %s", m.BucketID(bucket))
	if m.Keyed {
		require.Empty(w.TB, DiffStates(want.State, w.ReadState(sn, m.Table, bucket)), "state of bucket %s", m.BucketID(bucket))
		require.Empty(w.TB, DiffStates(want.State, Fold(m.Table, append(want.Log[:kept:kept], log...))), "what the log of bucket %s makes", m.BucketID(bucket))
	}
}
