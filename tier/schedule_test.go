package tier_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/tier"
)

// eventually waits for something that the manager does by itself.
func eventually(t *testing.T, f func() bool, what string) {
	t.Helper()
	require.Eventually(t, f, time.Minute, 2*time.Millisecond, what)
}

// counted is a lake that counts what is asked of it.
type counted struct {
	*laketest.Format
	mu    sync.Mutex
	calls map[laketest.Step]int
}

func newCounted() *counted {
	c := &counted{Format: laketest.New(), calls: map[laketest.Step]int{}}
	c.Hook = func(s laketest.Step, _ millrace.TableID) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[s]++
		return nil
	}
	return c
}

func (c *counted) count(s laketest.Step) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[s]
}

func (c *counted) all() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, k := range c.calls {
		n += k
	}
	return n
}

// settle passes until nothing is under way.
func (n *node) settle(t *testing.T, lt *millrace.Table) {
	n.m.Pass(context.Background())
	eventually(t, func() bool { return n.m.Idle(lt.ID) }, "the jobs to end")
}

// A table is tiered when its oldest record outside the lake would else get older than
// its freshness, not sooner, and not at all when there is nothing; a new table is made
// in the lake at once.
func TestFreshness(t *testing.T) {
	f := newCounted()
	n := newNode(t, func(n *node) { n.format = f })
	lt := n.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties = tiered("table.datalake.freshness", "60s") })
	n.settle(t, lt)
	require.True(t, f.Tables()[lt.ID], "the lake table is not made")
	asked := f.all()
	for range 200 {
		n.clock.Add(time.Second)
		n.settle(t, lt)
	}
	require.Equal(t, asked, f.all(), "an idle table made requests of the lake")

	n.must(lt, router.Append, kv(0, 5, "a"))
	began := n.clock.Now()
	for n.newest(lt) == nil {
		n.clock.Add(time.Second)
		n.settle(t, lt)
	}
	took := n.clock.Now().Sub(began)
	require.Greater(t, took, 40*time.Second)
	require.LessOrEqual(t, took, 60*time.Second)
	n.complete(lt)

	// What follows keeps to it too, with a row each second.
	var worst time.Duration
	rounds := n.newest(lt).Round()
	for i := range 300 {
		n.clock.Add(time.Second)
		n.must(lt, router.Append, kv(i, i+1, "b"))
		n.settle(t, lt)
		s, err := n.m.Status(context.Background(), lt)
		require.NoError(t, err)
		worst = max(worst, s.Lag)
	}
	require.LessOrEqual(t, worst, 60*time.Second)
	require.LessOrEqual(t, n.newest(lt).Round()-rounds, int64(300/40+1))
}

// slowLooks is a source of which each look at the logs takes a while.
type slowLooks struct {
	tier.Source
	clock *storagetest.Clock
	takes time.Duration
}

func (s slowLooks) LogRanges(ctx context.Context, t *millrace.Table, ps []*millrace.Partition) ([][]router.LogRange, error) {
	s.clock.Add(s.takes)
	return s.Source.LogRanges(ctx, t, ps)
}

// Looking at a table may be slow, as while its shards move: that puts off the next look, but
// never so far that the table is late for it.
func TestFreshnessAfterSlowLook(t *testing.T) {
	n := newNode(t)
	lt := n.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties = tiered("table.datalake.freshness", "10s") })
	n.settle(t, lt)
	n.clock.Add(time.Minute)
	n.m.Attach(slowLooks{n.r, n.clock, 3 * time.Second})
	n.settle(t, lt)
	n.m.Attach(n.r)
	n.must(lt, router.Append, kv(0, 5, "a"))
	began := n.clock.Now()
	for n.newest(lt) == nil {
		n.clock.Add(time.Second)
		n.settle(t, lt)
	}
	require.LessOrEqual(t, n.clock.Now().Sub(began), 10*time.Second)
}

// Turned on by ALTER, a table is tiered within the next passes, what it held before too;
// turned off, it rests.
func TestScheduleEnabledLater(t *testing.T) {
	n := newNode(t)
	lt := n.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties = map[string]string{"table.log.ttl": "0"} })
	n.must(lt, router.Append, kv(0, 5, "a"))
	n.clock.Add(time.Hour)
	n.settle(t, lt)
	lt = n.alter(lt, `[{"op":"set_properties","properties":{"table.datalake.enabled":"true"}}]`)
	for range 2 {
		n.settle(t, lt)
		n.clock.Add(time.Second)
	}
	n.complete(lt)
	lt = n.alter(lt, `[{"op":"set_properties","properties":{"table.datalake.enabled":"false"}}]`)
	n.must(lt, router.Append, kv(5, 7, "b"))
	n.clock.Add(time.Hour)
	n.settle(t, lt)
	n.settle(t, lt)
	require.EqualValues(t, 5, n.newest(lt).Totals().Rows)
}

// A lake that fails shows as a state with code, detail and since when; it is tried again
// further and further apart, and when it is well again so is the table. Clients go on.
func TestFailing(t *testing.T) {
	f := laketest.New()
	n := newNode(t, func(n *node) { n.format = f })
	lt := n.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties = tiered("table.datalake.freshness", "1s") })
	n.settle(t, lt)
	var mu sync.Mutex
	broken, tries := true, 0
	f.Hook = func(s laketest.Step, _ millrace.TableID) error {
		mu.Lock()
		defer mu.Unlock()
		if s != laketest.Begin || !broken {
			return nil
		}
		tries++
		return errs.New(errs.Unavailable, "the store does not answer")
	}
	n.must(lt, router.Append, kv(0, 5, "a"))
	since := n.clock.Now()
	for range 600 {
		n.clock.Add(time.Second)
		n.settle(t, lt)
	}
	s, err := n.m.Status(context.Background(), lt)
	require.NoError(t, err)
	require.Equal(t, lake.StateFailing, s.State)
	require.Equal(t, errs.Unavailable, s.Failure.Code)
	require.Contains(t, s.Failure.Detail, "the store does not answer")
	require.WithinDuration(t, since, s.Failure.Since, 10*time.Second)
	require.EqualValues(t, 5, s.Pending)
	require.GreaterOrEqual(t, s.Lag, 600*time.Second)
	mu.Lock()
	require.Less(t, tries, 40)
	require.Greater(t, tries, 12)
	broken = false
	mu.Unlock()
	n.must(lt, router.Append, kv(5, 6, "b"))

	_, err = n.m.Tier(context.Background(), lt) // does not wait for the next try
	require.NoError(t, err)
	s, err = n.m.Status(context.Background(), lt)
	require.NoError(t, err)
	require.Equal(t, lake.StateOK, s.State)
	require.Nil(t, s.Failure)
	n.complete(lt)
}

// While the lake cannot be opened the status says so, and where the lake is not known
// nobody is told anything.
func TestUnreachable(t *testing.T) {
	f := laketest.New()
	n := newNode(t, func(n *node) { n.format = f })
	f.Hook = func(s laketest.Step, _ millrace.TableID) error {
		if s == laketest.Open {
			return errs.New(errs.CorruptData, "no metadata")
		}
		return nil
	}
	lt := n.table("t", "k BIGINT, v STRING", nil)
	n.settle(t, lt)
	s, err := n.m.Status(context.Background(), lt)
	require.NoError(t, err)
	require.Equal(t, lake.StateFailing, s.State)
	require.Equal(t, errs.CorruptData, s.Failure.Code)
	require.Empty(t, s.Location)
	_, err = n.m.Newest(context.Background(), lt)
	require.True(t, errs.Is(err, errs.CorruptData))
	_, err = n.m.Tier(context.Background(), lt)
	require.True(t, errs.Is(err, errs.CorruptData))
}

// Maintenance follows rounds, after some of them or some time, and what it commits is
// seen.
func TestMaintenance(t *testing.T) {
	f := newCounted()
	n := newNode(t, func(n *node) { n.format = f })
	lt := n.table("t", "k BIGINT, v STRING", nil)
	for i := range 8 {
		require.Zero(t, f.count(laketest.Maintain))
		n.must(lt, router.Append, kv(i, i+1, "a"))
		n.tier(lt)
	}
	eventually(t, func() bool { return f.count(laketest.Maintain) == 1 && n.m.Idle(lt.ID) }, "maintenance")
	s, err := n.m.Status(context.Background(), lt)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Totals.DataFiles)
	require.EqualValues(t, 8, s.Round)
	n.complete(lt)

	n.must(lt, router.Append, kv(8, 9, "a"))
	n.tier(lt)
	for range 12 {
		n.clock.Add(time.Minute)
		n.settle(t, lt)
	}
	require.Equal(t, 2, f.count(laketest.Maintain))
	n.complete(lt)
}
