package tier_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
)

// lossy is a lake that has lost a file.
type lossy struct {
	*laketest.Format
	damage *lake.Failure
}

type lossyTable struct {
	lake.Table
	f *lossy
}

func (l *lossy) Open(ctx context.Context, t *millrace.Table) (lake.Table, error) {
	lt, err := l.Format.Open(ctx, t)
	return lossyTable{lt, l}, err
}

func (t lossyTable) Damage(context.Context) *lake.Failure { return t.f.damage }

// What is lost of a lake table is told in its status, as long as it is, while rounds go well.
func TestDamageIsTold(t *testing.T) {
	l := &lossy{Format: laketest.New()}
	n := newNode(t, func(n *node) { n.format = l })
	lt := n.filled("t")
	l.damage = &lake.Failure{Code: errs.CorruptData, Detail: "file f was lost", Since: n.clock.Now()}
	s := n.tier(lt)
	require.Equal(t, lake.StateFailing, s.State)
	require.Equal(t, l.damage, s.Failure)
	require.EqualValues(t, 5, s.Totals.Rows)
	l.damage = nil
	require.Equal(t, lake.StateOK, n.tier(lt).State)
}
