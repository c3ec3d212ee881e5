// Package waltest is the contract of wal.Log as a test suite, for every
// implementation of it.
//
// It leaves to others what only one implementation can show: crashes, damage, a
// full disk, unknown outcomes.
package waltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// Shards is how many shards the suite uses, from 0.
const Shards = 4

// Session is an implementation opened on its storage.
type Session struct {
	Log   func(millrace.ShardID) wal.Log
	Close func()
}

// Opener opens the storage of one test again and again: each call after the
// Session before was closed.
type Opener func() Session

// Got is an entry as Replay gave it.
type Got struct {
	LSN   millrace.LSN
	Epoch millrace.Epoch
	Entry wal.Entry
}

// ReadAll replays a log and keeps copies.
func ReadAll(log wal.Log, after millrace.LSN) ([]Got, error) {
	var out []Got
	err := log.Replay(context.Background(), after, func(lsn millrace.LSN, epoch millrace.Epoch, e wal.Entry) error {
		e.Data = bytes.Clone(e.Data)
		out = append(out, Got{lsn, epoch, e})
		return nil
	})
	return out, err
}

// RunSuite runs the contract; newStore gives each test storage of its own.
func RunSuite(t *testing.T, newStore func(t *testing.T) Opener) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, open Opener)
	}{
		{"Empty", testEmpty},
		{"InOrder", testInOrder},
		{"Sizes", testSizes},
		{"Packing", testPacking},
		{"Pieces", testPieces},
		{"TooLarge", testTooLarge},
		{"ReplayAfter", testReplayAfter},
		{"ReplayStops", testReplayStops},
		{"Reuse", testReuse},
		{"Reopen", testReopen},
		{"Epochs", testEpochs},
		{"UnknownKinds", testUnknownKinds},
		{"Purge", testPurge},
		{"Hashes", testHashes},
		{"ShardsApart", testShardsApart},
		{"Concurrent", testConcurrent},
		{"ReplayWhileAppending", testReplayWhileAppending},
		{"Cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newStore(t)) })
	}
}

func open1(t *testing.T, open Opener) wal.Log {
	t.Helper()
	s := open()
	t.Cleanup(s.Close)
	return s.Log(0)
}

func add(t *testing.T, log wal.Log, entries ...wal.Entry) millrace.LSN {
	t.Helper()
	lsn, err := log.Append(context.Background(), entries)
	require.NoError(t, err)
	return lsn
}

func read(t *testing.T, log wal.Log, after millrace.LSN) []Got {
	t.Helper()
	got, err := ReadAll(log, after)
	require.NoError(t, err)
	return got
}

func data(s string) wal.Entry { return wal.Entry{Kind: wal.Data, Data: []byte(s)} }

// Pattern is n bytes that depend on the seed.
func Pattern(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1], key[2], key[3] = byte(seed), byte(seed>>8), byte(seed>>16), byte(seed>>24)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

// A log that was never written to ends at 0, gives nothing, and appending nothing
// changes nothing.
func testEmpty(t *testing.T, open Opener) {
	log := open1(t, open)
	require.Zero(t, log.Tail().LSN)
	require.Zero(t, log.Tail().Hash)
	require.Empty(t, read(t, log, 0))
	require.Zero(t, add(t, log))
	require.Zero(t, log.Tail().LSN)
	require.NoError(t, log.Purge(context.Background(), 100))
}

// Entries come back once, in order, with the LSN that Append answered; LSNs are
// dense and the tail follows.
func testInOrder(t *testing.T, open Opener) {
	log := open1(t, open)
	kinds := []wal.Kind{wal.Data, wal.BucketOpen, wal.BucketSeal, wal.BucketDrop, wal.IDRange, wal.Noop}
	var want []Got
	for i := range 50 {
		e := wal.Entry{Kind: kinds[i%len(kinds)], Ignorable: i%3 == 0, Data: Pattern(uint64(i), i)}
		lsn := add(t, log, e)
		require.EqualValues(t, i+1, lsn)
		require.Equal(t, lsn, log.Tail().LSN)
		want = append(want, Got{lsn, 0, e})
	}
	requireSame(t, want, read(t, log, 0))
	require.NotZero(t, log.Tail().Hash)
}

func requireSame(t *testing.T, want, got []Got) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		w, g := want[i], got[i]
		require.True(t, w.LSN == g.LSN && w.Epoch == g.Epoch && w.Entry.Kind == g.Entry.Kind && w.Entry.Ignorable == g.Entry.Ignorable && bytes.Equal(w.Entry.Data, g.Entry.Data),
			"entry %d: want lsn %d epoch %d %s of %d bytes, got lsn %d epoch %d %s of %d bytes", i, w.LSN, w.Epoch, w.Entry.Kind, len(w.Entry.Data), g.LSN, g.Epoch, g.Entry.Kind, len(g.Entry.Data))
	}
}

// Entries of every size around the size of a record, and far above, come back whole.
func testSizes(t *testing.T, open Opener) {
	log := open1(t, open)
	noise := Pattern(1, 4<<20)
	sizes := []int{0, 1, 7, 8, 100_000, 3<<20 + 17}
	for _, d := range []int{-96, -95, -90, -89, -88, -87, -81, -80, -79, -8, -1, 0, 1, 8} { // where headers begin not to fit
		sizes = append(sizes, wal.MaxRecordBytes+d)
	}
	var want []Got
	for i, n := range sizes {
		e := wal.Entry{Kind: wal.Data, Data: noise[i : i+n]}
		want = append(want, Got{add(t, log, e), 0, e})
	}
	requireSame(t, want, read(t, log, 0))
}

// Entries of one Append share records as far as they fit, small ones behind the end
// of a large one too, and the LSN given for each is that of the record it ends in.
func testPacking(t *testing.T, open Opener) {
	log := open1(t, open)
	var es []wal.Entry
	for i := range 1000 {
		es = append(es, wal.Entry{Kind: wal.Data, Data: Pattern(uint64(i), 100)})
	}
	require.EqualValues(t, 1, add(t, log, es...), "1000 small entries fit one record")

	mixed := []wal.Entry{data("a"), {Kind: wal.Data, Data: Pattern(1, 2*wal.MaxRecordBytes)}, data("b"), data("c"), {Kind: wal.Data, Data: Pattern(2, wal.MaxRecordBytes-1000)}, data("d")}
	last := add(t, log, mixed...)
	got := read(t, log, 1)
	require.Len(t, got, len(mixed))
	for i := range mixed {
		require.True(t, bytes.Equal(mixed[i].Data, got[i].Entry.Data))
		require.GreaterOrEqual(t, got[i].LSN, got[max(i-1, 0)].LSN)
	}
	require.Equal(t, got[1].LSN, got[2].LSN, "what follows a large entry shares its last record")
	require.Equal(t, last, got[len(got)-1].LSN)
	require.LessOrEqual(t, last, millrace.LSN(1+6))
}

// An entry in pieces is the same entry, wherever pieces and records end, and leaves
// the pieces as they were.
func testPieces(t *testing.T, open Opener) {
	log := open1(t, open)
	noise := Pattern(3, 4<<20)
	rnd := rand.New(rand.NewPCG(5, 5))
	var want []Got
	for range 20 {
		var entries []wal.Entry
		for range 1 + rnd.IntN(4) {
			e := wal.Entry{Kind: wal.Data, Data: noise[:rnd.IntN(3)*rnd.IntN(5000)]}
			whole := slices.Clone(e.Data)
			for range rnd.IntN(20) {
				at := rnd.IntN(1 << 20)
				n := rnd.IntN(1 << (1 + rnd.IntN(20)))
				if rnd.IntN(5) == 0 {
					n = wal.MaxRecordBytes - 5000 + rnd.IntN(5200)
				}
				e.More = append(e.More, noise[at:at+n])
				whole = append(whole, noise[at:at+n]...)
			}
			entries = append(entries, e)
			want = append(want, Got{0, 0, wal.Entry{Kind: wal.Data, Data: whole}})
		}
		add(t, log, entries...)
	}
	got := read(t, log, 0)
	require.Len(t, got, len(want))
	for i := range got {
		require.Empty(t, got[i].Entry.More)
		got[i].LSN = 0 // how many records it took is no matter
	}
	requireSame(t, want, got)
	require.Equal(t, Pattern(3, 4<<20), noise)
}

// An entry above the limit is refused with what came with it, and nothing is written.
func testTooLarge(t *testing.T, open Opener) {
	log := open1(t, open)
	add(t, log, data("before"))
	tail := log.Tail()
	_, err := log.Append(context.Background(), []wal.Entry{data("x"), {Kind: wal.Data, Data: make([]byte, wal.MaxEntryBytes+1)}})
	require.Equal(t, errs.TooLarge, errs.CodeOf(err))
	require.Equal(t, tail, log.Tail())
	add(t, log, data("after"))
	require.Len(t, read(t, log, 0), 2)
}

// Replay after an LSN gives what ends behind it, for each LSN, those in the middle of
// a large entry included.
func testReplayAfter(t *testing.T, open Opener) {
	log := open1(t, open)
	for i := range 5 {
		add(t, log, data(fmt.Sprint("small ", i)))
		add(t, log, wal.Entry{Kind: wal.Data, Data: Pattern(uint64(i), wal.MaxRecordBytes*(i%3+1))})
	}
	all := read(t, log, 0)
	require.Len(t, all, 10)
	for after := millrace.LSN(0); after <= log.Tail().LSN+2; after++ {
		want := slices.DeleteFunc(slices.Clone(all), func(g Got) bool { return g.LSN <= after })
		requireSame(t, want, read(t, log, after))
	}
}

// Replay stops at fn's error and returns it as it is.
func testReplayStops(t *testing.T, open Opener) {
	log := open1(t, open)
	for range 5 {
		add(t, log, data("x"), data("y"))
	}
	stop := errors.New("stop")
	n := 0
	err := log.Replay(context.Background(), 0, func(millrace.LSN, millrace.Epoch, wal.Entry) error {
		if n++; n == 4 {
			return stop
		}
		return nil
	})
	require.Equal(t, stop, err)
	require.Equal(t, 4, n)
}

// The bytes of an entry are the caller's again when Append returns.
func testReuse(t *testing.T, open Opener) {
	log := open1(t, open)
	buf := make([]byte, 1000)
	for i := range 20 {
		for j := range buf {
			buf[j] = byte(i)
		}
		add(t, log, wal.Entry{Kind: wal.Data, Data: buf})
	}
	for i, g := range read(t, log, 0) {
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, 1000), g.Entry.Data)
	}
}

// What was appended is there after closing and opening, several times, and the log
// goes on where it was: same id, LSN, hash.
func testReopen(t *testing.T, open Opener) {
	var want []Got
	var tail wal.Tail
	for round := range 5 {
		s := open()
		log := s.Log(0)
		if round > 0 {
			require.Equal(t, tail, log.Tail())
		}
		requireSame(t, want, read(t, log, 0))
		for i := range round {
			e := wal.Entry{Kind: wal.Data, Data: Pattern(uint64(round*10+i), 1000*i+5)}
			want = append(want, Got{add(t, log, e), 0, e})
		}
		requireSame(t, want, read(t, log, 0))
		tail = log.Tail()
		s.Close()
	}
}

// An epoch entry raises the epoch of its record and of what follows, across a
// restart; entries of the same Append that came before it keep the old one.
func testEpochs(t *testing.T, open Opener) {
	s := open()
	log := s.Log(0)
	add(t, log, data("0"))
	add(t, log, wal.EpochEntry(3), data("3"))
	add(t, log, data("3 again"), wal.EpochEntry(7), data("7"))
	require.EqualValues(t, 7, log.Tail().Epoch)
	require.Panics(t, func() { _, _ = log.Append(context.Background(), []wal.Entry{wal.EpochEntry(7)}) })
	s.Close()

	s = open()
	defer s.Close()
	log = s.Log(0)
	require.EqualValues(t, 7, log.Tail().Epoch)
	add(t, log, data("7 again"))
	var epochs []millrace.Epoch
	for _, g := range read(t, log, 0) {
		if g.Entry.Kind == wal.Epoch {
			e, err := wal.EpochOf(g.Entry)
			require.NoError(t, err)
			require.Equal(t, g.Epoch, e)
			continue
		}
		epochs = append(epochs, g.Epoch)
	}
	require.Equal(t, []millrace.Epoch{0, 3, 3, 7, 7}, epochs)
}

// An entry of a kind that this release does not know is left out when it is
// ignorable; otherwise the replay stops there, and says that a newer release wrote it.
func testUnknownKinds(t *testing.T, open Opener) {
	log := open1(t, open)
	add(t, log, data("a"), wal.Entry{Kind: 200, Ignorable: true, Data: []byte("?")}, data("b"))
	add(t, log, wal.Entry{Kind: 201, Ignorable: true, Data: Pattern(1, 2<<20)}, data("c"))
	require.Len(t, read(t, log, 0), 3)
	add(t, log, data("d"), wal.Entry{Kind: 202, Data: []byte("!")}, data("e"))
	got, err := ReadAll(log, 0)
	require.Equal(t, errs.NotImplemented, errs.CodeOf(err))
	require.ErrorContains(t, err, "newer release")
	require.Len(t, got, 4, "up to it, everything is given")
}

// After a purge the rest is there, from the purge point on; a lower purge, one beyond
// the tail and repeated ones do no harm; the log goes on.
func testPurge(t *testing.T, open Opener) {
	s := open()
	log := s.Log(0)
	var want []Got
	put := func(n int) {
		for i := range n {
			e := wal.Entry{Kind: wal.Data, Data: Pattern(uint64(len(want)), 50_000+i)}
			want = append(want, Got{add(t, log, e), 0, e})
		}
	}
	ctx := context.Background()
	put(30)
	for _, upTo := range []millrace.LSN{10, 5, 10, 20} {
		require.NoError(t, log.Purge(ctx, upTo))
		requireSame(t, want[20:], read(t, log, 20))
	}
	put(10)
	tail := log.Tail()
	s.Close()
	s = open()
	defer s.Close()
	log = s.Log(0)
	require.Equal(t, tail, log.Tail())
	requireSame(t, want[25:], read(t, log, 25))
	require.NoError(t, log.Purge(ctx, tail.LSN+100))
	require.Equal(t, tail, log.Tail())
	require.Empty(t, read(t, log, tail.LSN))
	put(3)
	requireSame(t, want[len(want)-3:], read(t, log, tail.LSN))
}

// The hash of a record is told for as long as it, or the one after it, is there, and
// a log that is read anew ends where it did. Nothing is told of what is not there.
func testHashes(t *testing.T, open Opener) {
	ctx := context.Background()
	s := open()
	var tails []wal.Tail
	put := func(n int) {
		for i := range n {
			add(t, s.Log(1), wal.Entry{Kind: wal.Data, Data: Pattern(uint64(i), 7)})
			add(t, s.Log(0), wal.Entry{Kind: wal.Data, Data: Pattern(uint64(len(tails)), 20_000+i)})
			tails = append(tails, s.Log(0).Tail())
		}
	}
	check := func(from int) {
		log := s.Log(0)
		got, err := log.Refresh(ctx)
		require.NoError(t, err)
		require.Equal(t, tails[len(tails)-1], got)
		require.Equal(t, got, log.Tail())
		for _, want := range tails[from:] {
			hash, ok, err := log.HashAt(ctx, want.LSN)
			require.NoError(t, err)
			require.True(t, ok, "record %d", want.LSN)
			require.Equal(t, want.Hash, hash, "record %d", want.LSN)
		}
		_, ok, err := log.HashAt(ctx, got.LSN+1)
		require.NoError(t, err)
		require.False(t, ok)
	}
	hash, ok, err := s.Log(0).HashAt(ctx, 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, s.Log(0).Tail().Hash, hash)
	put(20)
	check(0)
	s.Close()
	s = open()
	check(0)
	put(10)
	require.NoError(t, s.Log(0).Purge(ctx, tails[14].LSN))
	check(14)
	s.Close()
	s = open()
	check(14)
	require.NoError(t, s.Log(0).Purge(ctx, tails[29].LSN))
	check(29)
	s.Close()
}

// Each shard has LSNs, a chain and a tail of its own.
func testShardsApart(t *testing.T, open Opener) {
	s := open()
	defer s.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	want := make([][]Got, Shards)
	for i := range 200 {
		id := rng.IntN(Shards)
		e := wal.Entry{Kind: wal.Data, Data: Pattern(uint64(i), rng.IntN(5000))}
		lsn := add(t, s.Log(millrace.ShardID(id)), e)
		require.EqualValues(t, len(want[id])+1, lsn)
		want[id] = append(want[id], Got{lsn, 0, e})
	}
	seen := map[uint64]bool{}
	for id := range Shards {
		log := s.Log(millrace.ShardID(id))
		requireSame(t, want[id], read(t, log, 0))
		require.NotZero(t, log.Tail().LogID)
		seen[log.Tail().Hash] = true
	}
	require.Len(t, seen, Shards)
}

// Shards append at the same time, several callers each; nothing is lost, doubled or
// out of a caller's order.
func testConcurrent(t *testing.T, open Opener) {
	s := open()
	const callers, each = 3, 30
	var wg sync.WaitGroup
	for id := range Shards {
		for c := range callers {
			wg.Go(func() {
				for i := range each {
					e := data(fmt.Sprintf("%d/%d/%d", id, c, i))
					if _, err := s.Log(millrace.ShardID(id)).Append(context.Background(), []wal.Entry{e}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	s.Close()
	s = open()
	defer s.Close()
	for id := range Shards {
		next := make([]int, callers)
		got := read(t, s.Log(millrace.ShardID(id)), 0)
		require.Len(t, got, callers*each)
		for _, g := range got {
			var gotID, c, i int
			_, err := fmt.Sscanf(string(g.Entry.Data), "%d/%d/%d", &gotID, &c, &i)
			require.NoError(t, err)
			require.Equal(t, id, gotID)
			require.Equal(t, next[c], i)
			next[c]++
		}
	}
}

// A replay during appends gives at least what was durable when it began, and a
// prefix of the log; purges in between take nothing away from it.
func testReplayWhileAppending(t *testing.T, open Opener) {
	log := open1(t, open)
	for i := range 20 {
		add(t, log, wal.Entry{Kind: wal.Data, Data: Pattern(uint64(i), 3_000)})
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	wg.Go(func() {
		for i := 20; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := log.Append(context.Background(), []wal.Entry{{Kind: wal.Data, Data: Pattern(uint64(i), 3_000)}}); err != nil {
				t.Error(err)
			}
			if err := log.Purge(context.Background(), 10); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5 {
		least := int(log.Tail().LSN)
		got := read(t, log, 10)
		require.GreaterOrEqual(t, len(got), least-10)
		for i, g := range got {
			require.EqualValues(t, 11+i, g.LSN)
			require.True(t, bytes.Equal(Pattern(uint64(10+i), 3_000), g.Entry.Data))
		}
	}
}

// A context that is over before writing begins writes nothing; one that ends a
// replay ends it.
func testCancelled(t *testing.T, open Opener) {
	log := open1(t, open)
	add(t, log, data("a"), data("b"))
	add(t, log, data("c"))
	ctx, cancel := context.WithCancel(context.Background())
	err := log.Replay(ctx, 0, func(millrace.LSN, millrace.Epoch, wal.Entry) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	_, err = log.Append(ctx, []wal.Entry{data("d")})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, read(t, log, 0), 3)
}
