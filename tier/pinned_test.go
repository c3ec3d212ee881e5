package tier_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/tier"
)

// pinning is a router that does something just before it says where logs end.
type pinning struct {
	*router.Router
	before func()
}

func (p *pinning) LogRanges(ctx context.Context, t *millrace.Table, ps []*millrace.Partition) ([][]router.LogRange, error) {
	if f := p.before; f != nil {
		p.before = nil
		f()
	}
	return p.Router.LogRanges(ctx, t, ps)
}

// No round takes records of a later schema than it writes: not those that come between the
// job's look at the table and where it finds the logs to end, and none that come when the
// round has begun, which is left to the next one (T2).
func TestAlteredBeforeLog(t *testing.T) {
	for _, key := range [][]string{nil, {"k"}} {
		var begun func()
		n := newNode(t, func(n *node) {
			n.o.Hook = func(s tier.Step) error {
				if f := begun; s == tier.StepBegun && f != nil {
					begun = nil
					f()
				}
				return nil
			}
		})
		lt := n.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.PrimaryKey = key })
		mode := router.Append
		if key != nil {
			mode = router.Upsert
		}
		n.must(lt, mode, kv(0, 5, "a"))
		n.tier(lt)
		n.must(lt, mode, kv(3, 8, "b"))
		src := &pinning{Router: n.r, before: func() {
			n.alter(lt, `[{"op":"add_column","column":{"name":"x","type":"STRING"}}]`)
			n.must(lt, mode, `{"k":8,"v":"c","x":"as it is pinned"}`)
		}}
		n.m.Attach(src)
		begun = func() {
			n.alter(lt, `[{"op":"add_column","column":{"name":"y","type":"STRING"}}]`)
			n.must(lt, mode, `{"k":9,"v":"d","y":"as it has begun"}`)
		}
		n.tier(lt)
		n.check(lt)
		require.EqualValues(t, 1, n.status(lt).Pending)
		n.tier(lt)
		n.complete(lt)
	}
}

func (n *node) status(t *millrace.Table) lake.Status {
	s, err := n.m.Status(context.Background(), n.now(t))
	require.NoError(n.t, err)
	return s
}

// A partition that is dropped while a round is in the midst of it has logs that are no
// more: that is no sign of a lake ahead of its log, and the rest of the table is tiered.
func TestDroppedAmidPartition(t *testing.T) {
	for _, key := range [][]string{nil, {"k", "dt"}} {
		ctx := context.Background()
		var once sync.Once
		read := func() {}
		n := newNode(t, func(n *node) {
			n.o.Hook = func(s tier.Step) error {
				if s == tier.StepRead {
					read()
				}
				return nil
			}
		})
		lt := n.table("t", "k BIGINT, dt STRING", func(s *catalog.Spec) {
			s.PartitionBy, s.Buckets, s.PrimaryKey = []string{"dt"}, new(2), key
		})
		mode := router.Append
		if key != nil {
			mode = router.Upsert
		}
		var some string
		for _, k := range "012345678" {
			some += `{"k":` + string(k) + `,"dt":"mo"} `
		}
		n.must(lt, mode, some)
		n.must(lt, mode, some)
		n.tier(lt)
		n.must(lt, mode, some)
		n.must(lt, mode, some)
		n.must(lt, mode, `{"k":1,"dt":"tu"}`)
		mo, err := n.cat.Partition(ctx, lt.ID, "dt=mo")
		require.NoError(t, err)
		read = func() {
			once.Do(func() { // as DROP PARTITION does before it comes to the lake
				mo, err = n.cat.DropPartition(ctx, lt.ID, mo.ID)
				require.NoError(t, err)
				for _, s := range n.w.Shards() {
					require.NoError(t, s.DropPartition(ctx, lt.ID, mo.ID))
				}
			})
		}
		s := n.tier(lt)
		require.Equal(t, lake.StateOK, s.State, "%v", s.Failure)
		require.Len(t, lakeRows(t, n.newest(lt), lt)["dt=tu"], 1)
		require.NoError(t, n.dropPartition(lt, mo))
		n.complete(lt)
	}
}
