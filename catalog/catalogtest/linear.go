package catalogtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/catalog"
)

// Keys that commits of a History write together; each is a guard of some.
var historyKeys = [...]string{"a", "b", "c"}

// state is what the model holds of each key: the number of the commit that wrote it,
// and its revision. It is comparable.
type state [len(historyKeys)]struct {
	value    int
	revision uint64
}

// step is what a client did.
type step struct {
	read   bool
	value  int // of a commit
	guard  int
	expect uint64
}

// result is what came of it.
type result struct {
	state    state  // of a read
	revision uint64 // of a commit that was made
	got      uint64 // of one that was refused
	refused  bool
}

// model says what a store does: a commit whose guard holds writes all keys, with a
// revision above all others, and a read finds all of that.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) {
		st, i, o := s.(state), in.(step), out.(result)
		switch {
		case i.read:
			return o.state == st, st
		case o.refused:
			// The revision told may be one that the guard has had since.
			return st[i.guard].revision != i.expect && o.got != i.expect && o.got <= st[i.guard].revision, st
		case st[i.guard].revision != i.expect:
			return false, st
		}
		for k := range st {
			if o.revision <= st[k].revision {
				return false, st
			}
			st[k].value, st[k].revision = i.value, o.revision
		}
		return true, st
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %+v", in, out) },
}

// History makes commits and reads by several clients at a time, and checks that what
// they were told could have happened one after the other.
type History struct {
	mu      sync.Mutex
	ops     []porcupine.Operation
	unknown map[int]porcupine.Operation // commits without an outcome, by their number
	clock   atomic.Int64
	numbers atomic.Int64
}

// Run runs a client until ctx ends.
func (h *History) Run(ctx context.Context, client int, kv catalog.KV) {
	rng := rand.New(rand.NewPCG(uint64(client), 1))
	for ctx.Err() == nil {
		call := h.clock.Add(1)
		seen, err := readState(ctx, kv)
		if err != nil {
			continue
		}
		if h.add(client, step{read: true}, result{state: seen}, call); rng.IntN(3) == 0 {
			continue
		}
		s := step{value: int(h.numbers.Add(1)), guard: rng.IntN(len(historyKeys))}
		s.expect = seen[s.guard].revision
		writes := []catalog.Write{put(historyKeys[s.guard], fmt.Sprint(s.value))}
		for k, key := range historyKeys {
			if k != s.guard {
				writes = append(writes, put(key, fmt.Sprint(s.value)))
			}
		}
		call = h.clock.Add(1)
		revision, err := kv.Commit(ctx, s.expect, writes...)
		conflict, refused := errors.AsType[*catalog.ConflictError](err)
		switch {
		case err == nil:
			h.add(client, s, result{revision: revision}, call)
		case refused:
			h.add(client, s, result{refused: true, got: conflict.Got}, call)
		default:
			h.mu.Lock()
			if h.unknown == nil {
				h.unknown = map[int]porcupine.Operation{}
			}
			h.unknown[s.value] = porcupine.Operation{ClientId: client, Input: s, Call: call}
			h.mu.Unlock()
		}
	}
}

func readState(ctx context.Context, kv catalog.KV) (s state, err error) {
	if _, err := kv.Sync(ctx); err != nil {
		return s, err
	}
	entries, _, err := kv.Load(ctx)
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		for k, key := range historyKeys {
			if e.Key == key {
				if _, err := fmt.Sscan(string(e.Value), &s[k].value); err != nil {
					return s, err
				}
				s[k].revision = e.Revision
			}
		}
	}
	return s, nil
}

func (h *History) add(client int, in step, out result, call int64) {
	ret := h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: ret})
}

// Check checks what was done. Commits whose outcome nobody told are looked for among
// those that a follower saw, by their number: made is their revision.
func (h *History) Check(t *testing.T, made map[int]uint64, least int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := h.ops
	end := h.clock.Add(1)
	found := 0
	for value, op := range maps.All(h.unknown) {
		if revision := made[value]; revision > 0 {
			op.Output, op.Return = result{revision: revision}, end
			ops = append(ops, op)
			found++
		}
	}
	t.Logf("%d operations, and %d commits without an outcome, %d of them made", len(h.ops), len(h.unknown), found)
	require.Greater(t, len(ops), least)
	result, _ := porcupine.CheckOperationsVerbose(model, ops, time.Minute)
	require.Equal(t, porcupine.Ok, result)
}

// Made follows a store from its beginning, and returns the commits of a History by
// their numbers, when done is called.
func Made(t *testing.T, kv catalog.KV) (done func() map[int]uint64) {
	made, end := map[int]uint64{}, make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var revision atomic.Uint64
	go func() {
		end <- kv.Follow(ctx, 0, func(c catalog.Committed) error {
			if c.Whole {
				t.Error("the follower missed commits")
			}
			for _, w := range c.Writes {
				value := 0
				if _, err := fmt.Sscan(string(w.Value), &value); w.Key == historyKeys[0] && err == nil {
					made[value] = c.Revision
				}
			}
			revision.Store(c.Revision)
			return nil
		})
	}()
	return func() map[int]uint64 {
		last, err := kv.Sync(t.Context())
		require.NoError(t, err)
		require.Eventually(t, func() bool { return revision.Load() >= last }, 30*time.Second, time.Millisecond)
		cancel()
		require.ErrorIs(t, <-end, context.Canceled)
		return made
	}
}

// What many clients are told could have happened one after the other: every commit is
// there whole or not at all, and reads after Sync miss nothing.
func testLinearizable(t *testing.T, s Store) {
	kvs := []catalog.KV{open(t, s)}
	if s.Shared {
		kvs = append(kvs, open(t, s), open(t, s))
	}
	h, made := &History{}, Made(t, kvs[0])
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() { h.Run(ctx, i, kvs[i%len(kvs)]) })
	}
	wg.Wait()
	h.Check(t, made(), 50)
}
