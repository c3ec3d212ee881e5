package tier_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/tier"
)

// told is a shard that keeps what it is told.
type told struct {
	mu sync.Mutex
	at map[millrace.BucketID]millrace.Offset
}

func (s *told) Tiered(offsets map[millrace.BucketID]millrace.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[millrace.BucketID]millrace.Offset{}
	}
	maps.Copy(s.at, offsets)
}

func (s *told) get() map[millrace.BucketID]millrace.Offset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.at)
}

// Shards are told how far the lake is after each commit, and after a start from what the
// lake says, without a round.
func TestShardsAreTold(t *testing.T) {
	shard := &told{}
	n := newNode(t, func(n *node) { n.o.Shards = []tier.Shard{shard} })
	lt := n.table("t", "k BIGINT, v STRING", nil)
	kt := n.table("k", "k BIGINT, v STRING", func(s *catalog.Spec) { s.PrimaryKey = []string{"k"} })
	n.must(lt, router.Append, kv(0, 5, "a"))
	n.must(kt, router.Upsert, kv(0, 5, "a"))
	n.must(kt, router.Upsert, kv(0, 5, "b"))
	require.Empty(t, shard.get())
	n.tier(lt)
	n.tier(kt)
	want := map[millrace.BucketID]millrace.Offset{lt.BucketID(0): 5, kt.BucketID(0): 15}
	require.Equal(t, want, shard.get())
	n.must(lt, router.Append, kv(5, 6, "a"))
	*shard = told{}
	n.crash()
	n.settle(t, lt)
	n.settle(t, kt)
	require.Equal(t, want, shard.get())
}

// What another process commits is seen a while later; a lake that does not answer then
// does not take away what is known, for a while.
func TestNewestSnapshot(t *testing.T) {
	ctx := context.Background()
	f := laketest.New()
	n := newNode(t, func(n *node) { n.format = f })
	other := n.manager(prometheus.NewRegistry())
	other.Attach(n.r)
	lt := n.table("t", "k BIGINT, v STRING", nil)
	n.must(lt, router.Append, kv(0, 5, "a"))
	n.tier(lt)
	first, err := other.Newest(ctx, lt)
	require.NoError(t, err)
	n.must(lt, router.Append, kv(5, 6, "a"))
	n.tier(lt)
	own, err := n.m.Newest(ctx, lt)
	require.NoError(t, err)
	require.EqualValues(t, 6, own.Totals().Rows)
	still, err := other.Newest(ctx, lt)
	require.NoError(t, err)
	require.Equal(t, first.ID(), still.ID())

	n.clock.Add(15 * time.Second)
	seen, err := other.Newest(ctx, lt)
	require.NoError(t, err)
	require.Equal(t, own.ID(), seen.ID())
	byID, err := other.Snapshot(ctx, lt, first.ID())
	require.NoError(t, err)
	require.EqualValues(t, 5, byID.Totals().Rows)
	_, err = other.Snapshot(ctx, lt, 1)
	require.True(t, errs.Is(err, errs.SnapshotGone))

	f.Hook = func(s laketest.Step, _ millrace.TableID) error {
		if s == laketest.Newest {
			return errs.New(errs.Unavailable, "no answer")
		}
		return nil
	}
	n.clock.Add(5 * time.Minute)
	seen, err = other.Newest(ctx, lt)
	require.NoError(t, err)
	require.Equal(t, own.ID(), seen.ID())
	n.clock.Add(6 * time.Minute)
	_, err = other.Newest(ctx, lt)
	require.True(t, errs.Is(err, errs.Unavailable))
	require.NoError(t, other.Close())
}

// Many partitions and buckets are tiered one file after the other: no more than one is
// open at a time.
func TestOneFileAtATime(t *testing.T) {
	f := laketest.New()
	var mu sync.Mutex
	open, most, files := 0, 0, 0
	f.Hook = func(s laketest.Step, _ millrace.TableID) error {
		mu.Lock()
		defer mu.Unlock()
		switch s {
		case laketest.Append:
			open, files = open+1, files+1
			most = max(most, open)
		case laketest.Close:
			open--
		default:
		}
		return nil
	}
	n := newNode(t, func(n *node) { n.format = f })
	kt := n.table("t", "p INT, k BIGINT, v STRING", func(s *catalog.Spec) {
		s.PrimaryKey, s.PartitionBy, s.Buckets = []string{"p", "k"}, []string{"p"}, new(3)
	})
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, `{"p":%d,"k":%d,"v":"x"} `, i%60, i)
	}
	n.must(kt, router.Upsert, b.String())
	n.tier(kt)
	n.must(kt, router.Upsert, b.String())
	n.tier(kt)
	n.complete(kt)
	require.Equal(t, 1, most)
	require.Greater(t, files, 200)
}

// slow is a lake whose answers about the newest snapshot are held up.
type slow struct {
	*laketest.Format
	here, open chan struct{}
}

type slowTable struct {
	lake.Table
	f *slow
}

func (f *slow) Open(ctx context.Context, t *millrace.Table) (lake.Table, error) {
	lt, err := f.Format.Open(ctx, t)
	return slowTable{lt, f}, err
}

func (t slowTable) Newest(ctx context.Context) (lake.Snapshot, error) {
	s, err := t.Table.Newest(ctx)
	if t.f.here != nil {
		t.f.here <- struct{}{}
		<-t.f.open
	}
	return s, err
}

// An answer of the lake from before a commit of ours does not hide the commit.
func TestOldAnswer(t *testing.T) {
	f := &slow{Format: laketest.New()}
	n := newNode(t, func(n *node) { n.format = f })
	lt := n.table("t", "k BIGINT, v STRING", nil)
	n.must(lt, router.Append, kv(0, 5, "a"))
	n.tier(lt)
	n.clock.Add(time.Minute)
	f.here, f.open = make(chan struct{}), make(chan struct{})
	old := answer(func() error {
		s, err := n.m.Newest(context.Background(), lt)
		if err == nil && s.Totals().Rows != 6 {
			err = fmt.Errorf("%d rows", s.Totals().Rows)
		}
		return err
	})
	<-f.here
	n.must(lt, router.Append, kv(5, 6, "b"))
	n.tier(lt)
	close(f.open)
	require.NoError(t, <-old)
	s, err := n.m.Newest(context.Background(), lt)
	require.NoError(t, err)
	require.EqualValues(t, 6, s.Totals().Rows)
}

// lateCatalog lets something happen when all tables have been listed.
type lateCatalog struct {
	tier.Catalog
	then func()
}

func (c lateCatalog) AllTables() []*millrace.Table {
	all := c.Catalog.AllTables()
	c.then()
	return all
}

// A table that is made, and asked for, while a pass is under way is not taken for one that
// the catalog has let go of.
func TestMadeMeanwhile(t *testing.T) {
	n := newNode(t)
	var lt *millrace.Table
	var m *tier.Manager
	c := lateCatalog{Catalog: n.cat, then: func() {
		if lt == nil {
			lt = n.table("t", "k BIGINT, v STRING", nil)
			_, err := m.Status(context.Background(), lt)
			require.NoError(t, err)
		}
	}}
	m = tier.New(t.Context(), tier.Options{Format: n.format, Catalog: c, Clock: n.clock, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	m.Attach(n.r)
	before := m.Known()
	m.Pass(context.Background())
	require.Equal(t, before+1, m.Known())
	require.NoError(t, m.Close())
}
