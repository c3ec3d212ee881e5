package router_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// Many writers make partitions and write to them while tails run, some broken off and
// taken up again at their cursors, some from a ticket, some narrowed by a filter or to
// buckets: each gives each record it covers once, in the order of its bucket, and hears
// of a new partition without waiting for a heartbeat.
func TestTailsJoinPartitions(t *testing.T) {
	f := newParted(t)
	tbl := f.table("t", "w BIGINT, n BIGINT, dt STRING, hour INT", partitionBy(3, "dt", "hour"))
	const writers, parts, each = 4, 12, 5
	f.must(tbl, router.Append, `{"w":100,"n":0,"dt":"d0","hour":0}`)
	type tail struct {
		req   router.ReadRequest
		cover func(dt string, hour int) bool
		cut   bool // broken off at random
	}
	all := func(string, int) bool { return true }
	tails := []tail{
		{router.ReadRequest{}, all, false},
		{router.ReadRequest{}, all, true},
		{router.ReadRequest{Filter: "dt = 'd1'"}, func(dt string, _ int) bool { return dt == "d1" }, false},
		{router.ReadRequest{Filter: "hour >= 5 OR _partition LIKE 'dt=d0/%'"}, func(dt string, hour int) bool { return hour >= 5 || dt == "d0" }, true},
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	want := func(c func(string, int) bool) int {
		n := 0
		if c("d0", 0) {
			n++
		}
		for i := range parts {
			if c(fmt.Sprint("d", i%2), i) {
				n += writers * each
			}
		}
		return n
	}
	errors := make(chan error, len(tails)+writers)
	var wg sync.WaitGroup
	for i, tl := range tails {
		req := tl.req
		req.From, req.Until = &router.Position{Kind: router.Earliest}, &router.Position{Kind: router.Never}
		p, err := f.r.Plan(ctx, "d.t$changelog", &req, router.PlanOptions{})
		require.NoError(t, err)
		if i == 0 { // as a Flight client does it
			ticket, err := f.r.Ticket(p, f.clock.Now().Add(time.Hour))
			require.NoError(t, err)
			p.Close()
			p, err = f.r.OpenTicket(ctx, ticket)
			require.NoError(t, err)
		}
		wg.Go(func() { errors <- f.followTail(ctx, p, req, tl.cut, want(tl.cover)) })
	}
	for w := range int64(writers) {
		wg.Go(func() {
			for i := range parts {
				for n := range each {
					if _, err := f.write(tbl, router.Append, fmt.Sprintf(`{"w":%d,"n":%d,"dt":"d%d","hour":%d}`, w, i*each+n, i%2, i)); err != nil {
						errors <- err
						return
					}
				}
			}
			errors <- nil
		})
	}
	wg.Wait()
	for range len(tails) + writers {
		require.NoError(t, <-errors)
	}
	require.Len(t, f.names(tbl), parts)
}

// followTail reads until it has seen as many records as it should, and a moment longer:
// each once, those of a bucket in order.
func (f *parted) followTail(ctx context.Context, p *router.Plan, req router.ReadRequest, cut bool, want int) error {
	rd := f.r.Open(p)
	defer func() { _ = rd.Close() }()
	next := map[string]millrace.Offset{}
	got := map[string]bool{}
	for n := 0; ; n++ {
		wait := 30 * time.Second // the heartbeat is later than the test
		if len(got) == want {
			wait = 20 * time.Millisecond
		}
		c, err := rd.Next(ctx, wait)
		if err != nil {
			return err
		}
		if c == nil {
			if len(got) != want {
				return fmt.Errorf("%d of %d records, and nothing for long", len(got), want)
			}
			return nil
		}
		if c.Base < next[c.BucketKey] {
			return fmt.Errorf("bucket %s goes back from %d to %d", c.BucketKey, next[c.BucketKey], c.Base)
		}
		next[c.BucketKey] = c.Next
		for _, s := range f.chunk(rd, c) {
			if got[s] {
				return fmt.Errorf("%s came twice", s)
			}
			got[s] = true
		}
		if cut && n%3 == 0 {
			cursor := rd.Cursor()
			if err := rd.Close(); err != nil {
				return err
			}
			req.From = &router.Position{Kind: router.AtCursor, Cursor: cursor}
			p, err := f.r.Plan(ctx, "d.t$changelog", &req, router.PlanOptions{})
			if err != nil {
				return err
			}
			rd = f.r.Open(p)
		}
	}
}

// A tail that begins now gives all of the partitions that come later, from their first
// record on; and one of a table that has no partition yet does.
func TestTailFromNow(t *testing.T) {
	ctx := context.Background()
	f := newParted(t)
	tbl := f.days(2)
	for _, first := range []string{"", "a"} {
		if first != "" {
			f.must(tbl, router.Append, `{"k":1,"v":"old","dt":"a"} {"k":2,"v":"old","dt":"a"}`)
		}
		p, err := f.r.Plan(ctx, "d.days$changelog", &router.ReadRequest{Columns: []string{"v"}}, router.PlanOptions{From: router.Position{Kind: router.Latest}, Until: router.Position{Kind: router.Never}})
		require.NoError(t, err)
		f.must(tbl, router.Append, fmt.Sprintf(`{"k":1,"v":"before","dt":"x%s"}`, first)) // planned, not opened
		rd := f.r.Open(p)
		read := func() (out []string) {
			for {
				c, err := rd.Next(ctx, 0)
				require.NoError(t, err)
				if c == nil {
					return out
				}
				rec, err := c.Record()
				require.NoError(t, err)
				for i := range c.Rows {
					out = append(out, rec.Column(3).ValueStr(i)+" "+c.PartitionName)
				}
				rec.Release()
				c.Release()
			}
		}
		require.Equal(t, []string{"before dt=x" + first}, read())
		f.must(tbl, router.Append, fmt.Sprintf(`{"k":1,"v":"after","dt":"y%s"}`, first))
		require.Equal(t, []string{"after dt=y" + first}, read())
		require.Empty(t, read())
		// One that was made and has no rows yet is there too.
		_, _, err = f.cat.EnsurePartition(ctx, tbl.ID, []string{"z" + first})
		require.NoError(t, err)
		require.Empty(t, read())
		require.Contains(t, rd.Places(), "dt=z"+first+"/1")
		standings, err := rd.Standings(context.Background())
		require.NoError(t, err)
		require.Equal(t, "dt=z"+first, standings[len(standings)-1].Partition)
		require.NoError(t, rd.Close())
	}
}

// A tail that waits is woken by the first record of a new partition, when nothing else
// happens.
func TestTailIsWoken(t *testing.T) {
	ctx := context.Background()
	f := newParted(t)
	tbl := f.days(1)
	p, err := f.r.Plan(ctx, "d.days$changelog", &router.ReadRequest{}, router.PlanOptions{From: router.Position{Kind: router.Latest}, Until: router.Position{Kind: router.Never}})
	require.NoError(t, err)
	rd := f.r.Open(p)
	for _, dt := range []string{"a", "b"} {
		if dt == "b" { // made by hand, and written to later
			_, _, err := f.cat.EnsurePartition(ctx, tbl.ID, []string{dt})
			require.NoError(t, err)
		}
		got := make(chan string)
		go func() {
			c, err := rd.Next(ctx, time.Minute)
			if err != nil || c == nil {
				got <- fmt.Sprint(err)
				return
			}
			key := c.BucketKey
			c.Release()
			got <- key
		}()
		time.Sleep(20 * time.Millisecond) // it waits by now, mostly
		f.must(tbl, router.Append, fmt.Sprintf(`{"k":1,"dt":%q}`, dt))
		select {
		case key := <-got:
			require.Equal(t, "dt="+dt+"/0", key)
		case <-time.After(time.Minute):
			t.Fatal("the tail sleeps on")
		}
	}
	require.NoError(t, rd.Close())
}

// A `full` read of a keyed table takes partitions in that are made while it reads the
// state, and its cursor knows which buckets have state to read and which have none.
func TestFullReadWithNewPartitions(t *testing.T) {
	ctx := context.Background()
	f := newParted(t)
	tbl := f.keyedDays(1)
	f.must(tbl, router.Upsert, `{"k":1,"dt":"b","hour":1,"v":"1"} {"k":2,"dt":"b","hour":2,"v":"2"} {"k":3,"dt":"b","hour":3,"v":"3"}`)
	req := &router.ReadRequest{From: &router.Position{Kind: router.Full}, Until: &router.Position{Kind: router.Never}}
	plan := func() *router.Reader {
		p, err := f.r.Plan(ctx, "d.keyed$changelog", req, router.PlanOptions{})
		require.NoError(t, err)
		return f.r.Open(p)
	}
	count := map[string]int{}
	rd := plan()
	born := 0
	for round := 0; ; round++ {
		c, err := rd.Next(ctx, 0)
		require.NoError(t, err)
		if c == nil {
			if born == 0 {
				continue
			}
			break
		}
		for _, s := range f.chunk(rd, c) {
			count[s]++
		}
		cursor := rd.Cursor()
		require.NoError(t, rd.Close())
		req.From = &router.Position{Kind: router.AtCursor, Cursor: cursor}
		if round < 4 { // names that sort before and after the others, while state is read
			born++
			f.must(tbl, router.Upsert, fmt.Sprintf(`{"k":9,"dt":"%c","hour":%d,"v":"new"} {"k":%d,"dt":"b","hour":1,"v":"later"}`, 'a'+round%3, 50+round, 10+round))
		}
		rd = plan()
	}
	require.NoError(t, rd.Close())
	require.Len(t, count, 3+4+4)
	for s, n := range count {
		require.Equal(t, 1, n, s)
	}
}

// A stream covers at most 1,024 buckets, whether they are there when it begins or come
// later; narrowed down it covers the ones that are left. The cursor of the most there
// are stays short.
func TestTooManyBuckets(t *testing.T) {
	ctx := context.Background()
	f := newParted(t)
	n := 256
	tbl := f.days(n)
	for _, dt := range []string{"a", "b", "c", "d"} {
		_, _, err := f.cat.EnsurePartition(ctx, tbl.ID, []string{dt})
		require.NoError(t, err)
	}
	rows := ""
	for i := range 3000 {
		rows += fmt.Sprintf(`{"k":%d,"dt":"%c"} `, i, 'a'+i%4)
	}
	f.must(tbl, router.Append, rows)
	req := &router.ReadRequest{From: &router.Position{Kind: router.Earliest}, Until: &router.Position{Kind: router.Never}}
	p, err := f.r.Plan(ctx, "d.days$changelog", req, router.PlanOptions{})
	require.NoError(t, err)
	rd := f.r.Open(p)
	for got := 0; got < 3000; {
		c, err := rd.Next(ctx, 0)
		require.NoError(t, err)
		got += c.Rows
		c.Release()
	}
	cursor := rd.Cursor()
	require.Less(t, len(cursor), 12<<10)
	again, err := f.r.Plan(ctx, "d.days$changelog", &router.ReadRequest{From: &router.Position{Kind: router.AtCursor, Cursor: cursor}}, router.PlanOptions{Until: router.Position{Kind: router.Never}})
	require.NoError(t, err)
	rd2 := f.r.Open(again)
	require.Equal(t, rd.Places(), rd2.Places())
	require.NoError(t, rd2.Close())

	f.must(tbl, router.Append, `{"k":1,"dt":"e"}`)
	_, err = rd.Next(ctx, 0)
	f.refused(errs.TooManyBuckets, err)
	require.NoError(t, rd.Close())
	_, err = f.r.Plan(ctx, "d.days$changelog", req, router.PlanOptions{})
	f.refused(errs.TooManyBuckets, err)
	req.Filter = "dt > 'a'"
	narrow, err := f.r.Plan(ctx, "d.days$changelog", req, router.PlanOptions{})
	require.NoError(t, err)
	require.Len(t, narrow.Parts, 1024)
	narrow.Close()
	req.Filter, req.Buckets = "", []int{0, 255}
	narrow, err = f.r.Plan(ctx, "d.days$changelog", req, router.PlanOptions{})
	require.NoError(t, err)
	require.Len(t, narrow.Parts, 10)
	narrow.Close()
	got, stats := f.scan("d.days", &router.ReadRequest{Filter: "k = 1"})
	require.Len(t, got, 2, "a bounded read may cover more")
	require.Equal(t, 5, stats.Buckets)
}
