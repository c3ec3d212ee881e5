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

func newRoom(bytes int64) *Room { return New(bytes, time.Now, prometheus.NewRegistry()) }

// waits lets a Take begin to wait, and gives where its outcome comes.
func waits(t *testing.T, r *Room, bytes int64, holds bool, patience time.Duration) chan error {
	t.Helper()
	r.mu.Lock()
	before := len(r.waiting[0]) + len(r.waiting[1])
	r.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- r.Take(context.Background(), bytes, holds, patience) }()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.waiting[0])+len(r.waiting[1]) > before
	}, time.Minute, time.Millisecond)
	return done
}

// M1, M2, M4: the last quarter is for those who hold something, who come first; the others
// come in their order, and who waits too long is refused with a hint and lets others in.
func TestRoom(t *testing.T) {
	ctx := t.Context()
	r := newRoom(100)
	require.NoError(t, r.Take(ctx, 100, false, 0), "when nobody has anything, anything fits")
	r.Give(100)
	require.NoError(t, r.Take(ctx, 75, false, time.Minute))
	err := r.Take(ctx, 1, false, time.Millisecond)
	require.Equal(t, errs.Overloaded, errs.CodeOf(err))
	require.GreaterOrEqual(t, err.(*errs.Error).Wait(), 1) //nolint:errorlint // it is what is given
	require.NoError(t, r.Take(ctx, 20, true, time.Minute))

	large := waits(t, r, 60, false, time.Minute)
	small := waits(t, r, 1, false, time.Minute)
	held := waits(t, r, 10, true, time.Minute)
	r.Give(5) // 90 of 100
	require.NoError(t, <-held)
	require.Equal(t, int64(100), r.used)
	r.Give(80) // 20
	select {
	case err := <-large:
		t.Fatal("80 are more than three quarters", err)
	case err := <-small:
		t.Fatal("it came later", err)
	default:
	}
	r.Give(10) // 10
	require.NoError(t, <-large)
	require.NoError(t, <-small)
	r.Give(71)
	require.Zero(t, r.used)

	require.NoError(t, r.Take(ctx, 70, false, 0))
	large = waits(t, r, 60, false, 50*time.Millisecond)
	small = waits(t, r, 5, false, time.Minute)
	require.Equal(t, errs.Overloaded, errs.CodeOf(<-large))
	require.NoError(t, <-small, "what waited behind it fits")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, r.Take(ended, 60, false, time.Minute), context.Canceled)
	require.Equal(t, int64(75), r.used)
}

// M3: a hold takes what came, and gives back all of it, also when it is refused.
func TestHold(t *testing.T) {
	now := time.Unix(0, 0)
	r := New(10*piece, func() time.Time { return now }, prometheus.NewRegistry())
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
	waiting := waits(t, r, piece, false, time.Minute)
	err = h.Grow(t.Context(), 1)
	require.Equal(t, errs.Overloaded, errs.CodeOf(err))
	require.NoError(t, <-waiting)
	require.Equal(t, int64(7*piece), r.used)
	r.Give(piece)
	require.NoError(t, h.Grow(t.Context(), 1), "it begins anew")
	h.Done()
	h.Done()
	other.Done()
	require.Zero(t, r.used)
}

// M2: many bodies that together need several times the room, each holding part of it while
// it waits for more, all come to an end, and what is held is never more than the room.
func TestNoDeadlock(t *testing.T) {
	r := newRoom(12 * piece)
	r.patience = [2]time.Duration{time.Millisecond, 5 * time.Millisecond}
	var served, refused atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 20 {
				h := r.Hold()
				for range 1 + rand.IntN(16) {
					if err := h.Grow(t.Context(), piece); err != nil {
						if !errs.Is(err, errs.Overloaded) {
							t.Error(err)
						}
						refused.Add(1)
						break
					}
					r.mu.Lock()
					used := r.used
					r.mu.Unlock()
					runtime.Gosched()
					if used > r.limit {
						t.Errorf("%d of %d bytes are held", used, r.limit)
					}
				}
				if h.taken > 0 {
					served.Add(1)
				}
				h.Done()
			}
		})
	}
	wg.Wait()
	require.Zero(t, r.used)
	require.Positive(t, served.Load())
	require.Empty(t, r.waiting[0])
	require.Empty(t, r.waiting[1])
	t.Logf("%d served, %d refused", served.Load(), refused.Load())
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
