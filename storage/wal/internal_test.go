package wal

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

func openTest(t *testing.T, fs vfs.FS) *Files {
	t.Helper()
	f, err := OpenFiles(fs, "wal", Options{ClusterID: ClusterID{1}, Shards: 2})
	require.NoError(t, err)
	return f
}

// smuggle writes a record that follows the given tail, whatever the log's own is, as a
// deposed owner or a bug would. The log's tail moves to after.
func smuggle(t *testing.T, f *Files, follows, after Tail, data string) {
	t.Helper()
	e := encoder{cluster: f.opts.ClusterID, shard: 0}
	require.NoError(t, e.encode(follows, []Entry{{Kind: Data, Data: []byte(data)}}))
	r := &request{shard: 0, pieces: e.out, frames: e.frames, size: sizeOf(e.out), tail: after, done: make(chan error, 1)}
	require.NoError(t, f.submit(r))
	require.NoError(t, <-r.done)
}

func texts(t *testing.T, log Log, after millrace.LSN) ([]string, error) {
	t.Helper()
	var out []string
	err := log.Replay(context.Background(), after, func(_ millrace.LSN, _ millrace.Epoch, e Entry) error {
		if e.Kind == Data {
			out = append(out, string(e.Data))
		}
		return nil
	})
	return out, err
}

func appendText(t *testing.T, log Log, es ...Entry) {
	t.Helper()
	_, err := log.Append(context.Background(), es)
	require.NoError(t, err)
}

func text(s string) Entry { return Entry{Kind: Data, Data: []byte(s)} }

// A record of an owner that was deposed before it reached the log is passed over, in
// the file that is written, after a start, and in an older file; the log goes on behind it.
func TestFencedRecord(t *testing.T) {
	fs := vfs.NewMem()
	f := openTest(t, fs)
	log := f.logs[0]
	appendText(t, log, EpochEntry(1), text("a"))
	old := log.Tail()
	appendText(t, log, EpochEntry(2), text("b"))
	smuggle(t, f, old, log.Tail(), "late")
	appendText(t, log, text("c"))
	for range 3 {
		got, err := texts(t, log, 0)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, got)
		require.NoError(t, f.Close())
		f = openTest(t, fs)
		log = f.logs[0]
	}
	require.NoError(t, f.Close())
}

// A record with the right number and another predecessor, or the right predecessor and
// another number, or of another incarnation of the log, is damage, whether a start or a
// replay meets it.
func TestBrokenChain(t *testing.T) {
	for name, change := range map[string]func(*Tail){
		"hash":   func(tail *Tail) { tail.Hash++ },
		"number": func(tail *Tail) { tail.LSN++ },
		"log id": func(tail *Tail) { tail.LogID++ },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			f := openTest(t, fs)
			log := f.logs[0]
			appendText(t, log, text("a"))
			follows := log.Tail()
			change(&follows)
			after := follows
			after.LSN++
			smuggle(t, f, follows, after, "wrong")
			appendText(t, f.logs[1], text("other"))
			for start := range 3 {
				if start > 0 {
					_, err := f.logs[0].Append(context.Background(), []Entry{text("b")})
					require.Equal(t, errs.CorruptData, errs.CodeOf(err))
				}
				got, err := texts(t, f.logs[0], 0)
				require.Equal(t, errs.CorruptData, errs.CodeOf(err))
				require.Equal(t, []string{"a"}, got)
				got, err = texts(t, f.logs[1], 0)
				require.NoError(t, err)
				require.Equal(t, []string{"other"}, got)
				require.NoError(t, f.Close())
				f = openTest(t, fs)
			}
			require.NoError(t, f.Close())
		})
	}
}

// W6: what waits while an fsync fails is refused, not written.
func TestQueueDiesToo(t *testing.T) {
	mem := vfs.NewMem()
	inSync, fail := make(chan struct{}), make(chan struct{})
	armed := false
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !armed || op.Kind != errorfs.OpFileSyncData {
			return nil
		}
		armed = false
		close(inSync)
		<-fail
		return errorfs.ErrInjected
	}))
	f := openTest(t, fs)
	armed = true
	var first, second error
	var wg sync.WaitGroup
	wg.Go(func() { _, first = f.logs[0].Append(context.Background(), []Entry{text("a")}) })
	<-inSync
	wg.Go(func() { _, second = f.logs[1].Append(context.Background(), []Entry{text("b")}) })
	for {
		f.mu.Lock()
		n := len(f.mu.queue)
		f.mu.Unlock()
		if n == 1 {
			break
		}
	}
	close(fail)
	wg.Wait()
	require.Equal(t, errs.UnknownOutcome, errs.CodeOf(first))
	require.Equal(t, errs.Unavailable, errs.CodeOf(second))
	require.NoError(t, f.Close())
}

// An entry whose last fragment never came is left out, counted, and does no harm to
// what is appended behind it.
func TestUnfinishedEntry(t *testing.T) {
	fs := vfs.NewMem()
	reg := prometheus.NewRegistry()
	f, err := OpenFiles(fs, "wal", Options{ClusterID: ClusterID{1}, Shards: 2, Registerer: reg})
	require.NoError(t, err)
	abandoned := func() float64 {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, m := range families {
			if m.GetName() == "millrace_wal_abandoned_entries_total" {
				return m.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return -1
	}
	log := f.logs[0]
	appendText(t, log, text("a"))
	e := encoder{cluster: f.opts.ClusterID, shard: 0}
	require.NoError(t, e.encode(log.Tail(), []Entry{{Kind: Data, Data: make([]byte, 2*MaxRecordBytes)}}))
	one := slices.Concat(e.out...)[:frameSize+MaxRecordBytes]
	h, ok := parseRecordHeader(one[frameSize:])
	require.True(t, ok)
	tail := log.Tail()
	tail.LSN, tail.Hash = h.lsn, h.hash
	r := &request{shard: 0, pieces: [][]byte{one}, frames: framesOf(one), size: int64(len(one)), tail: tail, done: make(chan error, 1)}
	require.NoError(t, f.submit(r))
	require.NoError(t, <-r.done)
	_, err = texts(t, log, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, abandoned(), "at the end of the log")
	appendText(t, log, text("b"), text("c"))
	_, err = texts(t, log, 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, abandoned(), "counted once a replay")
	for range 3 {
		got, err := texts(t, log, 0)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, got)
		got, err = texts(t, log, 2)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.NoError(t, f.Close())
		f = openTest(t, fs)
		log = f.logs[0]
	}
	require.NoError(t, f.Close())
}

// Records go a file at a time; a reader that needs what is gone is told so. A closed log
// says that it is closed.
func TestPurged(t *testing.T) {
	f, err := OpenFiles(vfs.NewMem(), "wal", Options{ClusterID: ClusterID{1}, Shards: 1, RotateBytes: 1})
	require.NoError(t, err)
	log := f.logs[0]
	appendText(t, log, text("a"))
	appendText(t, log, Entry{Kind: Data, Data: make([]byte, 2*MaxRecordBytes)}) // 2 to 4
	require.NoError(t, log.Purge(context.Background(), 1))
	got, err := texts(t, log, 3)
	require.NoError(t, err)
	require.Len(t, got, 1)
	_, err = texts(t, log, 0)
	require.Equal(t, errs.CorruptData, errs.CodeOf(err))
	require.ErrorContains(t, err, "records 1 to 1 were purged")
	require.ErrorIs(t, err, ErrPurged)
	require.NoError(t, f.Close())
	_, err = log.Append(context.Background(), []Entry{text("z")})
	require.Equal(t, errs.Draining, errs.CodeOf(err))
	require.NoError(t, errors.Join(f.Close(), f.Close()))
}

// Files stay while a replay may still read them, and go when it has ended.
func TestReplayKeepsFiles(t *testing.T) {
	fs := vfs.NewMem()
	f, err := OpenFiles(fs, "wal", Options{ClusterID: ClusterID{1}, Shards: 1, RotateBytes: 1})
	require.NoError(t, err)
	log := f.logs[0]
	for range 10 {
		appendText(t, log, text("x"))
	}
	n := 0
	require.NoError(t, log.Replay(context.Background(), 0, func(millrace.LSN, millrace.Epoch, Entry) error {
		n++
		return log.Purge(context.Background(), 100)
	}))
	require.Equal(t, 10, n)
	names, err := fs.List("wal")
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.NoError(t, f.Close())
}

// Damage to records that the caller has does not keep it from reading on, not even in
// the middle of an entry that it has, but in one that it needs it does.
func TestDamageBelow(t *testing.T) {
	fs := vfs.NewMem()
	f := openTest(t, fs)
	log := f.logs[0]
	appendText(t, log, text("a"))                                               // 1
	appendText(t, log, Entry{Kind: Noop, Data: make([]byte, 3*MaxRecordBytes)}) // 2 to 5
	appendText(t, log, text("b"))                                               // 6
	b, err := fs.UnsafeGetFileDataBuffer("wal/00000000000000000001.wal")
	require.NoError(t, err)
	b[2*headerBlock+2*(frameSize+recordHeaderSize)+1000] ^= 1 // in the body of 2
	for after := range millrace.LSN(7) {
		got, err := texts(t, log, after)
		if after < 5 {
			require.Equal(t, errs.CorruptData, errs.CodeOf(err), "after %d", after)
			continue
		}
		require.NoError(t, err)
		require.Len(t, got, int(6-after))
	}
	require.NoError(t, f.Close())
}

// An entry in pieces makes the same records as one that is whole.
func TestPiecesEncodeAlike(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	for range 100 {
		var whole, cut []Entry
		for range 1 + rnd.IntN(5) {
			data := noise[rnd.IntN(1<<20):][:rnd.IntN(1<<(1+rnd.IntN(21)))]
			whole = append(whole, Entry{Kind: Data, Data: data})
			e := Entry{Kind: Data}
			for len(data) > 0 {
				n := 1 + rnd.IntN(min(len(data), 1<<(1+rnd.IntN(21))))
				e.More, data = append(e.More, data[:n]), data[n:]
			}
			cut = append(cut, e)
		}
		want, wantTail := encoded(t, Tail{LogID: 7}, whole...)
		got, gotTail := encoded(t, Tail{LogID: 7}, cut...)
		require.Equal(t, wantTail, gotTail)
		require.True(t, bytes.Equal(want, got))
	}
}
