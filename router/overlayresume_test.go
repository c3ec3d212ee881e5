package router_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// What is on top of the lake is read on exactly where a page, a batch or a limit ended:
// batches of the log begin and end with rows that stand, so that a place which is off by
// one would lose or double one of them.
func TestOverlayReadsOn(t *testing.T) {
	f, l := lakeFixture(t)
	tbl := f.table("t", true, 1)
	tbl.Options.Lake = inLake()
	f.write(tbl, router.Upsert, rows(tbl, 0, 10, "a"))
	l.tier(tbl)
	long := strings.Repeat("b", 300_000) // no batch is read together with the next one
	for i, n := 0, 10; i < 6; i++ {
		f.write(tbl, router.Upsert, rows(tbl, n, n+1+i%3, long)) // new keys
		n += 1 + i%3
	}
	f.r.OverlayOnly(1 << 20)
	p, err := f.r.Plan(context.Background(), "d.t", &router.ReadRequest{}, router.Scan)
	require.NoError(t, err)
	require.Equal(t, 1, p.Overlaid())
	p.Close()
	keys := []string{"k"}
	want := f.lines("d.t", &router.ReadRequest{Tier: "hot", Columns: keys})
	require.Len(t, want, 22)
	require.Equal(t, want, f.lines("d.t", &router.ReadRequest{Columns: keys}))
	for size := 1; size < 23; size++ {
		require.Equal(t, want, f.pages(&router.ReadRequest{PageSize: &size, Columns: keys}, "d.t", func() {}), "pages of %d", size)
	}
	require.Len(t, f.lines("d.t", &router.ReadRequest{Columns: keys, Filter: "k >= 10 AND v LIKE 'b%'"}), 12)
}

// A read that has given one row of what is on top of the lake does not begin again with
// the state, when there is no room any more for the keys that changed: it would give that
// row twice.
func TestOverlayWithoutRoomAmidIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f, l := lakeFixture(t)
	tbl := f.table("t", true, 1)
	tbl.Options.Lake = inLake()
	f.write(tbl, router.Upsert, rows(tbl, 0, 1, "a"))
	f.write(tbl, router.Delete, rows(tbl, 0, 1, ""))
	l.tier(tbl) // no rows, and an offset
	f.write(tbl, router.Upsert, rows(tbl, 1, 5, "b"))
	f.r.OverlayOnly(1 << 20)
	page, err := f.r.Page(ctx, "d.t", &router.ReadRequest{PageSize: new(1)}, router.Scan)
	require.NoError(t, err)
	require.Equal(t, 1, page.Overlaid())
	rd := f.r.Open(page)
	c, err := rd.Next(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, 1, c.Rows)
	require.Equal(t, millrace.NoOffset, c.Base)
	c.Release()
	token, err := rd.NextPage(ctx)
	require.NoError(t, err)
	require.NoError(t, rd.Close())

	f.r.OverlayOnly(1)
	page, err = f.r.Page(ctx, "d.t", &router.ReadRequest{PageToken: token}, router.Scan)
	require.NoError(t, err)
	rd = f.r.Open(page)
	_, err = rd.Next(ctx, 0)
	require.True(t, errs.Is(err, errs.SnapshotGone), "%v", err)
	require.NoError(t, rd.Close())
}

// Nor does one that has given all files of the lake and nothing of what is on top of them.
func TestOverlayWithoutRoomAfterTheFiles(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f, l := lakeFixture(t)
	tbl := f.table("t", true, 1)
	tbl.Options.Lake = inLake()
	f.write(tbl, router.Upsert, rows(tbl, 0, 10, "a"))
	l.tier(tbl)
	f.write(tbl, router.Upsert, rows(tbl, 10, 20, "b"))
	for size := 1; size < 20; size++ {
		f.r.OverlayOnly(1 << 20)
		page, err := f.r.Page(ctx, "d.t", &router.ReadRequest{PageSize: &size}, router.Scan)
		require.NoError(t, err)
		rd := f.r.Open(page)
		for given := 0; given < size; {
			c, err := rd.Next(ctx, 0)
			require.NoError(t, err)
			given += c.Rows
			c.Release()
		}
		token, err := rd.NextPage(ctx)
		require.NoError(t, err)
		require.NoError(t, rd.Close())
		f.r.OverlayOnly(1)
		page, err = f.r.Page(ctx, "d.t", &router.ReadRequest{PageToken: token}, router.Scan)
		require.NoError(t, err)
		rd = f.r.Open(page)
		_, err = rd.Next(ctx, 0)
		require.True(t, errs.Is(err, errs.SnapshotGone), "after %d rows: %v", size, err)
		require.NoError(t, rd.Close())
	}
}
