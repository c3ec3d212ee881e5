package admit

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

func newRoom(bytes int64) *Room { return New(Received, bytes, time.Now, prometheus.NewRegistry()) }

// waits lets a take begin to wait, and gives where its outcome comes.
func waits(t *testing.T, r *Room, bytes int64, hold *Hold, patience time.Duration) chan error {
	t.Helper()
	r.mu.Lock()
	before := len(r.waiting[0]) + len(r.waiting[1])
	r.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- r.take(context.Background(), bytes, hold, patience) }()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.waiting[0])+len(r.waiting[1]) > before
	}, time.Minute, time.Millisecond)
	return done
}

// M1, M2, M4: who holds nothing may take half, who holds something three quarters and one of
// them all; those come first, the others in their order, and who waits too long is refused
// with a hint and lets others in.
func TestRoom(t *testing.T) {
	ctx := t.Context()
	r := newRoom(100)
	require.NoError(t, r.Take(ctx, 100, 0), "when nobody has anything, anything fits")
	r.Give(100)
	require.NoError(t, r.Take(ctx, 50, time.Minute))
	err := r.Take(ctx, 1, time.Millisecond)
	require.Equal(t, errs.Overloaded, errs.CodeOf(err))
	require.GreaterOrEqual(t, err.(*errs.Error).Wait(), 1) //nolint:errorlint // it is what is given
	a, b := r.Hold(), r.Hold()
	require.NoError(t, r.take(ctx, 25, a, time.Minute))
	require.NoError(t, r.take(ctx, 20, a, time.Minute)) // 95 of 100, and the last quarter is a's

	large := waits(t, r, 40, nil, time.Minute)
	held := waits(t, r, 5, b, time.Minute)
	small := waits(t, r, 1, nil, time.Minute)
	require.NoError(t, r.take(ctx, 5, a, time.Minute), "before those who wait")
	require.Equal(t, int64(100), r.used)
	r.done(50, a)
	require.NoError(t, <-held)
	select { // 55
	case err := <-large:
		t.Fatal("95 are more than half", err)
	case err := <-small:
		t.Fatal("it came later", err)
	default:
	}
	r.Give(46) // 9
	require.NoError(t, <-large)
	require.NoError(t, <-small)
	r.done(50, b)
	require.Zero(t, r.used)

	require.NoError(t, r.Take(ctx, 45, 0))
	large = waits(t, r, 40, nil, time.Minute)
	for range maxPassed {
		require.NoError(t, r.Take(ctx, 5, 0), "one that does not fit keeps nobody out")
		r.Give(5)
	}
	small = waits(t, r, 5, nil, time.Minute)
	r.Give(45)
	require.NoError(t, <-large, "for ever")
	require.NoError(t, <-small)
	r.Give(40)
	require.NoError(t, r.Take(ctx, 40, 0))
	large = waits(t, r, 40, nil, 50*time.Millisecond)
	require.Equal(t, errs.Overloaded, errs.CodeOf(<-large))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, r.Take(ended, 40, time.Minute), context.Canceled)
	require.Equal(t, int64(45), r.used)
}

// M3: a hold takes what came, and gives back all of it, also when it is refused.
func TestHold(t *testing.T) {
	now := time.Unix(0, 0)
	r := New(Received, 10*piece, func() time.Time { return now }, prometheus.NewRegistry())
	h := r.Hold()
	in := h.Reader(t.Context(), strings.NewReader(strings.Repeat("x", 3*piece+1)))
	b := make([]byte, 1)
	n, err := in.Read(b)
	require.True(t, n == 1 && err == nil)
	require.Equal(t, int64(piece), r.used)
	all, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Len(t, all, 3*piece)
	require.Equal(t, int64(4*piece), r.used)

	// Slow, and nobody waits: it may.
	now = now.Add(time.Hour)
	require.NoError(t, h.Grow(t.Context(), 1))
	other := r.Hold()
	require.NoError(t, other.Grow(t.Context(), 6*piece))
	require.Equal(t, int64(10*piece), r.used)
	// When somebody waits it may not, and lets him in.
	waiting := waits(t, r, piece, r.Hold(), time.Minute)
	err = h.Grow(t.Context(), 1)
	require.Equal(t, errs.Overloaded, errs.CodeOf(err))
	require.NoError(t, <-waiting)
	require.Equal(t, int64(7*piece), r.used)
	r.Give(piece)
	other.Done()
	require.NoError(t, h.Grow(t.Context(), 1), "it begins anew")
	h.Done()
	h.Done()
	require.Zero(t, r.used)
}

// M1, M3: the rows of a body take room besides it, and a body and rows that are more than the
// room take all of it, when nobody else has anything.
func TestHoldRows(t *testing.T) {
	r := newRoom(8 * piece)
	r.patience = [2]time.Duration{time.Millisecond, time.Millisecond}
	h, other := r.Hold(), r.Hold()
	require.NoError(t, h.Grow(t.Context(), piece))
	require.NoError(t, h.Rows(t.Context(), piece+1))
	require.Equal(t, int64(3*piece), r.Held())
	require.NoError(t, other.Grow(t.Context(), 1))
	require.Equal(t, errs.Overloaded, errs.CodeOf(h.Rows(t.Context(), 100*piece)), "another has a piece")
	require.Equal(t, int64(piece), r.Held())
	other.Done()
	require.NoError(t, h.Grow(t.Context(), 1), "it begins anew")
	require.NoError(t, h.Rows(t.Context(), 100*piece))
	require.Equal(t, r.Limit(), r.Held())
	h.Done()
	require.Zero(t, r.Held())
}

// M1, M3: what is sent is held by what it is now; who holds it for long lets go of it when
// others wait.
func TestHoldSet(t *testing.T) {
	now := time.Unix(0, 0)
	r := New(Sent, 100, func() time.Time { return now }, prometheus.NewRegistry())
	h := r.Hold()
	set := func(h *Hold, bytes int64) error { return h.Set(t.Context(), bytes, time.Millisecond) }
	require.NoError(t, set(h, 50))
	require.NoError(t, set(h, 20))
	require.NoError(t, set(h, 30))
	require.Equal(t, int64(30), r.Held())
	now = now.Add(time.Hour)
	require.NoError(t, h.Slow(), "nobody waits")
	other := r.Hold()
	require.Equal(t, errs.Overloaded, errs.CodeOf(set(other, 21)), "it would be more than half")
	require.Equal(t, int64(30), r.Held())
	waiting := waits(t, r, 30, nil, time.Minute)
	require.NoError(t, other.Slow(), "it has nothing")
	err := h.Slow()
	require.Equal(t, errs.Overloaded, errs.CodeOf(err))
	require.Contains(t, err.Error(), "slowly")
	require.NoError(t, <-waiting)
	require.Equal(t, int64(30), r.Held())
	r.Give(30)
	require.NoError(t, set(h, 1000), "all that there is")
	require.Equal(t, int64(100), r.Held())
	require.NoError(t, set(h, 0))
	require.Zero(t, r.Held())
}

// M2: many bodies that together need several times the room, each holding part of it while
// it waits for more, are all served in time: there is always one that gets to its end.
func TestNoDeadlock(t *testing.T) {
	r := newRoom(64 * piece)
	r.patience = [2]time.Duration{time.Minute, time.Minute}
	var served atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 20 {
				h := r.Hold()
				for range 1 + rand.IntN(16) { // the last quarter is 16
					if err := h.Grow(t.Context(), piece); err != nil {
						t.Error(err)
						return
					}
					r.mu.Lock()
					used := r.used
					r.mu.Unlock()
					runtime.Gosched()
					if used > r.limit {
						t.Errorf("%d of %d bytes are held", used, r.limit)
					}
				}
				h.Done()
				served.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, r.used)
	require.Nil(t, r.last)
	require.Equal(t, int64(64*20), served.Load())
	require.Empty(t, r.waiting[0])
	require.Empty(t, r.waiting[1])
}

// An error of the body itself is passed on.
func TestReaderFails(t *testing.T) {
	broken := errors.New("broken")
	h := newRoom(1 << 20).Hold()
	_, err := h.Reader(t.Context(), io.MultiReader(strings.NewReader("x"), failing{broken})).Read(nil)
	require.NoError(t, err)
	_, err = io.ReadAll(h.Reader(t.Context(), failing{broken}))
	require.ErrorIs(t, err, broken)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
