package tier_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/tier"
)

// gate holds rounds up at a step.
type gate struct {
	at   tier.Step
	here chan struct{} // receives for each round that has come to it
	open chan struct{} // closed to let them on
}

func newGate(at tier.Step) *gate {
	return &gate{at: at, here: make(chan struct{}, 100), open: make(chan struct{})}
}

func (g *gate) hook(s tier.Step) error {
	if s == g.at {
		g.here <- struct{}{}
		<-g.open
	}
	return nil
}

// answer is what a call in the background gives.
func answer(f func() error) chan error {
	out := make(chan error, 1)
	go func() { out <- f() }()
	return out
}

func (n *node) tierAside(t *millrace.Table) chan error {
	return answer(func() error {
		_, err := n.m.Tier(context.Background(), t)
		return err
	})
}

// Who asks while a round runs gets another one, which all who ask meanwhile share: rows
// that were acknowledged before the call are in the lake when it returns.
func TestAskedMeanwhile(t *testing.T) {
	g := newGate(tier.StepBeforeCommit)
	n := newNode(t, func(n *node) { n.o.Hook = g.hook })
	lt := n.table("t", "k BIGINT, v STRING", nil)
	n.must(lt, router.Append, kv(0, 5, "a"))
	first := n.tierAside(lt)
	<-g.here
	n.must(lt, router.Append, kv(5, 9, "b"))
	var others []chan error
	for range 5 {
		others = append(others, n.tierAside(lt))
	}
	eventually(t, func() bool { return n.m.Asked(lt.ID) }, "the others to be asked for")
	time.Sleep(10 * time.Millisecond)
	close(g.open)
	require.NoError(t, <-first)
	for _, o := range others {
		require.NoError(t, <-o)
	}
	n.complete(lt)
	require.EqualValues(t, 2, n.newest(lt).Round())

	// A caller that goes away leaves the round to the others.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.must(lt, router.Append, kv(9, 10, "c"))
	_, err := n.m.Tier(ctx, lt)
	require.ErrorIs(t, err, context.Canceled)
	n.tier(lt)
	n.complete(lt)
}

// A round of a table that was dropped meanwhile does not commit, whether the manager was
// told of the drop or has to find out.
func TestDroppedMeanwhile(t *testing.T) {
	for _, told := range []bool{false, true} {
		g := newGate(tier.StepRead)
		n := newNode(t, func(n *node) { n.o.Hook = g.hook })
		lt := n.table("t", "k BIGINT, v STRING", nil)
		n.must(lt, router.Append, kv(0, 5, "a"))
		round := n.tierAside(lt)
		<-g.here
		_, err := n.cat.DropTable(context.Background(), lt.Path, false, told)
		require.NoError(t, err)
		var drop chan error
		if told {
			drop = answer(func() error { return n.m.DropTable(context.Background(), lt) })
			eventually(t, func() bool { return n.m.Idle(lt.ID) }, "the table to be forgotten")
		}
		again := n.table("t", "k BIGINT, v STRING", nil)
		n.must(again, router.Append, kv(7, 8, "b"))
		close(g.open)
		require.True(t, errs.Is(<-round, errs.TableNotFound))
		if told {
			require.NoError(t, <-drop)
			require.False(t, n.format.(*laketest.Format).Tables()[lt.ID])
		} else {
			require.Nil(t, n.newest(lt))
		}
		n.tier(again)
		n.complete(again)
		_, err = n.m.Tier(context.Background(), lt)
		require.True(t, errs.Is(err, errs.TableNotFound))
	}
}

// A table that the catalog has let go of is forgotten by the next pass, and its lake
// table stays.
func TestForgotten(t *testing.T) {
	n := newNode(t)
	lt := n.table("t", "k BIGINT, v STRING", nil)
	n.must(lt, router.Append, kv(0, 5, "a"))
	n.tier(lt)
	_, err := n.cat.DropTable(context.Background(), lt.Path, false, false)
	require.NoError(t, err)
	n.settle(t, lt)
	require.EqualValues(t, 5, n.newest(lt).Totals().Rows)
	require.NoError(t, n.m.DropTable(context.Background(), lt))
	require.EqualValues(t, 5, n.newest(lt).Totals().Rows)
}

// Dropping a partition does not wait for a long round, and what the round had of it does
// not come back.
func TestDropPartitionInterrupts(t *testing.T) {
	g := newGate(tier.StepRead)
	n := newNode(t, func(n *node) { n.o.Hook = g.hook })
	lt := n.table("t", "k BIGINT, dt STRING", func(s *catalog.Spec) { s.PartitionBy = []string{"dt"} })
	n.must(lt, router.Append, `{"k":1,"dt":"mo"} {"k":2,"dt":"tu"}`)
	round := n.tierAside(lt)
	<-g.here
	mo, err := n.cat.Partition(context.Background(), lt.ID, "dt=mo")
	require.NoError(t, err)
	drop := answer(func() error { return n.dropPartition(lt, mo) })
	close(g.open)
	require.NoError(t, <-drop)
	require.NoError(t, <-round)
	n.complete(lt)
	require.Equal(t, map[string][]string{"dt=tu": {`{"dt":"tu","k":2}`}}, lakeRows(t, n.newest(lt), lt))
	n.must(lt, router.Append, `{"k":3,"dt":"mo"}`)
	n.tier(lt)
	n.complete(lt)
}

// Rows of a partition that is dropped while the lake is away are read from no tier any
// more, also after a crash, and a partition of its values can be made when the lake has
// let go of them: it has none of them.
func TestDropPartitionWhileAway(t *testing.T) {
	ctx := context.Background()
	var away atomic.Bool
	format := laketest.New()
	format.Hook = func(step laketest.Step, _ millrace.TableID) error {
		if step == laketest.Begin && away.Load() {
			return errs.New(errs.Unavailable, "the lake takes nothing")
		}
		return nil
	}
	for _, keyed := range []bool{false, true} {
		n := newNode(t, func(n *node) { n.format = format })
		lt := n.table("t", "k BIGINT, dt STRING", func(s *catalog.Spec) {
			if s.PartitionBy = []string{"dt"}; keyed {
				s.PrimaryKey = []string{"k", "dt"}
			}
		})
		mode := router.Append
		if keyed {
			mode = router.Upsert
		}
		n.must(lt, mode, `{"k":1,"dt":"mo"} {"k":2,"dt":"tu"}`)
		n.tier(lt)
		n.must(lt, mode, `{"k":3,"dt":"mo"}`)
		away.Store(true)
		mo, err := n.cat.Partition(ctx, lt.ID, "dt=mo")
		require.NoError(t, err)
		require.NoError(t, n.dropPartition(lt, mo))
		rest := []string{`{"dt":"tu","k":2}`}
		for range 2 {
			for _, tier := range []string{"hot", "union", "lake"} {
				require.Equal(t, rest, n.rows(lt, tier), tier)
			}
			require.True(t, errs.Is(n.write(lt, mode, `{"k":4,"dt":"mo"}`), errs.Unavailable))
			require.NoError(t, n.dropPartition(lt, mo))
			n.crash()
			router.NewKeeper(n.r, n.cat).Pass(ctx)
		}
		away.Store(false)
		router.NewKeeper(n.r, n.cat).Pass(ctx)
		require.True(t, errs.Is(n.dropPartition(lt, mo), errs.PartitionNotFound))
		n.must(lt, mode, `{"k":4,"dt":"mo"}`)
		n.tier(lt)
		n.complete(lt)
		require.Equal(t, []string{`{"dt":"mo","k":4}`, `{"dt":"tu","k":2}`}, n.rows(lt, "lake"))
	}
}

// A sealed partition is in the lake up to its seal when it was taken over, and stays
// there when the workers let go of it.
func TestTakeOver(t *testing.T) {
	ctx := context.Background()
	n := newNode(t)
	lt := n.table("t", "k BIGINT, dt STRING", func(s *catalog.Spec) { s.PartitionBy, s.Buckets = []string{"dt"}, new(2) })
	n.must(lt, router.Append, `{"k":1,"dt":"mo"} {"k":2,"dt":"tu"}`)
	mo, err := n.cat.Partition(ctx, lt.ID, "dt=mo")
	require.NoError(t, err)
	for _, s := range []millrace.PartitionState{millrace.PartitionClosing, millrace.PartitionSealed} {
		mo, err = n.cat.SetPartitionState(ctx, lt.ID, mo.ID, s)
		require.NoError(t, err)
	}
	require.NoError(t, n.m.TakeOver(ctx, lt, mo))
	n.complete(lt)
	mo, err = n.cat.SetPartitionState(ctx, lt.ID, mo.ID, millrace.PartitionExpired)
	require.NoError(t, err)
	for _, s := range n.w.Shards() {
		require.NoError(t, s.DropPartition(ctx, lt.ID, mo.ID))
	}
	n.must(lt, router.Append, `{"k":3,"dt":"tu"}`)
	n.tier(lt)
	require.Equal(t, map[string][]string{"dt=mo": {`{"dt":"mo","k":1}`}, "dt=tu": {`{"dt":"tu","k":2}`, `{"dt":"tu","k":3}`}}, lakeRows(t, n.newest(lt), lt))
	require.NoError(t, n.m.DropPartition(ctx, lt, mo)) // and is dropped there when it is asked for
	require.Equal(t, map[string][]string{"dt=tu": {`{"dt":"tu","k":2}`, `{"dt":"tu","k":3}`}}, lakeRows(t, n.newest(lt), lt))
	at := n.newest(lt).ID()
	require.NoError(t, n.m.DropPartition(ctx, lt, mo))
	require.Equal(t, at, n.newest(lt).ID(), "nothing to drop made a commit")

	off := n.table("off", "k BIGINT, dt STRING", func(s *catalog.Spec) { s.PartitionBy, s.Properties = []string{"dt"}, nil })
	require.NoError(t, n.m.TakeOver(ctx, off, mo))
}

// expire ends what has expired, and lets go of it.
func (n *node) expire() {
	for range 2 {
		n.clock.Add(time.Hour)
		for _, s := range n.w.Shards() {
			require.NoError(n.t, s.Expire(context.Background()))
			require.NoError(n.t, s.Checkpoint(context.Background()))
		}
	}
}

// What the log let go of before tiering was on is not in the lake: a log table goes on
// where its log begins and says what is missing, a keyed one has all its rows.
func TestLogIsGone(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	off := map[string]string{"table.log.ttl": "10min"}
	lt := n.table("l", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties = off })
	kt := n.table("k", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties, s.PrimaryKey = off, []string{"k"} })
	both := func(from, to int, tag string) {
		n.must(lt, router.Append, kv(from, to, tag))
		n.must(kt, router.Upsert, kv(from, to, tag))
	}
	turn := func(on string) {
		for _, x := range []*millrace.Table{lt, kt} {
			n.alter(x, fmt.Sprintf(`[{"op":"set_properties","properties":{"table.datalake.enabled":%q}}]`, on))
		}
	}
	status := func(x *millrace.Table) lake.Status {
		s, err := n.m.Status(ctx, n.now(x))
		require.NoError(t, err)
		return s
	}
	both(0, 5, "a")
	n.expire()
	both(5, 7, "b")
	turn("true")
	n.tier(lt)
	n.tier(kt)
	require.Equal(t, []string{`{"k":5,"v":"b5"}`, `{"k":6,"v":"b6"}`}, lakeRows(t, n.newest(lt), lt)[""])
	require.EqualValues(t, 7, n.newest(kt).Totals().Rows)
	require.Zero(t, status(lt).Skipped)

	// While a table is tiered, nothing goes that is not in the lake.
	both(7, 9, "c")
	n.expire()
	n.tier(lt)
	n.tier(kt)
	require.EqualValues(t, 4, n.newest(lt).Totals().Rows)
	require.Zero(t, status(lt).Skipped)

	turn("false")
	both(9, 12, "d")
	n.must(kt, router.Delete, keys(0, 9))
	n.must(kt, router.Upsert, kv(1, 2, "d"))
	n.expire()
	both(12, 13, "e")
	turn("true")
	n.tier(lt)
	n.tier(kt)
	require.Equal(t, []string{`{"k":12,"v":"e12"}`, `{"k":5,"v":"b5"}`, `{"k":6,"v":"b6"}`, `{"k":7,"v":"c7"}`, `{"k":8,"v":"c8"}`}, lakeRows(t, n.newest(lt), lt)[""])
	require.EqualValues(t, 3, status(lt).Skipped)
	n.crash()
	require.EqualValues(t, 3, status(lt).Skipped, "after a restart")
	require.Equal(t, []string{
		`{"k":1,"v":"d1"}`, `{"k":10,"v":"d10"}`, `{"k":11,"v":"d11"}`, `{"k":12,"v":"e12"}`, `{"k":2,"v":"a2"}`, `{"k":3,"v":"a3"}`, `{"k":4,"v":"a4"}`,
		`{"k":5,"v":"b5"}`, `{"k":6,"v":"b6"}`, `{"k":7,"v":"c7"}`, `{"k":8,"v":"c8"}`,
	}, lakeRows(t, n.newest(kt), kt)[""])
}

// A lake that is ahead of the log is a state for people to look at: what is written next
// would get offsets that the lake has already.
func TestLakeAhead(t *testing.T) {
	n := newNode(t)
	lt := n.table("t", "k BIGINT, v STRING", nil)
	n.must(lt, router.Append, kv(0, 5, "a"))
	copied := n.fs.CrashClone(copyAll)
	n.must(lt, router.Append, kv(5, 9, "b"))
	n.tier(lt)
	n.close()
	n.fs = copied
	n.open()
	n.must(lt, router.Append, kv(5, 6, "c"))
	s, err := n.m.Status(context.Background(), lt)
	require.NoError(t, err)
	require.EqualValues(t, 9, s.Offsets["0"])
	require.Equal(t, lake.StateFailing, s.State)
	_, err = n.m.Tier(context.Background(), lt)
	require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
	require.ErrorContains(t, err, "offset 9")
	require.EqualValues(t, 9, n.newest(lt).Totals().Rows)
}

// No more tables than allowed are tiered at once.
func TestConcurrency(t *testing.T) {
	g := newGate(tier.StepBegun)
	n := newNode(t, func(n *node) { n.o.Hook, n.o.Concurrency = g.hook, 2 })
	var tables []*millrace.Table
	for i := range 6 {
		lt := n.table(fmt.Sprint("t", i), "k BIGINT, v STRING", nil)
		n.must(lt, router.Append, kv(0, 5, "a"))
		tables = append(tables, lt)
	}
	var wg sync.WaitGroup
	for _, lt := range tables {
		wg.Go(func() { _, _ = n.m.Tier(context.Background(), lt) })
	}
	<-g.here
	<-g.here
	select {
	case <-g.here:
		t.Error("a third round has begun")
	case <-time.After(50 * time.Millisecond):
	}
	close(g.open)
	wg.Wait()
	for _, lt := range tables {
		n.complete(lt)
	}
}

// Close breaks off what is under way and waits for it; nothing is half done.
func TestCloseMeanwhile(t *testing.T) {
	g := newGate(tier.StepRead)
	n := newNode(t, func(n *node) { n.o.Hook = g.hook })
	lt := n.table("t", "k BIGINT, v STRING", nil)
	n.must(lt, router.Append, kv(0, 5, "a"))
	round := n.tierAside(lt)
	<-g.here
	other := n.table("other", "k BIGINT, v STRING", nil)
	closed := answer(n.m.Close)
	eventually(t, func() bool {
		_, err := n.m.Tier(context.Background(), other)
		return errs.Is(err, errs.Draining)
	}, "the manager to close")
	close(g.open)
	require.NoError(t, <-closed)
	require.True(t, errs.Is(<-round, errs.Draining))
	require.Nil(t, n.newest(lt))
	_, err := n.m.Tier(context.Background(), lt)
	require.True(t, errs.Is(err, errs.Draining))
	n.crash()
	n.tier(lt)
	n.complete(lt)
}

// A partition that is being dropped is not taken up any more by a job that began before.
func TestDroppingIsLeftOut(t *testing.T) {
	ctx, g := context.Background(), newGate(tier.StepTold)
	n := newNode(t, func(n *node) { n.o.Hook, n.o.RoundBytes = g.hook, 1 })
	lt := n.table("t", "k BIGINT, dt STRING", func(s *catalog.Spec) { s.PartitionBy = []string{"dt"} })
	n.must(lt, router.Append, `{"k":1,"dt":"mo"} {"k":2,"dt":"tu"}`)
	round := n.tierAside(lt)
	<-g.here // mo is there
	tu, err := n.cat.Partition(ctx, lt.ID, "dt=tu")
	require.NoError(t, err)
	_, err = n.cat.DropPartition(ctx, lt.ID, tu.ID)
	require.NoError(t, err)
	close(g.open)
	require.NoError(t, <-round)
	require.Equal(t, map[string][]string{"dt=mo": {`{"dt":"mo","k":1}`}}, lakeRows(t, n.newest(lt), lt))
}

// The state of a keyed bucket is never written with an earlier schema than it has: what a
// column that came meanwhile holds would be lost (T2).
func TestAlteredBeforeState(t *testing.T) {
	var n *node
	var kt *millrace.Table
	var once sync.Once
	n = newNode(t, func(n2 *node) {
		n2.o.Hook = func(s tier.Step) error {
			if s == tier.StepBegun {
				once.Do(func() {
					n.alter(kt, `[{"op":"add_column","column":{"name":"x","type":"STRING"}}]`)
					n.must(kt, router.Upsert, `{"k":1,"v":"b","x":"new"}`)
				})
			}
			return nil
		}
	})
	kt = n.table("k", "k BIGINT, v STRING", func(s *catalog.Spec) { s.PrimaryKey = []string{"k"} })
	n.must(kt, router.Upsert, kv(0, 5, "a"))
	n.tier(kt)
	n.complete(kt)
	require.Contains(t, lakeRows(t, n.newest(kt), n.now(kt))[""], `{"k":1,"v":"b","x":"new"}`)
}

// Records that were passed over count once, whatever rounds failed before one was
// committed, and add up over rounds, maintenance and restarts.
func TestSkippedOnce(t *testing.T) {
	for name, format := range map[string]func(*testing.T) lake.Format{
		"exact": func(*testing.T) lake.Format { return laketest.New() }, "iceberg": func(t *testing.T) lake.Format { return icebergFormat(t) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			fails := 0
			n := newNode(t, func(n *node) {
				n.format = format(t)
				n.o.Hook = func(s tier.Step) error {
					if s == tier.StepBeforeCommit && fails > 0 {
						fails--
						return errs.New(errs.Unavailable, "the lake is away")
					}
					return nil
				}
			})
			lt := n.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties["table.log.ttl"] = "1min" })
			gap := func(from, to int) {
				lt = n.alter(lt, `[{"op":"set_properties","properties":{"table.datalake.enabled":"false"}}]`)
				n.must(lt, router.Append, kv(from, to, "a"))
				n.expire()
				n.must(lt, router.Append, kv(to, to+1, "a"))
				lt = n.alter(lt, `[{"op":"set_properties","properties":{"table.datalake.enabled":"true"}}]`)
			}
			n.must(lt, router.Append, kv(0, 2, "a"))
			n.tier(lt)
			gap(2, 5)
			for fails = 2; fails > 0; {
				_, err := n.m.Tier(ctx, lt)
				require.Error(t, err)
			}
			require.EqualValues(t, 3, n.tier(lt).Skipped)
			n.crash()
			gap(6, 10)
			require.EqualValues(t, 7, n.tier(lt).Skipped)
			lk, err := n.format.Open(ctx, lt)
			require.NoError(t, err)
			lt.Options.Lake.Compact = true
			_, err = lk.Maintain(ctx, lt)
			require.NoError(t, err)
			require.EqualValues(t, 7, n.newest(lt).Skipped())
		})
	}
}
