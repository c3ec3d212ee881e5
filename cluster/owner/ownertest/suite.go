package ownertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/errs"
)

// RunSuite runs the contract of owner.Keys; newStore makes an empty store and gives ways
// to it, each of another process.
func RunSuite(t *testing.T, newStore func(t *testing.T) (client func() owner.Keys)) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, client func() owner.Keys)
	}{
		{"compare and set", testCompareAndSet},
		{"bad keys", testBadKeys},
		{"race", testRace},
		{"watch", testWatch},
		{"watch follows in order", testWatchOrder},
		{"watch ends", testWatchEnds},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newStore(t)) })
	}
}

func wantConflict(t *testing.T, err error, key string, want, got uint64) {
	t.Helper()
	conflict, ok := errors.AsType[*owner.ConflictError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, owner.ConflictError{Key: key, Want: want, Got: got}, *conflict)
}

// A change is made on exactly the revision it expects, revisions rise over deletions, and
// what one client did another reads.
func testCompareAndSet(t *testing.T, client func() owner.Keys) {
	ctx, a, b := t.Context(), client(), client()
	_, ok, err := b.Get(ctx, "lease.1")
	require.NoError(t, err)
	require.False(t, ok)

	r1, err := a.Create(ctx, "lease.1", []byte("a"))
	require.NoError(t, err)
	require.NotZero(t, r1)
	_, err = b.Create(ctx, "lease.1", []byte("b"))
	wantConflict(t, err, "lease.1", 0, r1)
	got, ok, err := b.Get(ctx, "lease.1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, owner.Entry{Key: "lease.1", Value: []byte("a"), Revision: r1}, got)

	r2, err := b.Update(ctx, "lease.1", []byte("b"), r1)
	require.NoError(t, err)
	require.Greater(t, r2, r1)
	_, err = a.Update(ctx, "lease.1", []byte("c"), r1)
	wantConflict(t, err, "lease.1", r1, r2)
	wantConflict(t, a.Delete(ctx, "lease.1", r1), "lease.1", r1, r2)
	_, err = a.Update(ctx, "lease.2", []byte("c"), r2)
	wantConflict(t, err, "lease.2", r2, 0)
	wantConflict(t, a.Delete(ctx, "lease.2", r2), "lease.2", r2, 0)

	require.NoError(t, a.Delete(ctx, "lease.1", r2))
	_, ok, err = b.Get(ctx, "lease.1")
	require.NoError(t, err)
	require.False(t, ok)
	wantConflict(t, a.Delete(ctx, "lease.1", r2), "lease.1", r2, 0)
	_, err = a.Update(ctx, "lease.1", []byte("d"), r2)
	wantConflict(t, err, "lease.1", r2, 0)
	r3, err := b.Create(ctx, "lease.1", []byte("e"))
	require.NoError(t, err)
	require.Greater(t, r3, r2)
	r4, err := a.Update(ctx, "lease.1", []byte("f"), r3)
	require.NoError(t, err)
	require.Greater(t, r4, r3)
}

func testBadKeys(t *testing.T, client func() owner.Keys) {
	ctx, keys := t.Context(), client()
	for _, key := range []string{"", ".", "a.", ".a", "a..b", "a b", "a*", "a.>", "ä", "a/b", strings.Repeat("k", owner.MaxKeyBytes+1)} {
		_, err := keys.Create(ctx, key, []byte("x"))
		require.True(t, errs.Is(err, errs.InvalidValue), "%q: %v", key, err)
		_, _, err = keys.Get(ctx, key)
		require.True(t, errs.Is(err, errs.InvalidValue), "%q: %v", key, err)
		require.True(t, errs.Is(keys.Delete(ctx, key, 1), errs.InvalidValue), "%q", key)
	}
	for _, value := range [][]byte{nil, {}, make([]byte, owner.MaxValueBytes+1)} {
		_, err := keys.Create(ctx, "k", value)
		require.True(t, errs.Is(err, errs.InvalidValue), "%d bytes: %v", len(value), err)
	}
	r, err := keys.Create(ctx, strings.Repeat("k", owner.MaxKeyBytes), make([]byte, owner.MaxValueBytes))
	require.NoError(t, err)
	require.NotZero(t, r)
	require.True(t, errs.Is(keys.Delete(ctx, "k", 0), errs.InvalidValue))
	for _, prefix := range []string{"a", ".", "a*."} {
		err := keys.Watch(ctx, prefix, func(owner.Event) error { return nil })
		require.True(t, errs.Is(err, errs.InvalidValue), "%q: %v", prefix, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = keys.Create(cancelled, "k", []byte("x"))
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	_, ok, err := keys.Get(ctx, "k")
	require.NoError(t, err)
	require.False(t, ok, "a change that was refused was made")
}

// Of clients that race for one revision exactly one wins.
func testRace(t *testing.T, client func() owner.Keys) {
	clients := make([]owner.Keys, 4)
	for i := range clients {
		clients[i] = client()
	}
	revision := uint64(0)
	for round := range 20 {
		won, wg := make(chan uint64, len(clients)), sync.WaitGroup{}
		for i, keys := range clients {
			wg.Go(func() {
				r, err := keys.Update(t.Context(), "lease.0", fmt.Appendf(nil, "%d of client %d", round, i), revision)
				if err == nil {
					won <- r
				} else if _, lost := errors.AsType[*owner.ConflictError](err); !lost {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Len(t, won, 1, "round %d", round)
		revision = <-won
	}
}

// watch runs Watch in the background, and hands over what it is told.
func watch(t *testing.T, keys owner.Keys, prefix string) <-chan owner.Event {
	t.Helper()
	events := make(chan owner.Event, 10_000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- keys.Watch(ctx, prefix, func(e owner.Event) error {
			events <- e
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return events
}

func next(t *testing.T, events <-chan owner.Event) owner.Event {
	t.Helper()
	wait := time.NewTimer(30 * time.Second)
	defer wait.Stop()
	select {
	case e := <-events:
		return e
	case <-wait.C:
		require.FailNow(t, "the watcher is told nothing")
		panic("unreachable")
	}
}

// A watcher is told what there is, that it is up to date, and then every change under
// its prefix.
func testWatch(t *testing.T, client func() owner.Keys) {
	ctx, a := t.Context(), client()
	empty := watch(t, client(), "session.")
	require.Equal(t, owner.Event{Kind: owner.UpToDate}, next(t, empty))

	r1, err := a.Create(ctx, "session.a", []byte("1"))
	require.NoError(t, err)
	r2, err := a.Create(ctx, "session.b", []byte("1"))
	require.NoError(t, err)
	_, err = a.Create(ctx, "sessions", []byte("not under the prefix"))
	require.NoError(t, err)
	require.NoError(t, a.Delete(ctx, "session.a", r1))
	r4, err := a.Update(ctx, "session.b", []byte("2"), r2)
	require.NoError(t, err)

	put := func(key, value string, r uint64) owner.Event {
		return owner.Event{Kind: owner.Put, Entry: owner.Entry{Key: key, Value: []byte(value), Revision: r}}
	}
	last := func(events <-chan owner.Event, want owner.Event) {
		t.Helper()
		revisions := map[string]uint64{}
		for {
			e := next(t, events)
			require.True(t, strings.HasPrefix(e.Key, "session."), "%q", e.Key)
			require.Greater(t, e.Revision, revisions[e.Key], "%+v", e)
			revisions[e.Key] = e.Revision
			if e.Revision >= want.Revision {
				require.Equal(t, want, e)
				return
			}
		}
	}
	last(empty, put("session.b", "2", r4))

	// One that begins later is told only what is there.
	full := watch(t, client(), "session.")
	require.Equal(t, put("session.b", "2", r4), next(t, full))
	require.Equal(t, owner.Event{Kind: owner.UpToDate}, next(t, full))
	everything := watch(t, client(), "")
	keys := map[string]bool{}
	for e := next(t, everything); e.Kind != owner.UpToDate; e = next(t, everything) {
		keys[e.Key] = true
	}
	require.Equal(t, map[string]bool{"session.b": true, "sessions": true}, keys)

	require.NoError(t, a.Delete(ctx, "session.b", r4))
	for _, events := range []<-chan owner.Event{empty, full, everything} {
		e := next(t, events)
		require.Equal(t, owner.Deleted, e.Kind)
		require.Equal(t, "session.b", e.Key)
		require.Greater(t, e.Revision, r4)
		require.Empty(t, e.Value)
	}
	r6, err := a.Create(ctx, "session.b", []byte("3"))
	require.NoError(t, err)
	for _, events := range []<-chan owner.Event{empty, full, everything} {
		require.Equal(t, put("session.b", "3", r6), next(t, events))
	}
}

// While several clients change keys, a watcher's picture of them ends as the store's.
func testWatchOrder(t *testing.T, client func() owner.Keys) {
	events := watch(t, client(), "w.")
	const clients, changes = 3, 60
	var wg sync.WaitGroup
	for i := range clients {
		keys := client()
		wg.Go(func() {
			key, revision := fmt.Sprintf("w.%d", i), uint64(0)
			for n := range changes {
				var err error
				if n%10 == 9 {
					err, revision = keys.Delete(t.Context(), key, revision), 0
				} else {
					revision, err = keys.Update(t.Context(), key, fmt.Appendf(nil, "%d", n), revision)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			if _, err := keys.Create(t.Context(), key, []byte("end")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	revisions, ended := map[string]uint64{}, 0
	for ended < clients {
		e := next(t, events)
		if e.Kind == owner.UpToDate {
			continue
		}
		require.Greater(t, e.Revision, revisions[e.Key], "%+v", e)
		revisions[e.Key] = e.Revision
		if string(e.Value) == "end" {
			ended++
		}
	}
	require.Len(t, revisions, clients)
}

// Watch returns what fn failed with.
func testWatchEnds(t *testing.T, client func() owner.Keys) {
	stop := errors.New("enough")
	err := client().Watch(t.Context(), "", func(owner.Event) error { return stop })
	require.ErrorIs(t, err, stop)
}
