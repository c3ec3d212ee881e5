package storage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	// sent are the writes whose fate is not known, by shard, in order.
	sent [][]sentWrite
	// dropping are tables whose drop was asked for and not acknowledged.
	dropping map[millrace.TableID]bool
}

type sentWrite struct {
	m *storagetest.Modelled
	w *storagetest.Write
}

func newScript(t *testing.T, seed uint64) *script {
	w := storagetest.NewWorld(t, seed)
	o := &w.Opts
	o.Shards, o.CheckpointBytes, o.SealBytes, o.TailBytes, o.BucketTailBytes = 1, 0, 3<<10, 16<<10, 1<<10
	o.QueueBytes, o.WALFileBytes, o.MemTableBytes = 0, 24<<10, 256<<10
	return &script{World: w, t: t, sent: make([][]sentWrite, o.Shards), dropping: map[millrace.TableID]bool{}}
}

// do makes a write and says whether it was acknowledged.
func (s *script) do(m *storagetest.Modelled, w *storagetest.Write) {
	sh := m.Shards[w.Bucket]
	res, err := s.Shard(m.Table, w.Bucket).Write(context.Background(), m.Op(w, 4<<10))
	switch errs.CodeOf(err) {
	case "":
		require.Empty(s.t, s.sent[sh], "a write is acknowledged after one whose fate is not known")
		want := m.Buckets[w.Bucket].Write(m.Table, w)
		require.EqualValues(s.t, want.Start, res.Start)
		require.EqualValues(s.t, want.End, res.End)
	case errs.UnknownOutcome:
		s.sent[sh] = append(s.sent[sh], sentWrite{m, w})
	case errs.StorageFull, errs.Unavailable, errs.Draining, errs.CorruptData:
		// It is not there.
	default:
		// What Pebble or the file system could not read.
		require.Equal(s.t, errs.Internal, errs.CodeOf(err), "%v", err)
	}
}

// run plays the script. Errors are expected.
func (s *script) run() {
	var err error
	if s.Worker, err = s.TryOpen(); err != nil {
		return
	}
	gen := storagetest.Generator{Rng: s.Rng, Keys: 40}
	keyed := s.Add(storagetest.NewTable(1, 2, 1, 2, storagetest.KeyedColumns...))
	log := s.Add(storagetest.NewTable(2, 2, 1, 0, storagetest.LogColumns...))
	goes := s.Add(storagetest.NewTable(3, 2, 1, 2, storagetest.KeyedColumns...))
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
	s.checkpoints()
	some(2)
	large(keyed)
	s.drop(goes)
	some(1)
	s.checkpoints()
	large(log)
	some(1)
}

func (s *script) checkpoints() {
	for _, sh := range s.Worker.Shards() {
		_ = sh.Checkpoint(context.Background()) // may fail, costs nothing
	}
}

func (s *script) drop(m *storagetest.Modelled) {
	s.dropping[m.ID] = true
	err := error(nil)
	for _, sh := range s.Worker.Shards() {
		err = errors.Join(err, sh.Err(), sh.DropTable(context.Background(), m.ID))
	}
	for i, o := range s.Tables {
		if o == m {
			s.Tables = append(s.Tables[:i:i], s.Tables[i+1:]...)
		}
	}
	if err == nil {
		s.dropping[m.ID] = false
	}
}

// verify opens what a crash left and compares it: what was acknowledged is there,
// then as many of the unknown writes as happened to be, and nothing else.
func (s *script) verify(image *vfs.MemFS, what string) {
	old, wrap, tables := s.FS, s.Wrap, s.Tables
	defer func() { s.FS, s.Wrap, s.Tables = old, wrap, tables }()
	s.FS, s.Wrap, s.Tables = image, nil, nil
	for _, m := range tables {
		c := &storagetest.Modelled{Table: m.Table}
		for _, b := range m.Buckets {
			c.Buckets = append(c.Buckets, b.Clone())
		}
		s.Tables = append(s.Tables, c)
	}
	w, err := s.TryOpen()
	require.NoError(s.t, err, what)
	require.NoError(s.t, w.Err(), what)
	s.Worker = w
	for sh, sent := range s.sent {
		for i := 0; i < len(sent) && !s.matches(millrace.ShardID(sh)); i++ {
			for _, m := range s.Tables {
				if m.ID == sent[i].m.ID {
					m.Buckets[sent[i].w.Bucket].Write(m.Table, sent[i].w)
				}
			}
		}
		for _, id := range w.Shards()[sh].Tables() {
			dropped, asked := s.dropping[id]
			require.True(s.t, !asked || dropped, "%s: a table that was dropped is there", what)
		}
	}
	s.Check()
	// And it works.
	for _, m := range s.Tables {
		wr := &storagetest.Write{Bucket: 1}
		g := storagetest.Generator{Rng: s.Rng, Keys: 40}
		for range 3 {
			wr.Rows = append(wr.Rows, g.Row(m.Table))
		}
		write(s.t, s.World, m, wr)
	}
	s.Check()
	s.Close()
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
// and whatever part of what was not synced a power loss then takes (F4, F8).
func TestFileOperationSweep(t *testing.T) {
	stride := 2
	if os.Getenv("MILLRACE_SWEEP") == "full" {
		stride = 1
	}
	var total int64
	count := func(n *atomic.Int64) errorfs.Injector {
		return errorfs.InjectorFunc(func(errorfs.Op) error { n.Add(1); return nil })
	}
	{
		s := newScript(t, 1)
		var n atomic.Int64
		s.Wrap = func(fs vfs.FS) vfs.FS { return errorfs.Wrap(fs, count(&n)) }
		s.run()
		require.NoError(t, s.Worker.Err())
		s.Check()
		total = n.Load()
		s.Close()
		t.Logf("%d file operations", total)
	}
	for k := int64(s0(t)) % int64(stride); k < total; k += int64(stride) {
		full, forever := k/int64(stride)%2 == 0, k/int64(stride)%3 == 0
		t.Run(fmt.Sprintf("%d/full=%v/forever=%v", k, full, forever), func(t *testing.T) {
			s := newScript(t, 1)
			var n atomic.Int64
			var failed atomic.Pointer[errorfs.Op]
			s.Wrap = func(fs vfs.FS) vfs.FS {
				return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
					at := n.Add(1) - 1
					if at < k || at > k && !forever {
						return nil
					}
					failed.CompareAndSwap(nil, &op)
					if full && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
						return syscall.ENOSPC
					}
					return errorfs.ErrInjected
				}))
			}
			s.run()
			what := "nothing failed"
			if op := failed.Load(); op != nil {
				what = fmt.Sprintf("failed: %d %s", op.Kind, op.Path)
			}
			percents := []int{0, 50, 100}
			if stride > 1 {
				percents = percents[k%3:][:1]
			}
			broken := s.Worker
			for _, percent := range percents {
				s.verify(s.Image(percent), fmt.Sprintf("%s, %d %% kept", what, percent))
			}
			// It also comes to an end, whatever it says.
			if broken != nil {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = broken.Close(context.Background())
				}()
				select {
				case <-ended:
				case <-time.After(20 * time.Second):
					t.Fatal("a broken worker does not close: ", what)
				}
			}
		})
	}
}

// s0 is a number that changes from run to run: which operations a sweep that leaves
// some out begins with.
func s0(t *testing.T) uint64 {
	n := seeds(t, 1)[0] >> 12 % 1000
	t.Logf("sweep begins at MILLRACE_MODEL_SEED=%d", n<<12)
	return n
}
