package router_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// numbering is a catalog that gives numbers up to a limit, and keeps how many were
// asked for.
type numbering struct {
	*fakeCatalog
	mu    sync.Mutex
	last  int64
	limit int64
	asked []int
}

func (c *numbering) ReserveIDs(_ context.Context, _ millrace.TableID, n int) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(n) > c.limit-c.last {
		return 0, errs.New(errs.IntegerOverflow, "no numbers left")
	}
	c.asked = append(c.asked, n)
	first := c.last + 1
	c.last += int64(n)
	return first, nil
}

// numbered is a fixture whose table has a column that is numbered, NOT NULL.
func numbered(t *testing.T, buckets int) (*fixture, *numbering, *millrace.Table) {
	f := newFixture(t)
	tbl := f.table("numbered", true, buckets)
	tbl.Schema.Columns[2].AutoIncrement, tbl.Schema.Columns[2].Nullable = true, false
	cat := &numbering{fakeCatalog: f.cat, limit: math.MaxInt32}
	f.route(cat)
	return f, cat, tbl
}

// route begins with a router that has no numbers in hand.
func (f *fixture) route(cat router.Catalog) {
	f.r = newRouter(router.Options{Catalog: cat, Signer: plainSigner{}, Clock: realClock{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}, f.w.Shards())
}

// unnumbered are rows without a value for the last column; with ids, with these.
func unnumbered(t *millrace.Table, keys []int64, ids []int32, changes ...millrace.ChangeType) row.Rows {
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(t.Schema.Columns))
	defer b.Release()
	for i, k := range keys {
		b.Field(0).(*array.Int64Builder).Append(k)
		b.Field(1).(*array.StringBuilder).Append("x")
		if ids == nil || ids[i] == 0 {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.Int32Builder).Append(ids[i])
		}
	}
	return row.Rows{Record: b.NewRecordBatch(), Columns: t.Schema.Columns, Changes: changes}
}

// ids are the numbers of a table's rows, by key.
func (f *fixture) ids(t *millrace.Table) map[int64]int64 {
	out := map[int64]int64{}
	for _, s := range f.read(t, &router.ReadRequest{}) {
		var r struct{ K, N int64 }
		require.NoError(f.t, json.Unmarshal([]byte(s), &r))
		out[r.K] = r.N
	}
	return out
}

// Shows that the rows of a batch are numbered in their order, whatever buckets they go
// to, that an update keeps the number, and that the next router goes on behind what the
// one before had in hand.
func TestNumbers(t *testing.T) {
	f, cat, tbl := numbered(t, 4)
	keys := []int64{5, 3, 9, 1, 7, 8}
	f.write(tbl, router.Upsert, unnumbered(tbl, keys, nil))
	want := map[int64]int64{5: 1, 3: 2, 9: 3, 1: 4, 7: 5, 8: 6}
	require.Equal(t, want, f.ids(tbl))
	f.write(tbl, router.Upsert, unnumbered(tbl, keys, nil))
	require.Equal(t, want, f.ids(tbl))
	require.Equal(t, []int{1000}, cat.asked)
	f.route(cat)
	f.write(tbl, router.Upsert, unnumbered(tbl, []int64{2}, nil))
	want[2] = 1001
	require.Equal(t, want, f.ids(tbl))
	f.crash()
	require.Equal(t, want, f.ids(tbl))
}

// Shows that no two rows get one number, however many write at once, and that the
// catalog is asked for larger and larger blocks, up to a bound.
func TestNumbersAtOnce(t *testing.T) {
	f, cat, tbl := numbered(t, 3)
	var group errgroup.Group
	const writers, batches, each = 16, 10, 200
	for w := range writers {
		group.Go(func() error {
			for b := range batches {
				keys := make([]int64, each)
				for i := range keys {
					keys[i] = int64((w*batches+b)*each + i)
				}
				if _, err := f.r.Write(context.Background(), &router.WriteRequest{Table: tbl, Mode: router.Upsert, Rows: unnumbered(tbl, keys, nil)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	seen := map[int64]bool{}
	for _, id := range f.ids(tbl) {
		require.False(t, seen[id], "%d twice", id)
		seen[id] = true
	}
	require.Len(t, seen, writers*batches*each)
	require.Equal(t, []int{1000, 2000, 4000, 8000, 16000, 32000}, cat.asked)
	big := make([]int64, 150_000)
	for i := range big {
		big[i] = int64(i)
	}
	f.write(tbl, router.Upsert, unnumbered(tbl, big, nil))
	f.write(tbl, router.Upsert, unnumbered(tbl, []int64{1}, nil))
	require.Equal(t, 100_000, cat.asked[len(cat.asked)-1])
}

// Shows that a value of the client's own is refused before anything is written, in
// rows that write; a changelog that deletes may have it.
func TestNumberGiven(t *testing.T) {
	f, _, tbl := numbered(t, 2)
	write := func(r row.Rows) error {
		_, err := f.r.Write(context.Background(), &router.WriteRequest{Table: tbl, Mode: router.Upsert, Rows: r, FirstRow: 10})
		return err
	}
	err := write(unnumbered(tbl, []int64{1, 2}, []int32{0, 7}))
	require.Equal(t, errs.InvalidValue, errs.CodeOf(err))
	require.ErrorContains(t, err, "row 11")
	require.Empty(t, f.ids(tbl))
	err = write(unnumbered(tbl, []int64{1}, []int32{7}, millrace.UpdateAfter))
	require.Equal(t, errs.InvalidValue, errs.CodeOf(err))
	require.NoError(t, write(unnumbered(tbl, []int64{1, 1, 2}, []int32{0, 7, 7}, millrace.Insert, millrace.UpdateBefore, millrace.Delete)))
	require.Equal(t, map[int64]int64{1: 1}, f.ids(tbl))
	f.write(tbl, router.Delete, unnumbered(tbl, []int64{1}, []int32{7}))
	require.Empty(t, f.ids(tbl))
}

// Shows what partial writes may do in a table with a column that is numbered: leave it
// out, although it is NOT NULL, and not make it NULL.
func TestNumberPartly(t *testing.T) {
	f, _, tbl := numbered(t, 2)
	part := func(cols ...int) row.Rows {
		whole := unnumbered(tbl, []int64{1, 2}, nil)
		defer whole.Release()
		out := row.Rows{Record: row.Project(whole.Record, cols)}
		for _, c := range cols {
			out.Columns = append(out.Columns, tbl.Schema.Columns[c])
		}
		return out
	}
	write := func(mode router.Mode, absent bool, r row.Rows) error {
		_, err := f.r.Write(context.Background(), &router.WriteRequest{Table: tbl, Mode: mode, Rows: r, Partial: true, IfAbsent: absent})
		return err
	}
	require.NoError(t, write(router.Upsert, true, part(0)))
	require.NoError(t, write(router.Upsert, true, part(0)))
	require.Equal(t, map[int64]int64{1: 1, 2: 2}, f.ids(tbl))
	require.NoError(t, write(router.Upsert, false, part(0, 1)))
	require.NoError(t, write(router.Upsert, false, part(0, 1, 2)))
	require.Equal(t, map[int64]int64{1: 1, 2: 2}, f.ids(tbl))
	require.Equal(t, errs.NullNotAllowed, errs.CodeOf(write(router.Delete, false, part(0, 2))))
	require.NoError(t, write(router.Delete, false, part(0, 1)))
	require.Equal(t, map[int64]int64{1: 1, 2: 2}, f.ids(tbl))
}

// Shows that the last numbers of a type are given, and that a batch beyond them is
// refused whole.
func TestNumbersRunOut(t *testing.T) {
	f, cat, tbl := numbered(t, 2)
	cat.limit = 1003
	keys := make([]int64, 999)
	for i := range keys {
		keys[i] = int64(i)
	}
	f.write(tbl, router.Upsert, unnumbered(tbl, keys, nil))
	f.write(tbl, router.Upsert, unnumbered(tbl, []int64{1000, 1001, 1002}, nil)) // one of the first block, two more
	_, err := f.r.Write(context.Background(), &router.WriteRequest{Table: tbl, Mode: router.Upsert, Rows: unnumbered(tbl, []int64{2000, 2001}, nil)})
	require.Equal(t, errs.IntegerOverflow, errs.CodeOf(err))
	got := f.ids(tbl)
	require.Len(t, got, 1002)
	require.EqualValues(t, 1002, slices.Max([]int64{got[1000], got[1001], got[1002]}))
	f.write(tbl, router.Upsert, unnumbered(tbl, []int64{3000}, nil))
	require.EqualValues(t, 1003, f.ids(tbl)[3000])
}

// Shows that engines which choose between rows refuse updates of some columns before
// anything is written, and take rows that are written only where there are none.
func TestWholeRowsOnly(t *testing.T) {
	for _, e := range []millrace.MergeEngine{millrace.FirstRow, millrace.Versioned} {
		f := newFixture(t)
		tbl := f.table("whole", true, 2)
		tbl.Options = millrace.TableOptions{MergeEngine: e, VersionColumn: 3}
		whole := unnumbered(tbl, []int64{1, 2}, nil)
		part := row.Rows{Record: row.Project(whole.Record, []int{0}), Columns: tbl.Schema.Columns[:1]}
		req := &router.WriteRequest{Table: tbl, Mode: router.Upsert, Rows: part, Partial: true}
		res, err := f.r.Write(context.Background(), req)
		require.Equal(t, errs.PartialUpdateNotAllowed, errs.CodeOf(err))
		require.Nil(t, res)
		_, err = f.r.Write(context.Background(), &router.WriteRequest{Table: tbl, Mode: router.Upsert, Rows: row.Rows{Record: whole.Record, Columns: whole.Columns}, Partial: true})
		require.NoError(t, err) // all columns are named
		f.write(tbl, router.Upsert, unnumbered(tbl, []int64{1, 2}, nil))
		require.Len(t, f.ids(tbl), 2)
		part = row.Rows{Record: row.Project(unnumbered(tbl, []int64{3, 4}, nil).Record, []int{0}), Columns: part.Columns}
		req.Rows, req.IfAbsent = part, true
		_, err = f.r.Write(context.Background(), req)
		require.NoError(t, err)
		require.Len(t, f.ids(tbl), 4)
	}
}
