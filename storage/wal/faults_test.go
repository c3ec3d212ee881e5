package wal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// fate is what an append was told.
type fate int

const (
	open    fate = iota // not answered, or errs.UnknownOutcome
	acked               // durable
	refused             // an error that says that it was not written
)

// sent is an entry that was handed to Append.
type sent struct {
	id   uint64
	size int
	fate fate
	lsn  millrace.LSN // of the append, when it was acknowledged
}

func (s *sent) entry() wal.Entry {
	b := waltest.Pattern(s.id, s.size)
	binary.LittleEndian.PutUint64(b, s.id)
	return wal.Entry{Kind: wal.Data, Data: b}
}

// ledger is what is known from outside about the log of a few shards.
type ledger struct {
	mu     sync.Mutex
	nextID uint64
	sent   [][]sent // by shard, in order
	purged []millrace.LSN
}

func newLedger(shards int) *ledger {
	return &ledger{sent: make([][]sent, shards), purged: make([]millrace.LSN, shards)}
}

func (l *ledger) clone() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &ledger{nextID: l.nextID, purged: slices.Clone(l.purged)}
	for _, s := range l.sent {
		c.sent = append(c.sent, slices.Clone(s))
	}
	return c
}

// append appends entries of the given sizes to a shard and notes what came of it.
func (l *ledger) append(log wal.Log, shard int, sizes ...int) error {
	l.mu.Lock()
	from := len(l.sent[shard])
	var es []wal.Entry
	for _, n := range sizes {
		l.nextID++
		l.sent[shard] = append(l.sent[shard], sent{id: l.nextID, size: n + 8})
		es = append(es, l.sent[shard][len(l.sent[shard])-1].entry())
	}
	l.mu.Unlock()
	lsn, err := log.Append(context.Background(), es)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.sent[shard][from:] {
		s := &l.sent[shard][from+i]
		switch {
		case err == nil:
			s.fate, s.lsn = acked, lsn
		case !errs.Is(err, errs.UnknownOutcome):
			s.fate = refused
		}
	}
	return err
}

func (l *ledger) purge(log wal.Log, shard int) error {
	upTo := log.Tail().LSN
	l.mu.Lock()
	l.purged[shard] = upTo
	l.mu.Unlock()
	return log.Purge(context.Background(), upTo)
}

// check replays a shard behind its purge point. What was acknowledged is there once, in
// order; what was refused is not; what was left open may be, whole. It returns what is there.
func (l *ledger) check(t testing.TB, log wal.Log, shard int) []waltest.Got {
	t.Helper()
	got, err := waltest.ReadAll(log, l.purged[shard])
	require.NoError(t, err)
	rest := got
	for _, s := range l.sent[shard] {
		there := len(rest) > 0 && binary.LittleEndian.Uint64(rest[0].Entry.Data) == s.id
		switch {
		case there:
			require.NotEqual(t, refused, s.fate, "shard %d: entry %d was refused and is there", shard, s.id)
			require.Equal(t, s.entry().Data, rest[0].Entry.Data, "shard %d: entry %d is torn", shard, s.id)
			rest = rest[1:]
		case s.fate == acked && s.lsn > l.purged[shard]:
			t.Fatalf("shard %d: entry %d, acknowledged as LSN %d, is lost (purged up to %d, %d entries read)", shard, s.id, s.lsn, l.purged[shard], len(got))
		}
	}
	require.Empty(t, rest, "shard %d: entries doubled, out of order, or of nobody", shard)
	return got
}

// verify opens what a crash left and checks all shards; appends to them; and cuts the
// power again right away, losing everything that is not synced: what had been read,
// and so may have been acted on, is still there.
func (l *ledger) verify(t testing.TB, fs *vfs.MemFS, opts wal.Options) {
	t.Helper()
	f := mustOpen(t, fs, dir, opts)
	var got [][]waltest.Got
	for s := range l.sent {
		got = append(got, l.check(t, mustShard(t, f, millrace.ShardID(s)), s))
	}
	again := fs.CrashClone(vfs.CrashCloneCfg{})
	for s := range l.sent {
		require.NoError(t, l.append(mustShard(t, f, millrace.ShardID(s)), s, 10))
		l.check(t, mustShard(t, f, millrace.ShardID(s)), s)
	}
	require.NoError(t, f.Close())

	f = mustOpen(t, again, dir, opts)
	for s := range l.sent {
		now, err := waltest.ReadAll(mustShard(t, f, millrace.ShardID(s)), l.purged[s])
		require.NoError(t, err)
		require.True(t, same(got[s], now), "shard %d: what was read after a crash is lost by the next", s)
	}
	require.NoError(t, f.Close())
}

func crash(fs *vfs.MemFS, percent int, seed uint64) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 1))})
}

func sweepOptions() wal.Options {
	opts := options(3)
	opts.RotateBytes = 12_000
	return opts
}

// workload appends to three shards, rotates, purges, and starts again in between. It
// goes on after errors, as a server would.
func workload(fs vfs.FS, l *ledger) {
	rng := rand.New(rand.NewPCG(11, 11))
	for range 3 {
		f, err := wal.OpenFiles(fs, dir, sweepOptions())
		if err != nil {
			continue
		}
		for i := range 14 {
			s := rng.IntN(3)
			log, err := f.Shard(millrace.ShardID(s))
			if err != nil {
				panic(err)
			}
			_ = l.append(log, s, rng.IntN(2500), rng.IntN(200))
			if i == 9 {
				_ = l.purge(log, s)
			}
		}
		_ = f.Close()
	}
}

// largeWorkload appends an entry in fragments between others.
func largeWorkload(fs vfs.FS, l *ledger) {
	for range 2 {
		f, err := wal.OpenFiles(fs, dir, options(3))
		if err != nil {
			continue
		}
		for s := range 3 {
			log, err := f.Shard(millrace.ShardID(s))
			if err != nil {
				panic(err)
			}
			_ = l.append(log, s, 10)
			if s == 1 {
				_ = l.append(log, s, 100, wal.MaxRecordBytes+10, 50)
			}
		}
		_ = f.Close()
	}
}

// F4: each file operation of a workload fails once, in turn, with an I/O error and
// with a full disk; then the power is cut with none, half or all of what was not
// synced kept. The log opens, what was acknowledged is there once and in order,
// nothing torn or refused is seen.
func TestFailEachOperation(t *testing.T) {
	t.Parallel()
	all, some := []int{0, 50, 50, 100}, []int{0, 50}
	for _, c := range []struct {
		name     string
		cause    error
		run      func(vfs.FS, *ledger)
		percents []int
		least    int // operations
	}{
		{"IO", errorfs.ErrInjected, workload, all, 150},
		{"Full", syscall.ENOSPC, workload, all, 100},
		{"LargeIO", errorfs.ErrInjected, largeWorkload, some, 30},
		{"LargeFull", syscall.ENOSPC, largeWorkload, some, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k := 0; ; k++ {
				mem := vfs.NewCrashableMem()
				var n int
				hit := false
				inject := func(op errorfs.Op) error {
					if !errors.Is(c.cause, errorfs.ErrInjected) && op.Kind.ReadOrWrite() == errorfs.OpIsRead {
						return nil
					}
					if n++; n-1 == k {
						hit = true
						return c.cause
					}
					return nil
				}
				l := newLedger(3)
				c.run(errorfs.Wrap(mem, errorfs.InjectorFunc(inject)), l)
				for i, percent := range c.percents {
					l.clone().verify(t, crash(mem, percent, uint64(k*7+i)), sweepOptions())
				}
				if !hit {
					require.Greater(t, k, c.least, "the workload does too little")
					return
				}
			}
		})
	}
}

// F4: the power is cut before each file operation of a workload, with none, half or
// all of what was not synced kept.
func TestCutPowerAtEachOperation(t *testing.T) {
	t.Parallel()
	type cut struct {
		left *vfs.MemFS
		then *ledger
	}
	for _, run := range []func(vfs.FS, *ledger){workload, largeWorkload} {
		mem := vfs.NewCrashableMem()
		l := newLedger(3)
		cuts := make(chan cut) // checked here: a test may end in its own goroutine only
		n := 0
		inject := func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return nil
			}
			n++
			for _, percent := range []int{0, 50, 100} {
				select {
				case cuts <- cut{crash(mem, percent, uint64(n)), l.clone()}:
				case <-t.Context().Done():
				}
			}
			return nil
		}
		go func() {
			defer close(cuts)
			run(errorfs.Wrap(mem, errorfs.InjectorFunc(inject)), l)
		}()
		for c := range cuts {
			c.then.verify(t, c.left, sweepOptions())
		}
		require.Greater(t, n, 20)
	}
}

// The same when groups hold appends of many shards: the power is cut at random
// operations while eight shards append at the same time.
func TestCutPowerUnderLoad(t *testing.T) {
	t.Parallel()
	const shards = 8
	opts := options(shards)
	opts.RotateBytes = 100_000
	for seed := range uint64(60) {
		mem := vfs.NewCrashableMem()
		l := newLedger(shards)
		rng := rand.New(rand.NewPCG(seed, 2))
		at, n := 4+rng.IntN(60), 0
		var left *vfs.MemFS
		var then *ledger
		inject := func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return nil
			}
			if n++; n == at {
				then = l.clone()
				left = crash(mem, []int{0, 20, 50, 80, 100}[seed%5], seed)
			}
			return nil
		}
		f := mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(inject)), dir, opts)
		var wg sync.WaitGroup
		for s := range shards {
			log := mustShard(t, f, millrace.ShardID(s))
			wg.Go(func() {
				for i := range 20 {
					_ = l.append(log, s, 100+s*300+i, 4000, 3)
				}
			})
		}
		wg.Wait()
		require.NoError(t, f.Close())
		require.NotNil(t, left)
		then.verify(t, left, opts)
	}
}

// F8: when an fsync fails, the append is not acknowledged, every later one is refused,
// Err and the metric say so; reading goes on; after a start everything acknowledged is
// there.
func TestFsyncFails(t *testing.T) {
	mem := vfs.NewCrashableMem()
	var fail errorfs.Toggle
	fail.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData {
			return errorfs.ErrInjected
		}
		return nil
	})
	reg := prometheus.NewRegistry()
	opts := options(2)
	opts.Registerer = reg
	f := mustOpen(t, errorfs.Wrap(mem, &fail), dir, opts)
	l := newLedger(2)
	for i := range 10 {
		require.NoError(t, l.append(mustShard(t, f, millrace.ShardID(i%2)), i%2, 500))
	}
	require.NoError(t, f.Err())
	tail := mustShard(t, f, 0).Tail()
	fail.On()
	require.Equal(t, errs.UnknownOutcome, errs.CodeOf(l.append(mustShard(t, f, 0), 0, 500)))
	fail.Off()
	require.ErrorContains(t, f.Err(), "fsync")
	require.EqualValues(t, 1, counter(t, reg, "millrace_wal_failed"))
	for s := range 2 {
		require.Equal(t, errs.Unavailable, errs.CodeOf(l.append(mustShard(t, f, millrace.ShardID(s)), s, 500)))
		l.check(t, mustShard(t, f, millrace.ShardID(s)), s)
	}
	require.Equal(t, tail, mustShard(t, f, 0).Tail())
	require.NoError(t, f.Close())
	for _, percent := range []int{0, 50, 100} {
		l.clone().verify(t, crash(mem, percent, 1), options(2))
	}
}

// quotaFS has room for so many bytes; a write that does not fit is done in part. With
// cow, overwriting takes room too.
type quotaFS struct {
	vfs.FS
	mu    sync.Mutex
	room  int
	files map[string]int
	cow   bool
}

type quotaFile struct {
	vfs.File
	fs   *quotaFS
	name string
}

func (q *quotaFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := q.FS.Create(name, c)
	return &quotaFile{f, q, name}, err
}

func (q *quotaFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := q.FS.OpenReadWrite(name, c, o...)
	return &quotaFile{f, q, name}, err
}

func (q *quotaFS) Remove(name string) error {
	q.give(q.files[name])
	return q.FS.Remove(name)
}

func (q *quotaFS) give(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room += n
}

func (q *quotaFS) take(n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, q.room)
	q.room -= n
	return n
}

func (f *quotaFile) Write(p []byte) (int, error) {
	n := f.fs.take(len(p))
	f.fs.files[f.name] += n
	if n > 0 {
		if _, err := f.File.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	if n < len(p) {
		return n, fmt.Errorf("write %s: %w", f.name, syscall.ENOSPC)
	}
	return n, nil
}

func (f *quotaFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.cow {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, off)
}

// F7: when the disk is full, appends are refused with errs.StorageFull and reads go
// on; a power cut shows nothing of what was refused, although whole records of it had
// reached the file; when there is room again, appends go on without a restart. For
// every number of bytes that were missing.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	// Three records: two may have been written whole.
	big := []int{wal.MaxRecordBytes - 1000, wal.MaxRecordBytes - 1000, 100_000}
	need := 0
	for _, n := range big {
		need += 40 + 80 + 8 + 8 + n // frame, record header, entry header, id
	}
	for _, missing := range []int{1, 50_000, 99_000, 150_000, 900_000, 1_000_000, 1_800_000, 1_900_000, 10_000_000} {
		mem := vfs.NewCrashableMem()
		q := &quotaFS{FS: mem, room: 6 << 20, files: map[string]int{}}
		opts := options(2)
		opts.RotateBytes = 1 << 30
		f := mustOpen(t, q, dir, opts)
		l := newLedger(2)
		log := mustShard(t, f, 0)
		require.NoError(t, l.append(log, 0, 100))
		require.NoError(t, l.append(mustShard(t, f, 1), 1, 100))
		q.room = max(0, need-missing)
		require.Equal(t, errs.StorageFull, errs.CodeOf(l.append(log, 0, big...)), "missing %d", missing)
		q.room = 0
		l.clone().verify(t, crash(mem, 100, 1), opts)
		for s := range 2 {
			require.Equal(t, errs.StorageFull, errs.CodeOf(l.append(mustShard(t, f, millrace.ShardID(s)), s, 10)))
			l.check(t, mustShard(t, f, millrace.ShardID(s)), s)
		}
		require.NoError(t, f.Err())
		q.room = 30 << 20
		for s := range 2 {
			require.NoError(t, l.append(mustShard(t, f, millrace.ShardID(s)), s, 10, 1000))
			l.check(t, mustShard(t, f, millrace.ShardID(s)), s)
		}
		require.NoError(t, l.append(log, 0, big...))
		for _, percent := range []int{0, 50, 100} {
			l.clone().verify(t, crash(mem, percent, 1), opts)
		}
		require.NoError(t, f.Close())
	}
}

// Where even overwriting takes room, the outcome of the append that met the full disk
// is unknown until there is room, and known to be "not written" from then on.
func TestDiskFullCopyOnWrite(t *testing.T) {
	mem := vfs.NewCrashableMem()
	q := &quotaFS{FS: mem, room: 1 << 20, files: map[string]int{}, cow: true}
	f := mustOpen(t, q, dir, options(1))
	log := mustShard(t, f, 0)
	l := newLedger(1)
	require.NoError(t, l.append(log, 0, 100))
	q.room = 2000
	require.Equal(t, errs.UnknownOutcome, errs.CodeOf(l.append(log, 0, 10_000)))
	l.clone().verify(t, crash(mem, 100, 1), options(1))
	require.Equal(t, errs.StorageFull, errs.CodeOf(l.append(log, 0, 10)))
	q.room = 1 << 20
	require.NoError(t, l.append(log, 0, 20))
	l.sent[0][1].fate = refused // as the file that was begun says
	l.clone().verify(t, crash(mem, 0, 1), options(1))
	require.NoError(t, f.Close())
}

// A failure while a file is begun, of an operation that leaves nothing behind, costs
// the append only; the log goes on.
func TestRotationFails(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite} {
		for _, cause := range []error{errorfs.ErrInjected, syscall.ENOSPC} {
			mem := vfs.NewCrashableMem()
			armed := false
			inject := func(op errorfs.Op) error {
				if armed && op.Kind == kind {
					armed = false
					return cause
				}
				return nil
			}
			opts := options(1)
			opts.RotateBytes = 1 // each append begins a file
			f := mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(inject)), dir, opts)
			log := mustShard(t, f, 0)
			l := newLedger(1)
			require.NoError(t, l.append(log, 0, 10))
			armed = true
			want := errs.Unavailable
			if errors.Is(cause, syscall.ENOSPC) {
				want = errs.StorageFull
			}
			require.Equal(t, want, errs.CodeOf(l.append(log, 0, 20)))
			require.NoError(t, f.Err())
			require.NoError(t, l.append(log, 0, 30))
			l.clone().verify(t, crash(mem, 0, 1), opts)
			require.NoError(t, f.Close())
		}
	}
}

// Fifty shards append at the same time on a real disk and share fsyncs; everything is
// there after a start.
func TestFiftyShards(t *testing.T) {
	const shards, each = 50, 20
	reg := prometheus.NewRegistry()
	opts := options(shards)
	opts.Registerer, opts.RotateBytes = reg, 200_000
	d := t.TempDir()
	f := mustOpen(t, vfs.Default, d, opts)
	l := newLedger(shards)
	var wg sync.WaitGroup
	for s := range shards {
		log := mustShard(t, f, millrace.ShardID(s))
		wg.Go(func() {
			for i := range each {
				if err := l.append(log, s, 100*i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, f.Close())
	require.EqualValues(t, shards*each, counter(t, reg, "millrace_wal_records_total"))
	f = mustOpen(t, vfs.Default, d, options(shards))
	for s := range shards {
		l.check(t, mustShard(t, f, millrace.ShardID(s)), s)
	}
	require.NoError(t, f.Close())
}
