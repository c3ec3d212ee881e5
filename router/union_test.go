package router_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
)

// The tier is said by suffix or request; what contradicts is refused, and so is the lake
// of a table that has none (X11).
func TestTiers(t *testing.T) {
	f, l := lakeFixture(t)
	log, bare := f.table("log", false, 2), f.table("bare", false, 2)
	log.Options.Lake = inLake()
	f.write(log, router.Append, rows(log, 0, 30, "a"))
	f.write(bare, router.Append, rows(bare, 0, 30, "a"))
	require.Empty(t, f.lines("d.log$lake", &router.ReadRequest{}), "nothing was tiered yet")
	require.Len(t, f.lines("d.log", &router.ReadRequest{}), 30)
	l.tier(log)
	f.write(log, router.Append, rows(log, 30, 50, "b"))

	for _, c := range []struct {
		path string
		req  router.ReadRequest
		rows int
	}{
		{"d.log", router.ReadRequest{}, 50},
		{"d.log", router.ReadRequest{Tier: "union"}, 50},
		{"d.log", router.ReadRequest{Tier: "hot"}, 50},
		{"d.log", router.ReadRequest{Tier: "lake"}, 30},
		{"d.log$lake", router.ReadRequest{}, 30},
		{"d.log$lake", router.ReadRequest{Tier: "lake", View: "rows", From: &router.Position{Kind: router.Full}}, 30},
		{"d.log", router.ReadRequest{From: &router.Position{Kind: router.Full}}, 50},
		{"d.log$lake", router.ReadRequest{Filter: "k >= 28 OR n = 3"}, 5},
		{"d.log", router.ReadRequest{Filter: "_log_offset IS NULL"}, 30},
		{"d.log", router.ReadRequest{Filter: "_log_offset IS NOT NULL"}, 20},
		{"d.log", router.ReadRequest{Filter: "_bucket IS NULL"}, 30},
		{"d.log", router.ReadRequest{Filter: "k < 3 OR k > 47", Columns: []string{"v"}}, 5},
		{"d.log", router.ReadRequest{Limit: new(int64(35))}, 35},
		{"d.log", router.ReadRequest{Limit: new(int64(7))}, 7},
		{"d.bare", router.ReadRequest{Tier: "union"}, 30},
		{"d.bare", router.ReadRequest{Tier: "hot"}, 30},
	} {
		require.Len(t, f.lines(c.path, &c.req), c.rows, "%s %+v", c.path, c.req)
	}
	for _, c := range []struct {
		path string
		req  router.ReadRequest
		says string
	}{
		{"d.log$lake", router.ReadRequest{Tier: "hot"}, "suffix asks for"},
		{"d.log$lake", router.ReadRequest{Tier: "union"}, "suffix asks for"},
		{"d.log$lake", router.ReadRequest{View: "changelog"}, "no changes"},
		{"d.log$changelog", router.ReadRequest{Tier: "lake"}, "no changes"},
		{"d.log", router.ReadRequest{Tier: "cold"}, "union, hot, lake"},
		{"d.log$lake", router.ReadRequest{From: &router.Position{Kind: router.Earliest}}, "newest snapshot"},
		{"d.log$lake", router.ReadRequest{Until: &router.Position{Kind: router.AtTime, Time: time.Unix(1, 0)}}, "newest snapshot"},
		{"d.log$lake", router.ReadRequest{Buckets: []int{1}}, "several buckets"},
		{"d.log", router.ReadRequest{Until: &router.Position{Kind: router.AtOffsets, Offsets: map[string]millrace.Offset{"0": 1}}}, ""},
		{"d.bare$lake", router.ReadRequest{}, "table.datalake.enabled"},
		{"d.bare", router.ReadRequest{Tier: "lake"}, "table.datalake.enabled"},
	} {
		_, err := f.r.Plan(context.Background(), c.path, &c.req, router.Scan)
		require.True(t, errs.Is(err, errs.InvalidValue), "%s %+v: %v", c.path, c.req, err)
		require.ErrorContains(t, err, c.says)
	}
}

// answers are what a log table gives over some questions, as lines.
func (f *fixture) answers(path, tier string, rng func(int) int) [][]string {
	var out [][]string
	for _, req := range []router.ReadRequest{
		{},
		{Columns: []string{"v"}},
		{Columns: []string{"n", "k"}, Filter: "v LIKE '%1%'"},
		{Filter: fmt.Sprintf("n = %d", rng(10))},
		{Filter: fmt.Sprintf("k >= %d AND k < %d", rng(300), rng(300))},
		{Filter: "v IS NULL"},
		{Filter: fmt.Sprintf("k IN (%d, %d)", rng(300), rng(300)), Columns: []string{"k"}},
	} {
		req.Tier = tier
		out = append(out, f.lines(path, &req))
	}
	return out
}

// The union of a log table is its log, whenever rows were tiered and files merged: by
// scan, by pages, by tickets that are cut and read twice, in views of the log, and counted.
func TestUnionOfLogTable(t *testing.T) {
	for _, keyed := range []int{0, 1} { // columns of the bucket key
		for _, buckets := range []int{1, 3} {
			f, l := lakeFixture(t)
			tbl := f.table("t", false, buckets)
			tbl.Options.Lake = inLake()
			if keyed == 1 {
				tbl.BucketKey = []millrace.ColumnID{1}
			}
			rng := newRand(t)
			n := 0
			for step := range 12 {
				if more := rng.IntN(40); more > 0 {
					f.write(tbl, router.Append, rows(tbl, n, n+more, "x"))
					n += more
				}
				if rng.IntN(2) == 0 {
					l.tier(tbl)
				}
				if rng.IntN(4) == 0 {
					l.maintain(tbl)
				}
				seed := rng.Uint64()
				draw := func() func(int) int { r := randOf(seed); return r.IntN }
				want := f.answers("d.t", "hot", draw())
				require.Equal(t, want, f.answers("d.t", "", draw()), "step %d", step)
				all := want[0]
				require.Equal(t, all, f.pages(&router.ReadRequest{PageSize: new(1 + rng.IntN(30))}, "d.t", func() {
					f.write(tbl, router.Append, rows(tbl, n, n+1, "x"))
					n++
					l.tier(tbl)
					l.maintain(tbl)
				}), "step %d", step)
				all = f.lines("d.t", &router.ReadRequest{Tier: "hot"})
				require.Equal(t, all, f.tickets("d.t", &router.ReadRequest{}, func() { l.tier(tbl); l.maintain(tbl) }))
				count, err := f.r.Count(context.Background(), "d.t", &router.ReadRequest{})
				require.NoError(t, err)
				require.EqualValues(t, len(all), count)
				lake, err := f.r.Count(context.Background(), "d.t$lake", &router.ReadRequest{})
				require.NoError(t, err)
				require.Len(t, f.lines("d.t$lake", &router.ReadRequest{}), int(lake))
			}
		}
	}
}

// pages reads a request page by page, doing something between the pages.
func (f *fixture) pages(req *router.ReadRequest, path string, between func()) []string {
	var out []string
	for i := 0; ; i++ {
		p, err := f.r.Page(context.Background(), path, req, router.Scan)
		require.NoError(f.t, err)
		rd := f.r.Open(p)
		for {
			c, err := rd.Next(context.Background(), 0)
			if err != nil {
				require.ErrorContains(f.t, err, "EOF")
				break
			}
			rec, err := c.Record()
			require.NoError(f.t, err)
			out = append(out, text(f.t, rec)...)
			rec.Release()
			c.Release()
		}
		next, err := rd.NextPage(context.Background())
		require.NoError(f.t, err)
		require.NoError(f.t, rd.Close())
		if next == "" {
			break
		}
		req = &router.ReadRequest{PageToken: next, PageSize: req.PageSize}
		if i == 0 {
			between()
		}
	}
	slices.Sort(out)
	return out
}

// tickets reads a request by tickets, twice, doing something after they were given.
func (f *fixture) tickets(path string, req *router.ReadRequest, between func()) []string {
	p, err := f.r.Plan(context.Background(), path, req, router.Scan)
	require.NoError(f.t, err)
	require.NoError(f.t, f.r.Hold(context.Background(), p, router.TicketTTL, router.TicketTTL))
	var texts []string
	for _, part := range p.Split(1024) {
		text, err := f.r.Ticket(part, time.Now().Add(time.Hour))
		require.NoError(f.t, err)
		texts = append(texts, text)
	}
	p.Close()
	var first []string
	for i := range 2 {
		var got []string
		for _, text := range texts {
			p, err := f.r.OpenTicket(context.Background(), text)
			require.NoError(f.t, err)
			got = append(got, f.drain(p)...)
		}
		if i == 0 {
			first = got
			between()
		}
		require.Equal(f.t, first, got)
	}
	slices.Sort(first)
	return first
}

// The rows of a keyed table are the same from its state, and from the lake with what the
// log has on top of it, by scan, pages and tickets, whatever was written and tiered when;
// so too when the changes do not fit and a part goes back to state (X13).
func TestUnionOfKeyedTable(t *testing.T) {
	for _, image := range []millrace.ChangelogImage{millrace.FullImage, millrace.WALImage} {
		f, l := lakeFixture(t)
		tbl := f.table("t", true, 3)
		tbl.Options.Lake, tbl.Options.Image = inLake(), image
		rng := newRand(t)
		overlaid := 0
		for step := range 25 {
			for range rng.IntN(4) {
				from := rng.IntN(200)
				if rng.IntN(4) == 0 {
					f.write(tbl, router.Delete, rows(tbl, from, from+rng.IntN(40), ""))
				} else {
					f.write(tbl, router.Upsert, rows(tbl, from, from+rng.IntN(60), fmt.Sprint(step, " ")))
				}
			}
			if rng.IntN(3) == 0 { // batches of their own
				for _, sh := range f.w.Shards() {
					require.NoError(t, sh.Checkpoint(context.Background()))
				}
			}
			if rng.IntN(3) == 0 {
				before := f.lines("d.t", &router.ReadRequest{})
				l.tier(tbl)
				require.Equal(t, before, f.lines("d.t$lake", &router.ReadRequest{}), "the lake is the state at its offsets")
			}
			if rng.IntN(4) == 0 {
				l.maintain(tbl)
			}
			seed := rng.Uint64()
			ask := func(tier string) [][]string { return f.answers("d.t", tier, randOf(seed).IntN) }
			want := ask("hot")
			f.r.StateOnly()
			require.Equal(t, want, ask(""), "step %d", step)
			f.r.OverlayOnly([]int64{1 << 20, 1 << 20, 1000}[rng.IntN(3)])
			p, err := f.r.Plan(context.Background(), "d.t", &router.ReadRequest{}, router.Scan)
			require.NoError(t, err)
			overlaid += p.Overlaid()
			p.Close()
			require.Equal(t, want, ask(""), "step %d", step)
			size := 1 + rng.IntN(30)
			require.Equal(t, want[0], f.pages(&router.ReadRequest{PageSize: &size}, "d.t", func() {
				f.write(tbl, router.Upsert, rows(tbl, 0, 300, "later"))
				l.tier(tbl)
				l.maintain(tbl)
			}))
			all := f.lines("d.t", &router.ReadRequest{Tier: "hot"})
			require.Equal(t, all, f.tickets("d.t", &router.ReadRequest{}, func() {
				f.write(tbl, router.Delete, rows(tbl, 100, 300, ""))
				l.tier(tbl)
			}))
			for _, limit := range []int64{0, 1, 50} {
				got := f.lines("d.t", &router.ReadRequest{Limit: &limit, Columns: []string{"v", "n"}, Filter: "_log_offset IS NULL"})
				require.Len(t, got, min(int(limit), int(f.count("d.t"))))
			}
			require.EqualValues(t, len(f.lines("d.t", &router.ReadRequest{})), f.count("d.t"))
			f.r.Choose()
		}
		require.Greater(t, overlaid, 30)
	}
}

func (f *fixture) count(path string) int64 {
	n, err := f.r.Count(context.Background(), path, &router.ReadRequest{})
	require.NoError(f.t, err)
	return n
}

// A lake that does not answer keeps reads of history from beginning, and nothing else:
// the hot tier goes on, and so do rows of keyed tables, which the workers all have.
func TestLakeAway(t *testing.T) {
	f, l := lakeFixture(t)
	log, keyed := f.table("log", false, 2), f.table("keyed", true, 2)
	log.Options.Lake, keyed.Options.Lake = inLake(), inLake()
	f.write(log, router.Append, rows(log, 0, 30, "a"))
	f.write(keyed, router.Upsert, rows(keyed, 0, 30, "a"))
	l.tier(log)
	l.tier(keyed)
	f.write(keyed, router.Upsert, rows(keyed, 0, 10, "b"))
	f.r.OverlayOnly(1 << 20)
	away := laketest.Newest
	l.f.Hook = func(step laketest.Step, _ millrace.TableID) error {
		if step == away {
			return errs.New(errs.Unavailable, "the store is away")
		}
		return nil
	}
	for _, path := range []string{"d.log", "d.log$lake", "d.keyed$lake"} {
		_, err := f.r.Plan(context.Background(), path, &router.ReadRequest{}, router.Scan)
		require.True(t, errs.Is(err, errs.Unavailable), "%s: %v", path, err)
		_, err = f.r.Count(context.Background(), path, &router.ReadRequest{})
		require.True(t, errs.Is(err, errs.Unavailable), "%s: %v", path, err)
	}
	require.Len(t, f.lines("d.log", &router.ReadRequest{Tier: "hot"}), 30)
	require.Len(t, f.lines("d.log$changelog", &router.ReadRequest{}), 30)
	require.Len(t, f.lines("d.keyed", &router.ReadRequest{}), 30)
	f.write(log, router.Append, rows(log, 30, 31, "a"))

	away = laketest.ReadRows // and one that goes while it is read
	for _, path := range []string{"d.log", "d.keyed"} {
		p, err := f.r.Plan(context.Background(), path, &router.ReadRequest{}, router.Scan)
		require.NoError(t, err)
		rd := f.r.Open(p)
		for err == nil {
			var c *router.Chunk
			if c, err = rd.Next(context.Background(), time.Second); c != nil {
				c.Release()
			}
		}
		require.True(t, errs.Is(err, errs.Unavailable), "%s: %v", path, err)
		require.NoError(t, rd.Close())
	}
	away = ""
	require.Len(t, f.lines("d.log", &router.ReadRequest{}), 31)
	require.Len(t, f.lines("d.keyed", &router.ReadRequest{}), 30)
}

// Where the log goes on after the lake can be asked for; a limit opens no more files than
// it needs; and what names a snapshot ends with it.
func TestFullOfTieredTable(t *testing.T) {
	f, l := lakeFixture(t)
	now := time.Now()
	l.f.Now = func() time.Time { return now }
	tbl := f.table("t", false, 2)
	tbl.Options.Lake, tbl.BucketKey = inLake(), []millrace.ColumnID{1}
	f.write(tbl, router.Append, rows(tbl, 0, 400, "a"))
	l.tier(tbl)
	_, at, err := f.r.Offsets(context.Background(), "d.t", nil, router.Position{Kind: router.Full})
	require.NoError(t, err)
	f.write(tbl, router.Append, rows(tbl, 400, 500, "a"))
	_, still, err := f.r.Offsets(context.Background(), "d.t", nil, router.Position{Kind: router.Full})
	require.NoError(t, err)
	require.Equal(t, at, still)
	require.EqualValues(t, 400, at["0"]+at["1"])
	require.Len(t, f.lines("d.t$changelog", &router.ReadRequest{From: &router.Position{Kind: router.AtOffsets, Offsets: at}}), 100)
	require.Len(t, f.lines("d.t$changelog", &router.ReadRequest{From: &router.Position{Kind: router.Full}}), 500)
	require.Len(t, f.lines("d.t$binlog", &router.ReadRequest{From: &router.Position{Kind: router.Full}, Filter: "n = 3"}), 50)

	p, err := f.r.Plan(context.Background(), "d.t", &router.ReadRequest{Limit: new(int64(3))}, router.Scan)
	require.NoError(t, err)
	rd := f.r.Open(p)
	c, err := rd.Next(context.Background(), 0)
	require.NoError(t, err)
	require.Equal(t, 3, c.Rows)
	c.Release()
	require.True(t, rd.Done())
	require.Equal(t, 1, rd.Stats().LakeFiles)
	require.LessOrEqual(t, rd.Stats().RowsRead, int64(256))
	require.NoError(t, rd.Close())

	o := router.PlanOptions{View: router.ChangelogView, ViewSet: true, Until: router.Position{Kind: router.Never}}
	p, err = f.r.Plan(context.Background(), "d.t", &router.ReadRequest{From: &router.Position{Kind: router.Full}}, o)
	require.NoError(t, err)
	rd = f.r.Open(p)
	c, err = rd.Next(context.Background(), 0)
	require.NoError(t, err)
	cursor := rd.CursorAfter(c, 0)
	c.Release()
	require.NoError(t, rd.Close())
	p, err = f.r.Plan(context.Background(), "d.t", &router.ReadRequest{From: &router.Position{Kind: router.AtCursor, Cursor: cursor}}, o)
	require.NoError(t, err)
	p.Close()
	l.tier(tbl)
	now = now.Add(48 * time.Hour)
	l.maintain(tbl)
	_, err = f.r.Plan(context.Background(), "d.t", &router.ReadRequest{From: &router.Position{Kind: router.AtCursor, Cursor: cursor}}, o)
	require.True(t, errs.Is(err, errs.SnapshotGone), "%v", err)
}

// Tickets and tokens that a release gave which knew no lake are read as they were meant,
// and who reads the next form refuses what it does not know.
func TestTicketsOfBefore(t *testing.T) {
	f, l := lakeFixture(t)
	tbl := f.table("t", false, 1)
	f.write(tbl, router.Append, rows(tbl, 0, 8, "a"))
	expires := time.Now().Add(time.Hour).Unix()
	old := fmt.Sprintf(`{"v":2,"t":%d,"s":1,"c":[1,2,3],"n":1785585822000000,"l":-1,"h":5000000000,"r":23,"x":%d,"b":"AAAAAgo="}`, tbl.ID, expires)
	p, err := f.r.OpenTicket(context.Background(), old)
	require.NoError(t, err)
	require.Len(t, f.drain(p), 5, "offsets 2 to 6")
	tbl.Options.Lake = inLake()
	l.tier(tbl)
	p, err = f.r.OpenTicket(context.Background(), old)
	require.NoError(t, err)
	require.Len(t, f.drain(p), 5, "and are so when the table is in the lake")
	for _, bad := range []string{
		fmt.Sprintf(`{"v":4,"t":%d,"s":1,"c":[1],"n":1,"l":-1,"h":5,"r":23,"x":%d,"b":"AAAAAgo="}`, tbl.ID, expires),
		fmt.Sprintf(`{"v":3,"t":%d,"s":1,"c":[1],"n":1,"l":-1,"h":5,"r":23,"x":%d,"b":"AAAIAgoAAA=="}`, tbl.ID, expires), // rows of the lake, and no snapshot
		fmt.Sprintf(`{"v":3,"t":%d,"s":1,"c":[1],"n":1,"l":-1,"h":5,"r":23,"x":%d,"b":"AACAAQIK"}`, tbl.ID, expires),     // a flag of later
	} {
		_, err := f.r.OpenTicket(context.Background(), bad)
		require.True(t, errs.Is(err, errs.InvalidValue), "%s: %v", bad, err)
	}
	_, err = f.r.OpenTicket(context.Background(), fmt.Sprintf(`{"v":3,"t":%d,"s":1,"c":[1],"n":1,"l":-1,"h":5,"r":23,"x":%d,"a":99,"b":"AAAIAgoAAA=="}`, tbl.ID, expires))
	require.True(t, errs.Is(err, errs.SnapshotGone), "%v", err)
}
