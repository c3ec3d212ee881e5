package tier_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/tier"
)

// dropAndPurge drops a table with purge, as a door does.
func (n *node) dropAndPurge(t *millrace.Table) {
	n.t.Helper()
	_, err := n.cat.DropTable(context.Background(), t.Path, false, true)
	require.NoError(n.t, err)
	require.NoError(n.t, n.r.DropTable(context.Background(), t))
}

// filled makes a table of the lake with rows in it.
func (n *node) filled(name string) *millrace.Table {
	lt := n.table(name, "k BIGINT, v STRING", nil)
	n.must(lt, router.Append, kv(0, 5, "a"))
	n.tier(lt)
	return lt
}

// The lake table of a table that was dropped while the lake was away goes when that is
// back, also after a crash, and nothing of the table that was made again does. Until
// then it is told what is left to do, and why.
func TestPurgeWhileAway(t *testing.T) {
	var away, tries atomic.Int64
	format := laketest.New()
	format.Hook = func(step laketest.Step, _ millrace.TableID) error {
		if step != laketest.Purge {
			return nil
		}
		tries.Add(1)
		if away.Load() > 0 {
			return errs.New(errs.Unavailable, "the lake is away")
		}
		return nil
	}
	n := newNode(t, func(n *node) { n.format = format })
	away.Store(1)
	lt := n.filled("t")
	n.dropAndPurge(lt)
	again := n.filled("t")
	dropped := n.clock.Now()

	for range 2 {
		p := n.m.Purges()
		require.Len(t, p, 1)
		require.Equal(t, lt.ID, p[0].Table)
		require.Equal(t, lt.Path, p[0].Path)
		require.WithinDuration(t, dropped, p[0].DroppedAt, time.Minute)
		require.Equal(t, errs.Unavailable, p[0].Failure.Code)
		require.Contains(t, p[0].Failure.Detail, "the lake is away")
		since := p[0].Failure.Since
		require.EqualValues(t, 1, n.series("millrace_tier_pending_purges"))
		require.EqualValues(t, 1, n.series("millrace_tier_failing_purges"))

		before := tries.Load()
		n.m.Pass(context.Background())
		require.Equal(t, before, tries.Load(), "it is not tried again at once")
		n.clock.Add(time.Minute)
		n.m.Pass(context.Background())
		eventually(t, func() bool { return tries.Load() > before }, "another try")
		eventually(t, func() bool { p := n.m.Purges()[0]; return p.Failure != nil }, "its end")
		require.Equal(t, since, n.m.Purges()[0].Failure.Since)
		require.True(t, format.Tables()[lt.ID])
		n.crash()
		require.Len(t, n.m.Purges(), 1)
		require.Nil(t, n.m.Purges()[0].Failure)
		n.m.Pass(context.Background())
		eventually(t, func() bool { return n.m.Purges()[0].Failure != nil }, "a try after the start")
	}

	away.Store(0)
	n.clock.Add(time.Minute)
	n.m.Pass(context.Background())
	eventually(t, func() bool { return len(n.m.Purges()) == 0 }, "the purge")
	require.Equal(t, map[millrace.TableID]bool{again.ID: true}, format.Tables())
	require.Zero(t, n.series("millrace_tier_failing_purges"))
	n.complete(again)
	n.crash()
	require.Empty(t, n.m.Purges())
}

// A crash at any moment of a drop with purge leaves nothing of the lake table in the end.
func TestPurgeAfterCrash(t *testing.T) {
	crash := errors.New("the process ended")
	for _, at := range []tier.Step{"", tier.StepPurge, tier.StepPurged} {
		format := laketest.New()
		var dead atomic.Bool
		n := newNode(t, func(n *node) {
			n.format = format
			n.o.Hook = func(s tier.Step) error {
				if s == at && dead.Load() {
					return crash
				}
				return nil
			}
		})
		lt := n.filled("t")
		dead.Store(true)
		_, err := n.cat.DropTable(context.Background(), lt.Path, false, true)
		require.NoError(t, err)
		if at != "" {
			require.NoError(t, n.r.DropTable(context.Background(), lt))
		}
		require.Equal(t, at != tier.StepPurged, format.Tables()[lt.ID])
		require.Len(t, n.cat.Purges(), 1)
		n.crash()
		dead.Store(false)
		again := n.filled("t")
		n.m.Pass(context.Background())
		eventually(t, func() bool { return len(n.cat.Purges()) == 0 }, "the purge")
		require.Equal(t, map[millrace.TableID]bool{again.ID: true}, format.Tables())
		n.complete(again)
	}
}

// slowly opens lake tables when it is let.
type slowly struct {
	*laketest.Format
	here, open chan struct{}
}

func (s *slowly) Open(ctx context.Context, t *millrace.Table) (lake.Table, error) {
	s.here <- struct{}{}
	<-s.open
	return s.Format.Open(ctx, t)
}

// A lake table that somebody was about to make when its table was dropped does not stay.
func TestPurgeOfWhatIsMade(t *testing.T) {
	s := &slowly{laketest.New(), make(chan struct{}, 1), make(chan struct{})}
	n := newNode(t, func(n *node) { n.format, n.o.LookTime = s, time.Minute })
	lt := n.table("t", "k BIGINT, v STRING", nil)
	read := answer(func() error { _, err := n.m.Newest(context.Background(), lt); return err })
	<-s.here
	_, err := n.cat.DropTable(context.Background(), lt.Path, false, true)
	require.NoError(t, err)
	for range 2 {
		n.m.Pass(context.Background()) // forgets the table before the drop is told of
	}
	drop := answer(func() error { return n.m.DropTable(context.Background(), lt) })
	time.Sleep(20 * time.Millisecond)
	close(s.open)
	require.True(t, errs.Is(<-read, errs.TableNotFound))
	require.NoError(t, <-drop)
	require.Empty(t, s.Tables())
	require.Empty(t, n.cat.Purges())
}

// At most so many lake tables are removed at once; the others have their turn.
func TestPurgesInTurn(t *testing.T) {
	g := newGate(tier.StepPurge)
	format := laketest.New()
	n := newNode(t, func(n *node) { n.o.Hook, n.format = g.hook, format })
	for _, name := range []string{"a", "b", "c", "d"} {
		lt := n.filled(name)
		_, err := n.cat.DropTable(context.Background(), lt.Path, false, true)
		require.NoError(t, err)
	}
	n.m.Pass(context.Background())
	<-g.here
	<-g.here
	n.m.Pass(context.Background())
	time.Sleep(20 * time.Millisecond)
	require.Empty(t, g.here)
	close(g.open)
	eventually(t, func() bool { n.m.Pass(context.Background()); return len(n.cat.Purges()) == 0 }, "the purges")
	require.Empty(t, format.Tables())
	require.EqualValues(t, 4, n.series("millrace_tier_purges_total"))
}

// series is the value of a counter or gauge without labels.
func (n *node) series(name string) float64 {
	n.t.Helper()
	all, err := n.reg.Gather()
	require.NoError(n.t, err)
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.FailNow(n.t, "no series "+name)
	return 0
}
