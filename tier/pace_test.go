package tier

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type bubbleClock struct{}

func (bubbleClock) Now() time.Time { return time.Now() }

// clients is a source of which only the work of clients is known.
type clients struct {
	Source
	work func() int64
}

func (c clients) Foreground() int64 { return c.work() }

// A round takes its share of the processors while clients are at work, and all of the
// time when they are idle or it is late.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		name   string
		busy   bool
		late   time.Duration // after the beginning; 0: never
		rounds int
		share  float64
	}{
		{"busy", true, 0, 1, share * float64(runtime.GOMAXPROCS(0))},
		{"two of them", true, 0, 2, share * float64(runtime.GOMAXPROCS(0)) / 2},
		{"idle", false, 0, 1, 1},
		{"late", true, time.Nanosecond, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pacer{clock: bubbleClock{}}
				src := clients{work: func() int64 {
					if c.busy {
						return time.Now().UnixMilli()
					}
					return 7
				}}
				var late time.Time
				if c.late > 0 {
					late = time.Now().Add(c.late)
				}
				rests := make([]rest, c.rounds)
				for i := range rests {
					rests[i] = p.begin(src, late)
				}
				time.Sleep(100 * time.Millisecond)
				r := &rests[0]
				require.NoError(t, r.pause(t.Context()))
				began, worked := time.Now(), time.Duration(0)
				for range 200 {
					time.Sleep(30 * time.Millisecond)
					worked += 30 * time.Millisecond
					require.NoError(t, r.pause(t.Context()))
				}
				require.InDelta(t, min(1, c.share), float64(worked)/float64(time.Since(began)), 0.03)
			})
		})
	}
}

// Clients that stop working let a round have all of the time soon, and the end of a round
// does not wait for a rest.
func TestPaceCalms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{clock: bubbleClock{}}
		count := int64(0)
		r := p.begin(clients{work: func() int64 { return count }}, time.Time{})
		require.NoError(t, r.pause(t.Context()))
		time.Sleep(50 * time.Millisecond)
		count++
		began := time.Now()
		require.NoError(t, r.pause(t.Context()))
		require.Greater(t, time.Since(began), 100*time.Millisecond)
		time.Sleep(calmAfter)
		began = time.Now()
		require.NoError(t, r.pause(t.Context()))
		require.Zero(t, time.Since(began))

		count++
		ctx, cancel := context.WithCancelCause(t.Context())
		time.Sleep(time.Hour)
		began = time.Now()
		time.AfterFunc(time.Millisecond, func() { cancel(errInterrupted) })
		require.ErrorIs(t, r.pause(ctx), errInterrupted)
		require.Equal(t, time.Millisecond, time.Since(began))
	})
}

// A round that becomes late under way stops resting then, and not only after the rest that
// it is in.
func TestPaceGetsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{clock: bubbleClock{}}
		r := p.begin(clients{work: func() int64 { return time.Now().UnixMicro() }}, time.Now().Add(1300*time.Millisecond))
		require.NoError(t, r.pause(t.Context())) // the first look at the clients
		began := time.Now()
		time.Sleep(time.Second)
		require.NoError(t, r.pause(t.Context()))
		require.Equal(t, 1300*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		require.NoError(t, r.pause(t.Context()))
		require.Equal(t, 2300*time.Millisecond, time.Since(began))
	})
}
