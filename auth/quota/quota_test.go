package quota_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/quota"
	"github.com/millrace/millrace/errs"
)

// clock is a time that passes by sleeping alone.
type clock struct {
	mu    sync.Mutex
	now   time.Time
	slept time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.slept = c.now.Add(d), c.slept+d
	return ctx.Err()
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type limits map[string]quota.Limits

func newQuotas(l limits) (*quota.Quotas, *clock) {
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	return quota.New(quota.Options{Limits: func(name string) quota.Limits { return l[name] }, Clock: c, Registerer: prometheus.NewRegistry()}), c
}

func as(t interface{ Context() context.Context }, subject string, groups ...string) context.Context {
	return auth.With(t.Context(), auth.NewPrincipal(subject, groups, time.Time{}))
}

// A request of any size is served; the next one waits a second at most, or is told how
// long to wait, and is charged nothing then.
func TestRequestsWait(t *testing.T) {
	q, c := newQuotas(limits{"user:ann": {WriteRows: 100}})
	ann := as(t, "ann")
	require.NoError(t, q.Write(ann, 450, 1<<30))
	require.Zero(t, c.slept)
	for range 3 { // it is overdrawn by 350
		err := q.Write(ann, 1, 1)
		require.True(t, errs.Is(err, errs.QuotaExceeded), "%v", err)
		require.ErrorContains(t, err, "write_rows_per_s is used up for another 4s")
		require.Equal(t, 4, err.(*errs.Error).Wait()) //nolint:errorlint // it is what is given
	}
	require.NoError(t, q.Read(ann, 1<<40), "of which there is no quota")
	c.pass(3 * time.Second)
	require.NoError(t, q.Write(ann, 1, 1))
	require.InDelta(t, 0.5, c.slept.Seconds(), 0.01)
	require.NoError(t, q.Write(as(t, "bob"), 1000, 1))
	require.NoError(t, q.Write(auth.With(t.Context(), auth.System), 1000, 1))
	require.NoError(t, q.Write(t.Context(), 1000, 1))
}

// A stream waits as long as it takes, unless it ends.
func TestStreamsWait(t *testing.T) {
	q, c := newQuotas(limits{"user:ann": {ReadBytes: 1000}})
	ctx, cancel := context.WithCancel(quota.Streaming(as(t, "ann")))
	defer cancel()
	for range 10 {
		require.NoError(t, q.Read(ctx, 10_000))
	}
	require.InDelta(t, 90, c.slept.Seconds(), 2)
	cancel()
	require.ErrorIs(t, q.Read(ctx, 1), context.Canceled)
}

// A group's quota is shared by its members, and holds beside their own.
func TestGroups(t *testing.T) {
	q, c := newQuotas(limits{"group:g": {WriteBytes: 1000}, "user:ann": {WriteBytes: 100}})
	require.NoError(t, q.Write(as(t, "bob", "g"), 1, 600))
	require.NoError(t, q.Write(as(t, "ann", "g"), 1, 100))
	require.NoError(t, q.Write(as(t, "eve", "g"), 1, 400))
	require.Zero(t, c.slept)
	require.NoError(t, q.Write(as(t, "eve", "g"), 1, 5000), "after a wait")
	require.NotZero(t, c.slept)
	require.True(t, errs.Is(q.Write(as(t, "bob", "g"), 1, 1), errs.QuotaExceeded))
	require.True(t, errs.Is(q.Write(as(t, "ann", "g"), 1, 1), errs.QuotaExceeded), "of the group")
	require.NoError(t, q.Write(as(t, "ann"), 1, 1), "not of the group any more")
}

// So many streams at a time.
func TestStreams(t *testing.T) {
	q, _ := newQuotas(limits{"user:ann": {Streams: 2}, "group:g": {Streams: 2}})
	ann := as(t, "ann")
	one, err := q.Stream(ann)
	require.NoError(t, err)
	_, err = q.Stream(ann)
	require.NoError(t, err)
	_, err = q.Stream(ann)
	require.True(t, errs.Is(err, errs.QuotaExceeded), "%v", err)
	one()
	one() // counts once
	_, err = q.Stream(ann)
	require.NoError(t, err)
	_, err = q.Stream(ann)
	require.Error(t, err)
	two := as(t, "bob", "g")
	for range 2 {
		_, err = q.Stream(two)
		require.NoError(t, err)
	}
	_, err = q.Stream(as(t, "eve", "g"))
	require.ErrorContains(t, err, "group:g has 2 streams open")
	for range 10 {
		_, err = q.Stream(as(t, "zoe"))
		require.NoError(t, err)
	}
}

// U1: whatever is asked for and whenever, what is given in any span of time is at most
// what the limit gives in it and a second more, and the last request.
func TestBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 1000).Draw(t, "limit")
		q, c := newQuotas(limits{"user:ann": {WriteRows: limit}})
		began := c.now
		given, last := 0, 0
		for range rapid.IntRange(1, 50).Draw(t, "requests") {
			c.pass(time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause")) * time.Millisecond)
			n := rapid.IntRange(1, 3000).Draw(t, "rows")
			if q.Write(as(t, "ann"), n, 1) == nil {
				given, last = given+n, n
			}
			if most := float64(limit)*(c.now.Sub(began).Seconds()+1) + float64(last); float64(given) > most+1 {
				t.Fatalf("%d rows in %v with %d a second; at most %v", given, c.now.Sub(began), limit, most)
			}
		}
	})
}

// Who asks again when told to gets what the limit gives.
func TestGoodput(t *testing.T) {
	q, c := newQuotas(limits{"user:ann": {WriteRows: 1000}})
	began, given := c.now, 0
	for c.now.Sub(began) < time.Minute {
		err := q.Write(as(t, "ann"), 1500, 1)
		if err == nil {
			given += 1500
			continue
		}
		c.pass(time.Duration(err.(*errs.Error).Wait()) * time.Second) //nolint:errorlint // it is what is given
	}
	require.Greater(t, given, 55_000)
	require.Less(t, given, 64_000)
}
