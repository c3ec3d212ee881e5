package tier_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
)

// lossy is a lake that has lost a file.
type lossy struct {
	*laketest.Format
	damage *lake.Failure
	// equality is how many equality deletes the newest snapshot has.
	equality int64
}

// foreignSnapshot has deletes of another writer.
type foreignSnapshot struct {
	lake.Snapshot
	equality int64
}

func (s foreignSnapshot) Totals() lake.Totals {
	out := s.Snapshot.Totals()
	out.EqualityDeletes = s.equality
	return out
}

type lossyTable struct {
	lake.Table
	f *lossy
}

func (l *lossy) Open(ctx context.Context, t *millrace.Table) (lake.Table, error) {
	lt, err := l.Format.Open(ctx, t)
	return lossyTable{lt, l}, err
}

func (t lossyTable) Newest(ctx context.Context) (lake.Snapshot, error) {
	s, err := t.Table.Newest(ctx)
	if s != nil && t.f.equality > 0 {
		s = foreignSnapshot{s, t.f.equality}
	}
	return s, err
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

// Equality deletes of another writer are told, since reads refuse them; rounds go on.
func TestForeignDeletesAreTold(t *testing.T) {
	l := &lossy{Format: laketest.New()}
	n := newNode(t, func(n *node) { n.format = l })
	lt := n.filled("t")
	n.tier(lt)
	l.equality = 3
	n.clock.Add(time.Minute)
	n.crash() // what is known is asked anew
	since := n.clock.Now()
	for range 2 {
		s, err := n.m.Status(t.Context(), lt)
		require.NoError(t, err)
		require.Equal(t, lake.StateFailing, s.State)
		require.Equal(t, errs.NotImplemented, s.Failure.Code)
		require.Contains(t, s.Failure.Detail, "3 equality deletes")
		require.Equal(t, since, s.Failure.Since)
		n.clock.Add(time.Second)
	}
	n.must(lt, router.Append, kv(5, 6, "b"))
	l.equality = 0 // compacted by its writer
	s := n.tier(lt)
	require.EqualValues(t, 6, s.Totals.Rows)
	require.Equal(t, lake.StateOK, s.State)
}
