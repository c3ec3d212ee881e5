package storage_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/storagetest"
)

// script is a workload that touches every kind of file operation, and bears that
// any of them fails.
type script struct {
	*storagetest.World
	t *testing.T

	mu  sync.Mutex // held while what follows changes, and while a moment is taken
	now moment
}

// moment is what was acknowledged at some time, and what was not yet.
type moment struct {
	image  *vfs.MemFS // what a crash at that time leaves
	tables []*storagetest.Modelled
	// sent are the writes whose fate is not known, by shard, in order.
	sent [][]sentWrite
	// gone are the tables that were dropped: false while that is not acknowledged.
	gone map[millrace.TableID]bool
	// starts are where readers saw logs begin.
	starts map[millrace.BucketID]millrace.Offset
}

type sentWrite struct {
	m *storagetest.Modelled
	w *storagetest.Write
}

// moment takes the present.
func (s *script) moment(percentUnsynced int) moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := moment{image: s.Image(percentUnsynced), gone: maps.Clone(s.now.gone), starts: maps.Clone(s.now.starts), sent: make([][]sentWrite, len(s.now.sent))}
	clones := map[*storagetest.Modelled]*storagetest.Modelled{}
	for _, t := range s.now.tables {
		c := &storagetest.Modelled{Table: t.Table}
		for _, b := range t.Buckets {
			c.Buckets = append(c.Buckets, b.Clone())
		}
		clones[t] = c
		m.tables = append(m.tables, c)
	}
	for sh, sent := range s.now.sent {
		for _, w := range sent {
			m.sent[sh] = append(m.sent[sh], sentWrite{clones[w.m], w.w})
		}
	}
	return m
}

func newScript(t *testing.T, seed uint64) *script {
	w := storagetest.NewWorld(t, seed)
	o := &w.Opts
	o.Shards, o.CheckpointBytes, o.SealBytes, o.TailBytes, o.BucketTailBytes = 1, 0, 3<<10, 16<<10, 1<<10
	o.QueueBytes, o.WALFileBytes, o.MemTableBytes = 0, 24<<10, 256<<10
	return &script{World: w, t: t, now: moment{sent: make([][]sentWrite, o.Shards), gone: map[millrace.TableID]bool{}, starts: map[millrace.BucketID]millrace.Offset{}}}
}

// do makes a write.
func (s *script) do(m *storagetest.Modelled, w *storagetest.Write) {
	sh := m.Shards[w.Bucket]
	s.mu.Lock()
	s.now.sent[sh] = append(s.now.sent[sh], sentWrite{m, w})
	s.mu.Unlock()
	res, err := s.Shard(m.Table, w.Bucket).Write(context.Background(), m.Op(w, 4<<10))
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.now.sent[sh]) - 1
	switch errs.CodeOf(err) {
	case errs.UnknownOutcome:
		return
	case "":
		require.Zero(s.t, last, "a write is acknowledged after one whose fate is not known")
		want := m.Buckets[w.Bucket].Write(m.Table, w)
		require.EqualValues(s.t, want.Start, res.Start)
		require.EqualValues(s.t, want.End, res.End)
	case errs.StorageFull, errs.Unavailable, errs.Draining, errs.CorruptData:
		// It is not there.
	default:
		// What Pebble or the file system could not read.
		require.Equal(s.t, errs.Internal, errs.CodeOf(err), "%v", err)
	}
	s.now.sent[sh] = s.now.sent[sh][:last]
}

// run plays the script. Errors are expected.
func (s *script) run() {
	var err error
	if s.Worker, err = s.TryOpen(); err != nil {
		return
	}
	gen := storagetest.Generator{Rng: s.Rng, Keys: 40}
	add := func(t *storagetest.Table) *storagetest.Modelled {
		s.mu.Lock()
		defer s.mu.Unlock()
		m := s.Add(t)
		s.now.tables = append(s.now.tables, m)
		return m
	}
	keyed := add(storagetest.NewTable(1, 2, 1, 2, storagetest.KeyedColumns...))
	expires := storagetest.NewTable(2, 2, 1, 0, storagetest.LogColumns...)
	expires.Options.LogTTL = time.Minute
	log := add(expires)
	goes := add(storagetest.NewTable(3, 2, 1, 2, storagetest.KeyedColumns...))
	some := func(n int) {
		for range n {
			for _, m := range s.Tables {
				for b := range m.Buckets {
					s.do(m, gen.Write(m.Table, uint16(b)))
				}
			}
		}
	}
	large := func(m *storagetest.Modelled) {
		w := &storagetest.Write{}
		for range 300 {
			w.Rows = append(w.Rows, gen.Row(m.Table))
		}
		s.do(m, w)
	}
	some(2)
	large(log)
	large(goes)
	s.checkpoints()
	some(2)
	large(keyed)
	s.drop(goes)
	s.Clock.Add(2 * time.Minute)
	s.expire(log)
	some(1)
	s.checkpoints()
	s.Clock.Add(2 * time.Hour)
	s.expire(log)
	s.checkpoints() // what expired before goes
	large(log)
	some(1)
}

func (s *script) checkpoints() {
	for _, sh := range s.Worker.Shards() {
		_ = sh.Checkpoint(context.Background()) // may fail, costs nothing
	}
}

// expire ends what has expired, and notes where readers then see logs begin.
func (s *script) expire(m *storagetest.Modelled) {
	for _, sh := range s.Worker.Shards() {
		_ = sh.Expire(context.Background()) // may fail, leaves the start then
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range m.Buckets {
		id := m.BucketID(uint16(b))
		if _, v, err := s.Shard(m.Table, uint16(b)).Log(id); err == nil && v != nil {
			s.now.starts[id] = v.Start
		}
	}
}

func (s *script) drop(m *storagetest.Modelled) {
	s.mu.Lock()
	s.now.gone[m.ID] = false
	s.Tables = slices.DeleteFunc(s.Tables, func(o *storagetest.Modelled) bool { return o == m })
	s.mu.Unlock()
	var err error
	for _, sh := range s.Worker.Shards() {
		err = errors.Join(err, sh.Err(), sh.DropTable(context.Background(), m.ID))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.gone[m.ID] = err == nil
}

// verify opens what a crash at a moment left and compares it: what was acknowledged is
// there, then as many of the unknown writes as happened to be, and nothing else.
func (s *script) verify(at moment, what string) {
	v := &script{World: &storagetest.World{
		TB: s.t, Rng: s.Rng, FS: at.image, Opts: s.Opts, Clock: s.Clock, Log: s.Log,
	}, t: s.t}
	v.Opts.Hook = nil
	w, err := v.TryOpen()
	require.NoError(s.t, err, what)
	v.Worker = w
	require.NoError(s.t, w.Err(), what)
	for _, m := range at.tables {
		dropped, asked := at.gone[m.ID]
		there := slices.Contains(w.Shards()[0].Tables(), m.ID)
		require.False(s.t, dropped && there, "%s: a table that was dropped is there", what)
		if !asked || there {
			v.Tables = append(v.Tables, m)
		}
	}
	for sh, sent := range at.sent {
		for i := 0; i < len(sent) && !v.matches(millrace.ShardID(sh)); i++ {
			sent[i].m.Buckets[sent[i].w.Bucket].Write(sent[i].m.Table, sent[i].w)
		}
	}
	v.Check()
	for id, start := range at.starts {
		_, view, err := w.Shards()[0].Log(id)
		require.NoError(s.t, err)
		require.GreaterOrEqual(s.t, view.Start, start, "%s: the start of bucket %s went back", what, id)
	}
	// And it works.
	for _, m := range v.Tables {
		wr := &storagetest.Write{Bucket: 1}
		g := storagetest.Generator{Rng: s.Rng, Keys: 40}
		for range 3 {
			wr.Rows = append(wr.Rows, g.Row(m.Table))
		}
		write(s.t, v.World, m, wr)
	}
	v.Check()
	v.Close()
}

func (s *script) matches(id millrace.ShardID) bool {
	for _, m := range s.Tables {
		for b, want := range m.Buckets {
			if m.Shards[b] != id {
				continue
			}
			_, v, err := s.Worker.Shards()[id].Log(m.BucketID(uint16(b)))
			require.NoError(s.t, err)
			if v == nil && len(want.Log) > 0 || v != nil && int(v.End) != len(want.Log) {
				return false
			}
		}
	}
	return true
}

// Shows that a worker opens and holds what it acknowledged, whichever of its file
// operations fails, for once or from then on, with an I/O error or for want of room,
// or is the moment of a power loss, and whatever part of what was not synced the power
// loss then takes (F4, F8). MILLRACE_SWEEP=full leaves out nothing.
func TestFileOperationSweep(t *testing.T) {
	stride, percents := int64(2), 1
	if os.Getenv("MILLRACE_SWEEP") == "full" {
		stride, percents = 1, 3
	}
	total := countOperations(t)
	for k := int64(s0(t)) % stride; k < total; k += stride {
		full, forever := k/stride%2 == 0, k/stride%3 == 0
		percent := func(i int64) int { return []int{0, 50, 100}[(k+i)%3] }
		t.Run(fmt.Sprintf("%d/full=%v/forever=%v", k, full, forever), func(t *testing.T) {
			s := newScript(t, 1)
			var n atomic.Int64
			var failed errorfs.Op
			var crashes []moment
			s.Wrap = func(fs vfs.FS) vfs.FS {
				return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
					at := n.Add(1) - 1
					if at == k {
						failed = op
						for i := range int64(percents) {
							crashes = append(crashes, s.moment(percent(i)))
						}
					}
					if at < k || at > k && !forever {
						return nil
					}
					if full && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
						return syscall.ENOSPC
					}
					return errorfs.ErrInjected
				}))
			}
			s.run()
			for _, m := range crashes {
				s.verify(m, fmt.Sprintf("power lost at %d %s", failed.Kind, failed.Path))
			}
			for i := range int64(percents) {
				s.verify(s.moment(percent(i)), fmt.Sprintf("failed: %d %s, %d %% kept", failed.Kind, failed.Path, percent(i)))
			}
			s.ends(fmt.Sprintf("failed: %d %s", failed.Kind, failed.Path))
		})
	}
}

// countOperations is how many file operations the script makes.
func countOperations(t *testing.T) int64 {
	s := newScript(t, 1)
	var n atomic.Int64
	s.Wrap = func(fs vfs.FS) vfs.FS {
		return errorfs.Wrap(fs, errorfs.InjectorFunc(func(errorfs.Op) error { n.Add(1); return nil }))
	}
	s.run()
	require.NoError(t, s.Worker.Err())
	s.Check()
	s.Close()
	t.Logf("%d file operations", n.Load())
	return n.Load()
}

// ends shows that a broken worker can be closed, whatever it says.
func (s *script) ends(what string) {
	if s.Worker == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Worker.Close(context.Background()) // it may say what it likes
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		s.t.Fatal("a broken worker does not close: ", what)
	}
}

// s0 is a number that changes from run to run: which operations a sweep that leaves
// some out begins with.
func s0(t *testing.T) uint64 {
	n := seeds(t, 1)[0] >> 12 % 1000
	t.Logf("sweep begins at MILLRACE_MODEL_SEED=%d", n<<12)
	return n
}
