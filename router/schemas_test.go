package router_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// altered is the fixture's table after an ALTER: d added in front, v dropped and added
// again, n widened and renamed to m.
func (f *fixture) altered(t *millrace.Table) *millrace.Table {
	next := *t
	next.Version++
	next.Schema = &millrace.Schema{ID: t.Schema.ID + 1, Columns: []millrace.Column{
		{ID: 4, Name: "d", Type: millrace.DataType{Kind: millrace.Double}, Nullable: true},
		t.Schema.Columns[0],
		{ID: 3, Name: "m", Type: millrace.DataType{Kind: millrace.BigInt}, Nullable: true},
		{ID: 5, Name: "v", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
	}}
	f.cat.alter(t, &next)
	return &next
}

// newRows are rows of the altered table.
func newRows(t *millrace.Table, from, to int, m int64) row.Rows {
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(t.Schema.Columns))
	defer b.Release()
	for i := from; i < to; i++ {
		b.Field(0).(*array.Float64Builder).Append(0.5)
		b.Field(1).(*array.Int64Builder).Append(int64(i))
		b.Field(2).(*array.Int64Builder).Append(m)
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprintf("new%d", i))
	}
	return row.Rows{Record: b.NewRecordBatch(), Columns: t.Schema.Columns}
}

func (f *fixture) checkpoint() {
	for _, s := range f.w.Shards() {
		require.NoError(f.t, s.Checkpoint(context.Background()))
	}
}

// next reads all chunks there are until the wait is over.
func next(t *testing.T, rd *router.Reader) ([]string, error) {
	t.Helper()
	var out []string
	for {
		c, err := rd.Next(context.Background(), 20*time.Millisecond)
		if c == nil {
			return out, err
		}
		rec, err := c.Record()
		if err == nil {
			require.True(t, rec.Schema().Equal(rd.Plan().Schema))
			out = append(out, text(t, rec)...)
			rec.Release()
		}
		c.Release()
		if err != nil {
			return out, err
		}
	}
}

// Shows that a read of an altered table gives old and new rows in the new columns,
// whatever form the old ones are stored in: what was added is NULL, what was dropped
// does not come back under its name, what was widened has its values; that filters do
// the same, and skip old batches exactly when they cannot hold a row; and that a
// writer that knows the old columns goes on.
func TestAlteredTable(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) {
			f := newFixture(t)
			mode := router.Append
			if keyed {
				mode = router.Upsert
			}
			old := f.table("t", keyed, 1)
			f.write(old, mode, rows(old, 0, 100, "a"))
			f.write(old, mode, rows(old, 100, 102, "b"))
			f.checkpoint()
			now := f.altered(old)
			f.write(now, mode, newRows(now, 102, 104, 1<<40))
			f.write(old, mode, rows(old, 104, 106, "late"))
			check := func() {
				t.Helper()
				all := f.read(now, &router.ReadRequest{})
				require.Len(t, all, 106)
				require.Contains(t, all, `{"d":null,"k":7,"m":7,"v":null}`)
				require.Contains(t, all, `{"d":null,"k":101,"m":1,"v":null}`)
				require.Contains(t, all, `{"d":0.5,"k":103,"m":1099511627776,"v":"new103"}`)
				require.Contains(t, all, `{"d":null,"k":105,"m":5,"v":null}`)
				for filter, want := range map[string]int{
					"v = 'a7'": 0, "v = 'new102'": 1, "v IS NULL": 104, "v IS NOT NULL": 2, "d > 0": 2, "m = 7": 10, "m > 5000000000": 2, "m > 5000000000 OR k = 3": 3, "m BETWEEN 8 AND 1e15": 22,
				} {
					require.Len(t, f.read(now, &router.ReadRequest{Filter: filter, Columns: []string{"k"}}), want, filter)
				}
			}
			check()
			f.crash()
			check()
			f.checkpoint()
			check()
			_, err := f.r.Plan(context.Background(), now.Path.String(), &router.ReadRequest{Columns: []string{"n"}}, router.Scan)
			require.True(t, errs.Is(err, errs.UnknownColumn), "%v", err)
		})
	}
}

// Shows that a batch from before a column was added is skipped by a filter on it.
func TestOldBatchesAreSkipped(t *testing.T) {
	f := newFixture(t)
	old := f.table("t", false, 1)
	f.write(old, router.Append, rows(old, 0, 50_000, "a")) // too large to be merged with others
	now := f.altered(old)
	f.write(now, router.Append, newRows(now, 50_000, 50_100, 1))
	for filter, skipped := range map[string]int64{"v = 'new50001'": 50_000, "d > 0": 50_000, "m > 5000000000": 50_100, "v IS NULL": 100, "m = 1": 0} {
		p, err := f.r.Plan(context.Background(), now.Path.String(), &router.ReadRequest{Filter: filter, Columns: []string{"k"}}, router.Scan)
		require.NoError(t, err)
		rd := f.r.Open(p)
		_, err = next(t, rd)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, skipped, rd.Stats().RowsSkipped, filter)
		require.NoError(t, rd.Close())
	}
}

// Shows that tickets and page tokens from before an ALTER go on as they were promised,
// in their own columns, names and types, unless they need what was dropped.
func TestTicketsOutliveAlter(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) {
			f := newFixture(t)
			mode := router.Append
			if keyed {
				mode = router.Upsert
			}
			old := f.table("t", keyed, 2)
			f.write(old, mode, rows(old, 0, 100, "a"))
			ticket := func(req *router.ReadRequest) (string, *arrow.Schema) {
				p, err := f.r.Plan(context.Background(), old.Path.String(), req, router.Scan)
				require.NoError(t, err)
				defer p.Close()
				require.NoError(t, f.r.Hold(context.Background(), p, time.Hour, time.Hour))
				s, err := f.r.Ticket(p, time.Now().Add(time.Hour))
				require.NoError(t, err)
				return s, p.Schema
			}
			goes, promised := ticket(&router.ReadRequest{Columns: []string{"n", "k"}, Filter: "n = 3"})
			dropped, _ := ticket(&router.ReadRequest{Columns: []string{"k", "v"}})
			filtered, _ := ticket(&router.ReadRequest{Columns: []string{"k"}, Filter: "v = 'a5'"})
			size := 30
			p, err := f.r.Page(context.Background(), old.Path.String(), &router.ReadRequest{Columns: []string{"n", "k"}, PageSize: &size}, router.Scan)
			require.NoError(t, err)
			rd := f.r.Open(p)
			got, err := next(t, rd)
			require.ErrorIs(t, err, io.EOF)
			require.Len(t, got, 30)
			token, err := rd.NextPage(context.Background())
			require.NoError(t, err)
			require.NoError(t, rd.Close())

			now := f.altered(old)
			f.write(now, mode, newRows(now, 100, 200, 1<<40))
			f.checkpoint()

			p, err = f.r.OpenTicket(context.Background(), goes)
			require.NoError(t, err)
			require.True(t, promised.Equal(p.Schema) && promised.Metadata().Equal(p.Schema.Metadata()), "%v", p.Schema)
			got = f.drain(p)
			slices.Sort(got)
			require.Len(t, got, 10)
			require.Equal(t, `{"k":13,"n":3}`, got[0])
			for _, s := range []string{dropped, filtered} {
				_, err = f.r.OpenTicket(context.Background(), s)
				require.True(t, errs.Is(err, errs.SchemaChanged), "%v", err)
			}
			all := 30
			for token != "" {
				p, err = f.r.Page(context.Background(), now.Path.String(), &router.ReadRequest{PageToken: token}, router.Scan)
				require.NoError(t, err)
				rd = f.r.Open(p)
				got, err = next(t, rd)
				require.ErrorIs(t, err, io.EOF)
				require.Contains(t, got[0], `"n":`)
				all += len(got)
				token, err = rd.NextPage(context.Background())
				require.NoError(t, err)
				require.NoError(t, rd.Close())
			}
			require.Equal(t, 100, all)
		})
	}
}

// tail follows a table's changelog from its beginning.
func (f *fixture) tail(t *millrace.Table, columns ...string) *router.Reader {
	p, err := f.r.Plan(context.Background(), t.Path.String(), &router.ReadRequest{Columns: columns}, router.PlanOptions{
		View: router.ChangelogView, ViewSet: true, From: router.Position{Kind: router.Earliest}, Until: router.Position{Kind: router.Never},
	})
	require.NoError(f.t, err)
	return f.r.Open(p)
}

// Shows that a tail keeps the columns it began with: an added, renamed or widened one
// does not disturb it, as long as values fit; a dropped one that it reads ends it where
// the rows without it begin, and when nothing is written, too.
func TestTailsOutliveAlter(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) {
			f := newFixture(t)
			mode := router.Append
			if keyed {
				mode = router.Upsert
			}
			old := f.table("t", keyed, 1)
			f.write(old, mode, rows(old, 0, 2, "a"))
			narrow, whole, idle := f.tail(old, "n", "k"), f.tail(old), f.tail(old, "v")
			got, err := next(t, idle)
			require.NoError(t, err)
			require.Len(t, got, 2)
			now := f.altered(old)
			got, err = next(t, idle)
			require.Empty(t, got)
			require.True(t, errs.Is(err, errs.SchemaChanged), "%v", err)
			f.write(now, mode, newRows(now, 2, 3, 77))

			got, err = next(t, narrow)
			require.NoError(t, err)
			require.Len(t, got, 3)
			require.Contains(t, got[2], `"n":77`)
			got, err = next(t, whole)
			require.True(t, errs.Is(err, errs.SchemaChanged), "%v", err)
			require.Len(t, got, 2, "what was written before is given")
			require.Contains(t, got[1], `"v":"a1"`)
			require.Equal(t, map[string]millrace.Offset{"0": 2}, whole.Places())

			f.write(now, mode, newRows(now, 3, 4, 1<<40))
			_, err = next(t, narrow)
			require.True(t, errs.Is(err, errs.SchemaChanged), "%v", err)
			// Who comes again with the cursor gets the new columns.
			cur := whole.Cursor()
			pos, err := router.ParsePosition(cur)
			require.NoError(t, err)
			p, err := f.r.Plan(context.Background(), now.Path.String()+"$changelog", &router.ReadRequest{From: pos}, router.Scan)
			require.NoError(t, err)
			again := f.drain(p)
			require.Len(t, again, 2)
			require.Contains(t, again[1], `"m":1099511627776`)
			for _, rd := range []*router.Reader{narrow, whole, idle} {
				require.NoError(t, rd.Close())
			}
		})
	}
}

// Shows that a stream of lookups keeps its columns, and ends when one was dropped.
func TestLookupsOutliveAlter(t *testing.T) {
	f := newFixture(t)
	old := f.table("t", true, 2)
	f.write(old, router.Upsert, rows(old, 0, 10, "a"))
	open := func(names ...string) *router.Lookups {
		cols, err := router.LookupColumns(old, names)
		require.NoError(t, err)
		l, err := f.r.OpenLookups(t.Context(), old, cols, 1<<20, false)
		require.NoError(t, err)
		return l
	}
	keys := row.Project(rows(old, 3, 5, "").Record, []int{0})
	n, v := open("n"), open("v")
	now := f.altered(old)
	f.write(now, router.Upsert, newRows(now, 4, 5, 44))
	res, err := n.Next(context.Background(), keys)
	require.NoError(t, err)
	require.Equal(t, []string{`{"n":3}`, `{"n":44}`}, text(t, res.Record))
	_, err = v.Next(context.Background(), keys)
	require.True(t, errs.Is(err, errs.SchemaChanged), "%v", err)
	cols, err := router.LookupColumns(now, nil)
	require.NoError(t, err)
	got, err := f.r.Lookup(context.Background(), now, keys, cols)
	require.NoError(t, err)
	require.Equal(t, []string{`{"d":null,"k":3,"m":3,"v":null}`, `{"d":0.5,"k":4,"m":44,"v":"new4"}`}, text(t, got.Record))
}
