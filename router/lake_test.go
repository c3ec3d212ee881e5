package router_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// lakeside puts rows into an exact lake by hand, round by round, so that what a read
// finds there can be told without package tier.
type lakeside struct {
	t testing.TB
	f *laketest.Format
	r func() *router.Router
}

func newLakeside(t testing.TB, r func() *router.Router) *lakeside {
	return &lakeside{t: t, f: laketest.New(), r: r}
}

// inLake are the options of a table in the lake.
func inLake() *millrace.LakeOptions {
	return &millrace.LakeOptions{Enabled: true, Format: millrace.Iceberg, Compact: true, Expire: true, TargetFileBytes: 1 << 10, Deletes: millrace.PositionDeletes}
}

func (l *lakeside) table(ctx context.Context, t *millrace.Table) (lake.Table, error) {
	return l.f.Open(ctx, t)
}

func (l *lakeside) Newest(ctx context.Context, t *millrace.Table) (lake.Snapshot, error) {
	lt, err := l.table(ctx, t)
	if err != nil {
		return nil, err
	}
	return lt.Newest(ctx)
}

func (l *lakeside) Snapshot(ctx context.Context, t *millrace.Table, id int64) (lake.Snapshot, error) {
	lt, err := l.table(ctx, t)
	if err != nil {
		return nil, err
	}
	return lt.Snapshot(ctx, id)
}

func (l *lakeside) TakeOver(_ context.Context, t *millrace.Table, p *millrace.Partition) error {
	l.tier(t, p)
	return nil
}

func (l *lakeside) DropPartition(ctx context.Context, t *millrace.Table, p *millrace.Partition) error {
	lt, err := l.table(ctx, t)
	require.NoError(l.t, err)
	rd, err := lt.Begin(ctx, t)
	require.NoError(l.t, err)
	if rd.Base() == nil {
		return nil
	}
	require.NoError(l.t, rd.Clear(ctx, lake.Slice{Partition: p, Bucket: lake.NoBucket}))
	next := lake.Offsets{}
	for b, o := range rd.Base().Offsets() {
		if b.Partition != p.ID {
			next[b] = o
		}
	}
	_, err = rd.Commit(ctx, next)
	return err
}

func (*lakeside) DropTable(context.Context, *millrace.Table) error { return nil }

// tier commits a round of all buckets of some partitions; none: of the table.
func (l *lakeside) tier(t *millrace.Table, ps ...*millrace.Partition) {
	ctx := context.Background()
	lt, err := l.table(ctx, t)
	require.NoError(l.t, err)
	rd, err := lt.Begin(ctx, t)
	require.NoError(l.t, err)
	next := lake.Offsets{}
	if rd.Base() != nil {
		maps.Copy(next, rd.Base().Offsets())
	}
	if !t.Partitioned() {
		ps = []*millrace.Partition{nil}
	}
	for _, p := range ps {
		for n := range t.Buckets {
			id := t.BucketID(uint16(n))
			if p != nil {
				id = p.BucketID(uint16(n))
			}
			lr, err := l.r().LogRange(ctx, t, p, uint16(n))
			require.NoError(l.t, err)
			from, have := next[id]
			if lr.End == 0 || have && from >= lr.End {
				continue
			}
			s := lake.Slice{Partition: p, Bucket: n}
			switch {
			case !t.Keyed():
				if len(t.BucketKey) != 1 {
					s.Bucket = lake.NoBucket
				}
				l.append(rd, s, l.r().OpenLog(t, p, uint16(n), from, lr.End))
			case !have:
				state, at, err := l.r().OpenState(ctx, t, p, uint16(n))
				require.NoError(l.t, err)
				lr.End = at
				l.append(rd, s, state)
			default:
				l.fold(rd, t, s, l.r().OpenLog(t, p, uint16(n), from, lr.End))
			}
			next[id] = lr.End
		}
	}
	_, err = rd.Commit(ctx, next)
	require.NoError(l.t, err)
}

// append writes what a reader gives.
func (l *lakeside) append(round lake.Round, s lake.Slice, rd *router.Reader) {
	a, err := round.Append(context.Background(), s)
	require.NoError(l.t, err)
	l.each(rd, func(rec arrow.RecordBatch, _ []millrace.ChangeType) { require.NoError(l.t, a.Write(rec)) })
	require.NoError(l.t, a.Close())
}

func (l *lakeside) each(rd *router.Reader, do func(arrow.RecordBatch, []millrace.ChangeType)) {
	for {
		c, err := rd.Next(context.Background(), time.Second)
		if errors.Is(err, io.EOF) {
			require.NoError(l.t, rd.Close())
			return
		}
		require.NoError(l.t, err)
		rec, err := c.Record()
		require.NoError(l.t, err)
		changes, err := c.Changes()
		require.NoError(l.t, err)
		do(rec, changes)
		rec.Release()
		c.Release()
	}
}

// fold writes the last row of each key of a range of the log, and deletes the others.
func (l *lakeside) fold(round lake.Round, t *millrace.Table, s lake.Slice, rd *router.Reader) {
	var keys []string
	last := map[string]arrow.RecordBatch{}
	gone := map[string]struct{}{}
	l.each(rd, func(rec arrow.RecordBatch, changes []millrace.ChangeType) {
		for i := range int(rec.NumRows()) {
			did := millrace.Insert
			if changes != nil {
				did = changes[i]
			}
			k := string(row.AppendKey(nil, rec, t.KeyIndexes(t.PrimaryKey), i))
			if _, seen := last[k]; !seen {
				keys = append(keys, k)
				if did != millrace.Insert {
					gone[k] = struct{}{}
				}
			}
			last[k] = nil
			if did == millrace.Insert || did == millrace.UpdateAfter {
				last[k] = row.Take(memory.DefaultAllocator, rec, []int32{int32(i)})
			}
		}
	})
	_, err := round.Delete(context.Background(), s, gone)
	require.NoError(l.t, err)
	a, err := round.Append(context.Background(), s)
	require.NoError(l.t, err)
	for _, k := range keys {
		if rec := last[k]; rec != nil {
			require.NoError(l.t, a.Write(rec))
		}
	}
	require.NoError(l.t, a.Close())
}

// maintain merges files, which no read may notice.
func (l *lakeside) maintain(t *millrace.Table) {
	lt, err := l.table(context.Background(), t)
	require.NoError(l.t, err)
	_, err = lt.Maintain(context.Background(), t)
	require.NoError(l.t, err)
}

// lakeFixture is a fixture whose tables may be in the lake.
func lakeFixture(t *testing.T) (*fixture, *lakeside) {
	f := newFixture(t)
	l := newLakeside(t, func() *router.Router { return f.r })
	f.lake = l
	f.crash()
	return f, l
}

// columnsOf gives the texts of some columns of a request's rows, sorted.
func (f *fixture) lines(path string, req *router.ReadRequest) []string {
	p, err := f.r.Plan(context.Background(), path, req, router.Scan)
	require.NoError(f.t, err)
	out := f.drain(p)
	slices.Sort(out)
	return out
}

// newRand draws what a failing test says how to draw again.
func newRand(t *testing.T) *rand.Rand {
	seeds, _ := randomRuns(t, 1, 0)
	t.Logf("MILLRACE_MODEL_SEED=%d", seeds[0])
	return randOf(seeds[0])
}

func randOf(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4)) }
