package catalogtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// Store is the storage of one test.
type Store struct {
	// Open opens it; the test closes the KV.
	Open func() catalog.KV
	// Shared says that several KVs may have it open at a time, each as of another process.
	Shared bool
	// TooLarge is a size of random bytes that no commit takes; 0: there is none.
	TooLarge int
}

// RunSuite runs the contract; newStore gives each test storage of its own.
func RunSuite(t *testing.T, newStore func(t *testing.T) Store) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s Store)
	}{
		{"commits", testCommits},
		{"closed", testClosed},
		{"race", testRace},
		{"follow", testFollow},
		{"follow late", testFollowLate},
		{"large", testLarge},
		{"too large", testTooLarge},
		{"sync", testSync},
		{"linearizable", testLinearizable},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newStore(t)) })
	}
}

func put(key, value string) catalog.Write { return catalog.Write{Key: key, Value: []byte(value)} }

// open opens the store, and closes it with the test at the latest.
func open(t *testing.T, s Store) catalog.KV {
	t.Helper()
	kv := s.Open()
	t.Cleanup(func() { require.NoError(t, kv.Close()) })
	return kv
}

// load is every entry by key.
func load(t *testing.T, kv catalog.KV) map[string]catalog.Entry {
	t.Helper()
	entries, revision, err := kv.Load(t.Context())
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(entries, func(a, b catalog.Entry) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) }), "Load is not in key order")
	out := map[string]catalog.Entry{}
	for _, e := range entries {
		require.LessOrEqual(t, e.Revision, revision)
		out[e.Key] = e
	}
	return out
}

func wantConflict(t *testing.T, err error, key string, want, got uint64) {
	t.Helper()
	c, ok := errors.AsType[*catalog.ConflictError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, catalog.ConflictError{Key: key, Want: want, Got: got}, *c)
}

// All writes of a commit are made or none, revisions rise also over reopening, and a
// commit whose guard does not hold has no effect.
func testCommits(t *testing.T, s Store) {
	ctx, kv := t.Context(), s.Open()
	require.Empty(t, load(t, kv))
	r1, err := kv.Commit(ctx, 0, put("guard", "1"), put("a", ""), put("b", "x"))
	require.NoError(t, err)
	want := map[string]catalog.Entry{
		"guard": {Key: "guard", Value: []byte("1"), Revision: r1}, "a": {Key: "a", Value: []byte{}, Revision: r1}, "b": {Key: "b", Value: []byte("x"), Revision: r1},
	}
	require.Equal(t, want, load(t, kv))
	for _, expect := range []uint64{0, r1 + 1} {
		_, err := kv.Commit(ctx, expect, put("guard", "2"), put("c", "y"))
		wantConflict(t, err, "guard", expect, r1)
	}
	_, err = kv.Commit(ctx, 1, put("absent", ""))
	wantConflict(t, err, "absent", 1, 0)
	require.Equal(t, want, load(t, kv), "after refused commits")

	r2, err := kv.Commit(ctx, r1, put("guard", "2"), catalog.Write{Key: "b"}, catalog.Write{Key: "never"}, put("a", "z"))
	require.NoError(t, err)
	require.Greater(t, r2, r1)
	want = map[string]catalog.Entry{"guard": {Key: "guard", Value: []byte("2"), Revision: r2}, "a": {Key: "a", Value: []byte("z"), Revision: r2}}
	require.NoError(t, kv.Close())
	kv = open(t, s)
	require.Equal(t, want, load(t, kv), "after reopening")

	// A guard may be any key, whatever was committed since. A deleted one is absent, and
	// later revisions stay above its own.
	r3, err := kv.Commit(ctx, 0, put("other", "1"))
	require.NoError(t, err)
	require.Greater(t, r3, r2)
	r4, err := kv.Commit(ctx, r2, catalog.Write{Key: "guard"})
	require.NoError(t, err)
	require.Greater(t, r4, r3)
	r5, err := kv.Commit(ctx, 0, put("guard", "3"))
	require.NoError(t, err)
	require.Greater(t, r5, r4)
	require.NoError(t, kv.Settle(ctx, r5))
	require.GreaterOrEqual(t, kv.Settled(), r5)
	require.NoError(t, kv.Err())
}

// A call whose context has ended, and one of a closed store, are refused.
func testClosed(t *testing.T, s Store) {
	kv := s.Open()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := kv.Commit(cancelled, 0, put("d", ""))
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.Empty(t, load(t, kv))
	followed := make(chan error, 1)
	go func() { followed <- kv.Follow(context.Background(), 0, func(catalog.Committed) error { return nil }) }()
	require.NoError(t, kv.Close())
	require.NoError(t, kv.Close())
	require.True(t, errs.Is(<-followed, errs.Draining))
	_, err = kv.Commit(t.Context(), 0, put("d", ""))
	require.True(t, errs.Is(err, errs.Draining), "%v", err)
}

// Of commits that race on one guard exactly one wins a round.
func testRace(t *testing.T, s Store) {
	kvs := []catalog.KV{open(t, s)}
	if s.Shared {
		kvs = append(kvs, open(t, s), open(t, s))
	}
	var revision uint64
	for round := range 20 {
		var wg sync.WaitGroup
		won := make(chan uint64, 9)
		for i := range 9 {
			kv := kvs[i%len(kvs)]
			wg.Go(func() {
				if _, err := kv.Sync(context.Background()); err != nil {
					t.Error(err)
				}
				r, err := kv.Commit(context.Background(), revision, put("guard", fmt.Sprint(i)), put(fmt.Sprint("of ", i), fmt.Sprint(round)))
				if err == nil {
					won <- r
				} else if _, lost := errors.AsType[*catalog.ConflictError](err); !lost {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Len(t, won, 1, "round %d", round)
		revision = <-won
	}
}

// copyOf is what a follower makes of what it is given.
type copyOf struct {
	mu       sync.Mutex
	entries  map[string]catalog.Entry
	revision uint64
	own      int
	whole    int
}

// follow follows in the background until the test ends.
func follow(t *testing.T, kv catalog.KV, after uint64) *copyOf {
	t.Helper()
	c := &copyOf{entries: map[string]catalog.Entry{}, revision: after}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- kv.Follow(ctx, after, func(m catalog.Committed) error { return c.take(t, m) }) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return c
}

func (c *copyOf) take(t *testing.T, m catalog.Committed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Revision <= c.revision {
		t.Errorf("revision %d after %d", m.Revision, c.revision)
	}
	c.revision = m.Revision
	if m.Own && len(m.Writes) > 0 { // a store may have commits that are its own business
		c.own++
	}
	if m.Whole {
		c.whole++
		clear(c.entries)
		for _, e := range m.Entries {
			c.entries[e.Key] = e
		}
	}
	for _, w := range m.Writes {
		if w.Value == nil {
			delete(c.entries, w.Key)
		} else {
			c.entries[w.Key] = catalog.Entry{Key: w.Key, Value: w.Value, Revision: m.Revision}
		}
	}
	return nil
}

// await waits until the copy has a revision, and returns its entries.
func (c *copyOf) await(t *testing.T, revision uint64) map[string]catalog.Entry {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.revision >= revision
	}, 30*time.Second, time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.entries)
}

// Followers get every commit once, in order, of all processes.
func testFollow(t *testing.T, s Store) {
	a := open(t, s)
	followers := []*copyOf{follow(t, a, 0)}
	committers := []catalog.KV{a}
	if s.Shared {
		b := open(t, s)
		followers = append(followers, follow(t, b, 0))
		committers = append(committers, b)
	}
	const each = 30
	var wg sync.WaitGroup
	for i, kv := range committers {
		wg.Go(func() {
			key, revision := fmt.Sprint("of ", i), uint64(0)
			for n := range each {
				var err error
				if revision, err = kv.Commit(context.Background(), revision, put(key, fmt.Sprint(n)), put("shared", fmt.Sprint(i, n)), catalog.Write{Key: fmt.Sprint("gone ", n)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	end, err := a.Sync(t.Context())
	require.NoError(t, err)
	want := load(t, a)
	require.Len(t, want, len(committers)+1)
	for i, f := range followers {
		require.Equal(t, want, f.await(t, end), "follower %d", i)
		require.Equal(t, each, f.own, "follower %d", i)
		require.Zero(t, f.whole)
	}
	require.NoError(t, a.Settle(t.Context(), end))
	require.NoError(t, a.Lease(t.Context()))
}

// A follower that begins long after the commits it has not seen gets what there is.
func testFollowLate(t *testing.T, s Store) {
	kv := open(t, s)
	revision := uint64(0)
	for n := range 12 {
		var err error
		revision, err = kv.Commit(t.Context(), revision, put("guard", fmt.Sprint(n)), catalog.Write{Key: fmt.Sprint("k", n%7), Value: noise(900_000)})
		require.NoError(t, err)
	}
	want := load(t, kv)
	late, newest := follow(t, kv, 0), follow(t, kv, revision)
	require.Equal(t, want, late.await(t, revision))
	require.Equal(t, 1, late.whole)
	r, err := kv.Commit(t.Context(), revision, put("guard", "last"))
	require.NoError(t, err)
	require.Equal(t, load(t, kv), late.await(t, r))
	require.Len(t, newest.await(t, r), 1, "it is given what is new only")
	require.Zero(t, newest.whole)
}

// Commits may have thousands of writes, and values of hundreds of kilobytes.
func testLarge(t *testing.T, s Store) {
	kv := open(t, s)
	const keys = 10_000
	writes := []catalog.Write{put("guard", "1")}
	deletes := []catalog.Write{put("guard", "2")}
	for i := range keys {
		key := fmt.Sprintf("partition/%010d/%010d", 7, i)
		writes = append(writes, put(key, fmt.Sprintf(`{"id":%d,"values":["2026-11-%02d"],"state":"open"}`, i, i%30)))
		deletes = append(deletes, catalog.Write{Key: key})
	}
	r1, err := kv.Commit(t.Context(), 0, writes...)
	require.NoError(t, err)
	require.Len(t, load(t, kv), keys+1)
	r2, err := kv.Commit(t.Context(), r1, deletes...)
	require.NoError(t, err)
	require.Equal(t, map[string]catalog.Entry{"guard": {Key: "guard", Value: []byte("2"), Revision: r2}}, load(t, kv))
	// Random bytes do not compress.
	big := noise(1_000_000)
	r3, err := kv.Commit(t.Context(), r2, catalog.Write{Key: "guard", Value: big})
	require.NoError(t, err)
	require.NoError(t, kv.Close())
	kv = open(t, s)
	require.Equal(t, map[string]catalog.Entry{"guard": {Key: "guard", Value: big, Revision: r3}}, load(t, kv))
}

func noise(n int) []byte {
	b := make([]byte, n)
	c := rand.NewChaCha8([32]byte{1})
	_, _ = c.Read(b) // it does not fail
	return b
}

// What does not fit is refused as such, and the store goes on.
func testTooLarge(t *testing.T, s Store) {
	if s.TooLarge == 0 {
		return
	}
	kv := open(t, s)
	_, err := kv.Commit(t.Context(), 0, catalog.Write{Key: "guard", Value: noise(s.TooLarge)})
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	require.Empty(t, load(t, kv))
	_, err = kv.Commit(t.Context(), 0, put("guard", "1"))
	require.NoError(t, err)
}

// After Sync everything is there that was acknowledged to anybody before.
func testSync(t *testing.T, s Store) {
	a := open(t, s)
	b := a
	if s.Shared {
		b = open(t, s)
	}
	revision := uint64(0)
	for n := range 50 {
		var err error
		revision, err = a.Commit(t.Context(), revision, put("guard", fmt.Sprint(n)))
		require.NoError(t, err)
		r, err := b.Sync(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, r, revision)
		require.Equal(t, fmt.Sprint(n), string(load(t, b)["guard"].Value))
	}
}
