package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
)

// notedLake notes what it is asked for; it answers with err, after during.
type notedLake struct {
	mu     sync.Mutex
	calls  []string
	err    error
	during func(t *millrace.Table, p *millrace.Partition)
	hangs  bool // drops of partitions wait for their context's end
}

func (l *notedLake) Newest(context.Context, *millrace.Table) (lake.Snapshot, error) { return nil, nil }

func (l *notedLake) Snapshot(context.Context, *millrace.Table, int64) (lake.Snapshot, error) {
	return nil, errs.New(errs.SnapshotGone, "there is none")
}

func (l *notedLake) call(what string, t *millrace.Table, p *millrace.Partition) error {
	l.mu.Lock()
	l.calls = append(l.calls, what)
	during, err := l.during, l.err
	l.mu.Unlock()
	if during != nil {
		during(t, p)
	}
	return err
}

func (l *notedLake) TakeOver(_ context.Context, t *millrace.Table, p *millrace.Partition) error {
	return l.call(fmt.Sprintf("take over %s, %s", p.Name, p.State), t, p)
}

func (l *notedLake) DropPartition(ctx context.Context, t *millrace.Table, p *millrace.Partition) error {
	err := l.call("drop "+p.Name, t, p)
	l.mu.Lock()
	hangs := l.hangs
	l.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (l *notedLake) DropTable(_ context.Context, t *millrace.Table) error {
	return l.call(fmt.Sprintf("drop %s", t.Path), t, nil)
}

// noted gives what was asked since the last time.
func (l *notedLake) noted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.calls
	l.calls = nil
	return out
}

func (l *notedLake) fails(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// newLaked makes a table by day that is in the lake and keeps two days, with rows in the
// days from 30 July on; it is 1 August.
func newLaked(t *testing.T, properties ...string) (*parted, *notedLake, *millrace.Table) {
	f, l := newParted(t), &notedLake{}
	f.lake = l
	f.crash()
	tbl := f.table("t", "k BIGINT, t STRING", func(s *catalog.Spec) {
		s.PartitionBy, s.Buckets, s.BucketKey = []string{"t"}, new(2), []string{"k"}
		s.Properties = map[string]string{"table.datalake.enabled": "true", "table.auto-partition.enabled": "true", "table.auto-partition.num-retention": "2"}
		for i := 0; i < len(properties); i += 2 {
			s.Properties[properties[i]] = properties[i+1]
		}
	})
	f.must(tbl, router.Append, `{"k":1,"t":"20260730"} {"k":2,"t":"20260730"} {"k":3,"t":"20260730"} {"k":2,"t":"20260731"} {"k":3,"t":"20260801"}`)
	return f, l, tbl
}

// pass lets a new keeper do what there is to do, twice, as one that goes on would.
func (f *parted) pass() {
	k := router.NewKeeper(f.r, f.cat)
	for range 2 {
		k.Pass(context.Background())
		k.Wait()
	}
}

// A lake that hangs holds a pass up once, not for every partition that is to be dropped
// from it; the next pass tries again.
func TestDropsFromALakeThatHangs(t *testing.T) {
	f, l, tbl := newLaked(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l.fails(errs.New(errs.Unavailable, "the lake is away"))
	for _, name := range []string{"t=20260730", "t=20260731"} {
		require.NoError(t, f.r.DropPartition(ctx, tbl, name))
	}
	l.noted()
	l.mu.Lock()
	l.hangs = true
	l.mu.Unlock()
	k := router.NewKeeper(f.r, f.cat)
	k.DropWithin(20 * time.Millisecond)
	k.Pass(ctx)
	require.Len(t, l.noted(), 1)
	k.Pass(ctx)
	require.Len(t, l.noted(), 1)
	l.mu.Lock()
	l.hangs, l.err = false, nil
	l.mu.Unlock()
	k.DropWithin(time.Minute)
	k.Pass(ctx)
	require.Len(t, l.noted(), 2)
	require.NotContains(t, f.names(tbl), "t=20260730")
	require.NotContains(t, f.names(tbl), "t=20260731")
}

func (f *parted) partition(tbl *millrace.Table, name string) *millrace.Partition {
	p, err := f.cat.Partition(context.Background(), tbl.ID, name)
	require.NoError(f.t, err)
	return p
}

// inShards says whether a shard has buckets of a partition.
func (f *parted) inShards(p *millrace.Partition) bool {
	return slices.ContainsFunc(p.Shards, func(id millrace.ShardID) bool {
		return slices.Contains(f.w.Shards()[id].Partitions(p.Table), p.ID)
	})
}

// A partition whose time is over is sealed, is there until the lake has taken it over,
// and is gone from the shards when those who planned to read it there have had their
// time. The lake being away keeps nothing else from being done.
func TestPartitionsExpireIntoTheLake(t *testing.T) {
	f, l, tbl := newLaked(t)
	f.pass()
	require.Empty(t, l.noted())
	l.fails(errs.New(errs.Unavailable, "the lake is away"))
	f.clock.Add(24 * time.Hour)
	f.pass()
	require.Equal(t, []string{"take over t=20260730, sealed"}, l.noted(), "a second try comes later")
	p := f.partition(tbl, "t=20260730")
	require.Equal(t, millrace.PartitionSealed, p.State)
	require.Contains(t, f.names(tbl), "t=20260803", "partitions are made ahead all the same")
	_, err := f.write(tbl, router.Append, `{"k":9,"t":"20260730"}`)
	f.refused(errs.PartitionExpired, err)
	rows, _ := f.scan("d.t", &router.ReadRequest{Filter: "t = '20260730'"})
	require.Len(t, rows, 3)

	k := router.NewKeeper(f.r, f.cat)
	k.Pass(t.Context())
	k.Wait()
	l.fails(nil)
	f.clock.Add(9 * time.Second)
	k.Pass(t.Context())
	k.Wait()
	require.Equal(t, millrace.PartitionSealed, f.partition(tbl, "t=20260730").State, "it waits for ten seconds")
	f.clock.Add(time.Second)
	k.Pass(t.Context())
	k.Wait()
	p = f.partition(tbl, "t=20260730")
	require.Equal(t, millrace.PartitionExpired, p.State)
	require.True(t, p.LakeOnly())
	require.Len(t, l.noted(), 2)

	k.Pass(t.Context())
	require.True(t, f.inShards(p), "those who planned to read it there can")
	f.clock.Add(lake.ReadGrace - time.Second)
	k.Pass(t.Context())
	require.True(t, f.inShards(p))
	f.clock.Add(time.Second)
	k.Pass(t.Context())
	require.False(t, f.inShards(p))
	p = f.partition(tbl, "t=20260730")
	require.True(t, p.Gone)
	_, err = f.write(tbl, router.Append, `{"k":9,"t":"20260730"}`)
	f.refused(errs.PartitionExpired, err)
	before := f.cat.Revision()
	k.Pass(t.Context())
	require.Equal(t, before, f.cat.Revision())
	require.Empty(t, l.noted())
}

// The end of a partition that goes to the lake is taken up after a crash between any
// two of its steps, as what it was: it is never dropped.
func TestRetireResumes(t *testing.T) {
	for step := range 5 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			f, l, tbl := newLaked(t)
			f.clock.Add(24 * time.Hour)
			p := f.partition(tbl, "t=20260730")
			states := []millrace.PartitionState{millrace.PartitionClosing, millrace.PartitionSealed, millrace.PartitionExpired}
			for i, st := range states[:min(step, 3)] {
				_, err := f.cat.SetPartitionState(t.Context(), tbl.ID, p.ID, st)
				require.NoError(t, err)
				for _, id := range p.Shards {
					if i == 0 && step > 1 {
						require.NoError(t, f.w.Shards()[id].SealPartition(t.Context(), tbl.ID, p.ID))
					}
				}
			}
			if step == 4 {
				f.clock.Add(lake.ReadGrace)
				require.NoError(t, f.w.Shards()[p.Shards[0]].DropPartition(t.Context(), tbl.ID, p.ID))
			}
			f.crash()
			f.pass()
			want := []string{"take over t=20260730, sealed"}
			if step > 2 {
				want = nil
			}
			require.Equal(t, want, l.noted())
			require.Equal(t, step == 4, f.partition(tbl, "t=20260730").Gone)
			f.clock.Add(lake.ReadGrace)
			f.pass()
			p = f.partition(tbl, "t=20260730")
			require.True(t, p.LakeOnly() && p.Gone, "%+v", p)
			require.False(t, f.inShards(p))
			require.Empty(t, l.noted())
		})
	}
}

// Keys of a partition that is in the lake alone are not said to be absent.
func TestLookupInTheLake(t *testing.T) {
	f := newParted(t)
	tbl := f.table("t", "k BIGINT, t STRING", func(s *catalog.Spec) {
		s.PrimaryKey, s.PartitionBy, s.Properties = []string{"k", "t"}, []string{"t"}, map[string]string{"table.datalake.enabled": "true"}
	})
	f.must(tbl, router.Upsert, `{"k":1,"t":"a"} {"k":1,"t":"b"}`)
	_, err := f.cat.SetPartitionState(t.Context(), tbl.ID, f.partition(tbl, "t=b").ID, millrace.PartitionExpired)
	require.NoError(t, err)
	cols, err := router.LookupColumns(tbl, []string{"k"})
	require.NoError(t, err)
	res, err := f.r.Lookup(t.Context(), tbl, f.rows(tbl, `{"k":1,"t":"a"} {"k":2,"t":"a"} {"k":1,"t":"c"}`, jsonrow.Options{}, "k", "t").Record, cols)
	require.NoError(t, err)
	require.Equal(t, []bool{true, false, false}, res.Found)
	res.Record.Release()
	_, err = f.r.Lookup(t.Context(), tbl, f.rows(tbl, `{"k":1,"t":"a"} {"k":1,"t":"b"}`, jsonrow.Options{}, "k", "t").Record, cols)
	require.EqualValues(t, 1, *f.problem(errs.PartitionExpired, err).Fields[0].Index)
	_, err = f.r.PrefixPage(t.Context(), tbl, &router.PrefixRequest{Prefix: f.rows(tbl, `{"k":1,"t":"b"}`, jsonrow.Options{}, "k", "t"), PageSize: 10})
	f.refused(errs.PartitionExpired, err)
}

// While tiering is off nothing is taken over, and what ends by its age stays in the
// catalog for what the lake has of it.
func TestRetireWithoutTiering(t *testing.T) {
	f, l, tbl := newLaked(t)
	_, err := f.cat.AlterTable(t.Context(), tbl.Path, []catalog.AlterStep{{Op: catalog.SetProperties, Properties: map[string]string{"table.datalake.enabled": "false"}}}, nil)
	require.NoError(t, err)
	f.clock.Add(24 * time.Hour)
	f.pass()
	require.Empty(t, l.noted())
	require.True(t, f.partition(tbl, "t=20260730").LakeOnly())
}

// DROP PARTITION takes the rows out of the shards and of the lake before the catalog
// forgets the partition, in whichever state it is; it goes on when the lake was away,
// after a crash too, and such a partition is never taken over.
func TestDropPartitionOfTheLake(t *testing.T) {
	ctx := context.Background()
	for _, state := range []string{"open", "sealed", "expired", "gone"} {
		t.Run(state, func(t *testing.T) {
			f, l, tbl := newLaked(t)
			p := f.partition(tbl, "t=20260730")
			if state != "open" {
				if state == "sealed" {
					l.fails(errs.New(errs.Unavailable, "the lake is away"))
				}
				f.clock.Add(24 * time.Hour)
				f.pass()
				if state == "gone" {
					f.clock.Add(lake.ReadGrace)
					f.pass()
				}
				l.noted()
			}
			l.fails(errs.New(errs.Unavailable, "the lake is away"))
			l.during = func(_ *millrace.Table, q *millrace.Partition) {
				if q.Dropping && f.inShards(q) {
					t.Error("rows are there while the lake removes those of the partition: a round would bring them back")
				}
			}
			rows := func() int {
				rd := f.r.Open(f.plan("d.t", &router.ReadRequest{}))
				got, err := f.read(rd)
				require.NoError(t, errors.Join(err, rd.Close()))
				return len(got)
			}
			before := rows()
			require.NoError(t, f.r.DropPartition(ctx, tbl, p.Name))
			require.Equal(t, []string{"drop t=20260730"}, l.noted())
			require.True(t, f.partition(tbl, p.Name).Dropping)
			require.False(t, f.inShards(p))
			if state == "open" {
				require.Equal(t, before-3, rows())
			}
			_, err := f.write(tbl, router.Append, `{"k":9,"t":"20260730"}`)
			f.refused(errs.Unavailable, err)
			_, _, err = f.cat.EnsurePartition(ctx, tbl.ID, p.Values)
			f.refused(errs.Unavailable, err)
			f.crash()
			l.fails(nil)
			f.pass()
			require.Equal(t, []string{"drop t=20260730"}, l.noted())
			require.NotContains(t, f.names(tbl), p.Name)
			f.refused(errs.PartitionNotFound, f.r.DropPartition(ctx, tbl, p.Name))
		})
	}
}

// A drop does not wait for a lake that hangs.
func TestDropFromALakeThatHangs(t *testing.T) {
	f, l, tbl := newLaked(t)
	l.mu.Lock()
	l.hangs = true
	l.mu.Unlock()
	f.r.DropWaits(20 * time.Millisecond)
	require.NoError(t, f.r.DropPartition(t.Context(), tbl, "t=20260730"))
	require.True(t, f.partition(tbl, "t=20260730").Dropping)
}

// A partition that is dropped while the lake takes it over is dropped.
func TestDropWhileTakenOver(t *testing.T) {
	f, l, tbl := newLaked(t)
	f.clock.Add(24 * time.Hour)
	l.during = func(*millrace.Table, *millrace.Partition) {
		l.mu.Lock()
		l.during = nil
		l.mu.Unlock()
		require.NoError(t, f.r.DropPartition(context.Background(), tbl, "t=20260730"))
	}
	f.pass()
	require.Equal(t, []string{"take over t=20260730, sealed", "drop t=20260730"}, l.noted())
	require.NotContains(t, f.names(tbl), "t=20260730")
}

// The lake is told of the drop of a table that is in it.
func TestDropTableOfTheLake(t *testing.T) {
	f, l, tbl := newLaked(t)
	plain := f.days(1)
	require.NoError(t, f.r.DropTable(t.Context(), plain))
	require.Empty(t, l.noted())
	require.NoError(t, f.r.DropTable(t.Context(), tbl))
	require.Equal(t, []string{"drop d.t"}, l.noted())
	l.fails(errs.New(errs.Unavailable, "the lake is away"))
	f.refused(errs.Unavailable, f.r.DropTable(t.Context(), tbl))
	f.lake = nil
	f.crash()
	require.NoError(t, f.r.DropTable(t.Context(), tbl), "there is nobody to tell")
}
