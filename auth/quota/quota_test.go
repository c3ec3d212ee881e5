package quota_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
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

func (c *clock) sleep(ctx context.Context, d time.Duration) error {
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

type limits map[string]millrace.Limits

func newQuotas(l limits) (*quota.Quotas, *clock) {
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	of := func(name string) *millrace.Quota {
		if limits, has := l[name]; has {
			return &millrace.Quota{Principal: name, Limits: limits}
		}
		return nil
	}
	return quota.New(quota.Options{Quota: of, Clock: c, Sleep: c.sleep, Registerer: prometheus.NewRegistry()}), c
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
		require.ErrorContains(t, err, "write_rows_per_s of user:ann is used up for another 4s")
		require.Equal(t, 4, err.(*errs.Error).Wait()) //nolint:errorlint // it is what is given
	}
	require.Error(t, q.MayWrite(ann))
	require.NoError(t, q.MayRead(ann))
	may, err := q.Read(ann, 1<<40, 0)
	require.True(t, may && err == nil, "of which there is no quota")
	c.pass(3 * time.Second)
	require.NoError(t, q.Write(ann, 1, 1))
	require.InDelta(t, 0.5, c.slept.Seconds(), 0.01)
	require.NoError(t, q.Write(as(t, "bob"), 1000, 1))
	require.NoError(t, q.Write(auth.With(t.Context(), auth.System), 1000, 1))
	require.NoError(t, q.Write(t.Context(), 1000, 1))
}

// A read that has begun goes on, and is charged; the next one is refused. One of a stream
// waits between its steps, as long as it is told to.
func TestReads(t *testing.T) {
	q, c := newQuotas(limits{"user:ann": {ReadBytes: 1000}})
	ann := as(t, "ann")
	require.NoError(t, q.MayRead(ann))
	for range 5 {
		may, err := q.Read(ann, 1000, time.Hour)
		require.True(t, may && err == nil)
	}
	require.Zero(t, c.slept)
	require.ErrorContains(t, q.MayRead(ann), "for another 5s")
	pauses := 0
	ctx, cancel := context.WithCancel(quota.Streaming(ann, func() { pauses++ }))
	require.ErrorContains(t, q.MayRead(ctx), "for another 5s", "a stream that has not begun is refused as a request is")
	may, err := q.Read(ctx, 0, time.Second)
	require.True(t, !may && err == nil)
	require.InDelta(t, 1, c.slept.Seconds(), 0.01)
	may, err = q.Read(ctx, 0, 0)
	require.True(t, !may && err == nil)
	may, err = q.Read(ctx, 0, time.Hour)
	require.True(t, may && err == nil)
	require.InDelta(t, 4, c.slept.Seconds(), 0.01)
	require.Equal(t, 2, pauses)
	for range 10 {
		may, err := q.Read(ctx, 10_000, time.Hour)
		require.True(t, may && err == nil)
	}
	require.InDelta(t, 104, c.slept.Seconds(), 1)
	cancel()
	_, err = q.Read(ctx, 1_000_000, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
}

// A stream's writes are charged at once, and it waits before the next.
func TestStreamedWrites(t *testing.T) {
	q, c := newQuotas(limits{"user:ann": {WriteBytes: 1000}})
	ctx := quota.Streaming(as(t, "ann"), nil)
	require.NoError(t, q.MayWrite(ctx))
	for range 10 {
		require.NoError(t, q.Write(ctx, 1, 10_000))
		may, err := q.WaitWrite(ctx, time.Hour)
		require.True(t, may && err == nil)
	}
	require.InDelta(t, 99, c.slept.Seconds(), 1)
	require.NoError(t, q.Write(ctx, 1, 10_000))
	may, err := q.WaitWrite(ctx, time.Second)
	require.True(t, !may && err == nil)
	require.True(t, errs.Is(q.MayWrite(ctx), errs.QuotaExceeded))
	require.True(t, errs.Is(q.Write(as(t, "ann"), 1, 1), errs.QuotaExceeded))
}

// Who has a quota neither himself nor by a group has the default one, for himself.
func TestDefault(t *testing.T) {
	q, c := newQuotas(limits{"default": {WriteRows: 10, Streams: 1}, "user:free": {}, "group:g": {WriteRows: 1000}})
	for _, name := range []string{"ann", "bob"} {
		require.NoError(t, q.Write(as(t, name), 30, 1))
		require.ErrorContains(t, q.Write(as(t, name), 1, 1), "of user:"+name)
		_, err := q.Stream(as(t, name))
		require.NoError(t, err)
		_, err = q.Stream(as(t, name))
		require.True(t, errs.Is(err, errs.QuotaExceeded))
		require.Equal(t, 5, err.(*errs.Error).Wait()) //nolint:errorlint // it is what is given
	}
	for range 3 {
		require.NoError(t, q.Write(as(t, "free"), 1_000_000, 1))
		require.NoError(t, q.Write(as(t, "eve", "g"), 100, 1))
		require.NoError(t, q.Write(auth.With(t.Context(), auth.Anyone), 1_000_000, 1))
		_, err := q.Stream(as(t, "eve", "g"))
		require.NoError(t, err)
	}
	require.Zero(t, c.slept)
}

// U4: callers that come and go leave nothing, and those beyond the bound share a balance.
func TestBalancesAreBounded(t *testing.T) {
	q, c := newQuotas(limits{"default": {WriteRows: 10}})
	many := func(from, n int) (refused int) {
		for i := range n {
			if q.Write(as(t, fmt.Sprint(from+i)), 100, 1) != nil {
				refused++
			}
		}
		return refused
	}
	for i := range 20 {
		require.Zero(t, many(i*2000, 2000))
		require.LessOrEqual(t, q.Len(), 4096)
		c.pass(time.Minute)
	}
	require.Positive(t, many(1_000_000, 101_000))
	require.LessOrEqual(t, q.Len(), 100_001)
	c.pass(9500 * time.Millisecond)
	many(3_000_000, 1) // looks at all, of which none is full
	c.pass(600 * time.Millisecond)
	many(3_000_000, 1) // does not look again so soon
	require.GreaterOrEqual(t, q.Len(), 100_000)
	c.pass(400 * time.Millisecond)
	many(3_000_000, 1)
	require.LessOrEqual(t, q.Len(), 2)
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
