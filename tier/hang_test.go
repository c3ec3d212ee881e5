package tier_test

import (
	"context"
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
)

// hanging is a lake that takes calls and does not answer while hangs is set.
type hanging struct {
	*laketest.Format
	hangs atomic.Bool
	asked atomic.Int64
}

func (h *hanging) Open(ctx context.Context, t *millrace.Table) (lake.Table, error) {
	h.asked.Add(1)
	if h.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Format.Open(ctx, t)
}

// A lake that hangs holds up neither the rows that the workers have nor the status,
// which says that it does not answer; readers ask it once in a while only. When it
// answers again, all is as before.
func TestLakeHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h := &hanging{Format: laketest.New()}
	h.hangs.Store(true)
	n := newNode(t, func(n *node) { n.format, n.o.LookTime = h, 500*time.Millisecond })
	keyed := n.table("k", "k BIGINT", func(s *catalog.Spec) { s.PrimaryKey = []string{"k"} })
	require.NoError(t, n.write(keyed, router.Upsert, `{"k":1}`))

	s, err := n.m.Status(ctx, keyed)
	require.NoError(t, err)
	require.Equal(t, lake.StateFailing, s.State)
	require.Equal(t, errs.Unavailable, s.Failure.Code)
	require.Contains(t, s.Failure.Detail, "does not answer within 500ms")
	require.EqualValues(t, 1, s.Pending)
	before := h.asked.Load()
	for range 10 {
		p, err := n.r.Plan(ctx, "d.k", &router.ReadRequest{}, router.Scan)
		require.NoError(t, err)
		p.Close()
		_, err = n.r.Plan(ctx, "d.k", &router.ReadRequest{Tier: "lake"}, router.Scan)
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	}
	require.Equal(t, before, h.asked.Load(), "it is not asked again at once")

	h.hangs.Store(false)
	n.clock.Add(6 * time.Second)
	s, err = n.m.Status(ctx, keyed)
	require.NoError(t, err)
	require.Equal(t, lake.StateEmpty, s.State)
	_, err = n.m.Tier(ctx, keyed)
	require.NoError(t, err)
	s, err = n.m.Status(ctx, keyed)
	require.NoError(t, err)
	require.Equal(t, lake.StateOK, s.State)
	require.Nil(t, s.Failure)
}
