package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// short makes a table whose records live for ten minutes.
func short(keyed bool) func(*catalog.Spec) {
	return func(s *catalog.Spec) {
		s.Properties = map[string]string{"table.log.ttl": "10min"}
		if keyed {
			s.PrimaryKey = []string{"k"}
		}
	}
}

// expire ends what has expired; go lets go of what had expired an hour ago.
func (f *parted) expire() {
	for _, s := range f.w.Shards() {
		require.NoError(f.t, s.Expire(context.Background()))
	}
}

func (f *parted) release() {
	f.expire()
	for _, s := range f.w.Shards() {
		require.NoError(f.t, s.Checkpoint(context.Background()))
	}
}

func (f *parted) plan(path string, req *router.ReadRequest) *router.Plan {
	f.t.Helper()
	p, err := f.r.Plan(context.Background(), path, req, router.PlanOptions{From: router.Position{Kind: router.Earliest}, Until: router.Position{Kind: router.Latest}})
	require.NoError(f.t, err)
	return p
}

// below shows that a read is refused for lying below the start of one log, and what
// the log holds.
func (f *parted) below(err error, key string, start, end millrace.Offset) {
	f.t.Helper()
	e := f.problem(errs.OffsetOutOfRange, err)
	require.Equal(f.t, map[string]any{key: map[string]millrace.Offset{"start": start, "end": end}}, e.Extra["offsets"])
	require.Contains(f.t, e.Message, "expired")
}

func offsets(key string, o millrace.Offset) *router.Position {
	return &router.Position{Kind: router.AtOffsets, Offsets: map[string]millrace.Offset{key: o}}
}

func countedRows(from, to int) (text string, want []string) {
	for i := from; i < to; i++ {
		want = append(want, fmt.Sprintf(`{"k":%d}`, i))
		text += want[len(want)-1]
	}
	return text, want
}

// read reads a reader to its end, or, of one that follows, what is there.
func (f *parted) read(rd *router.Reader) ([]string, error) {
	var out []string
	for {
		c, err := rd.Next(context.Background(), 0)
		if errors.Is(err, io.EOF) || c == nil && err == nil {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, f.chunk(rd, c)...)
	}
}

// Shows what becomes of every kind of read of a log when records expire: those that
// begin see the new start and are told of it when they ask for less; those that were
// planned before go on for an hour, and are told the same then.
func TestExpiredLog(t *testing.T) {
	f := newParted(t)
	ctx := context.Background()
	tbl := f.table("t", "k BIGINT", short(false))
	write := func(from, to int) {
		text, _ := countedRows(from, to)
		f.must(tbl, router.Append, text)
	}
	_, all := countedRows(0, 15)
	write(0, 5)
	f.clock.Add(6 * time.Minute)
	write(5, 10)
	f.clock.Add(6 * time.Minute)
	write(10, 15)

	earliest := router.ReadRequest{}
	running := f.r.Open(f.plan("d.t", &earliest))
	ticket := func() string {
		p := f.plan("d.t", &earliest)
		defer p.Close()
		text, err := f.r.Ticket(p, f.clock.Now().Add(router.TicketTTL))
		require.NoError(t, err)
		return text
	}
	readTicket := func(text string) ([]string, error) {
		p, err := f.r.OpenTicket(ctx, text)
		if err != nil {
			return nil, err
		}
		rd := f.r.Open(p)
		defer func() { require.NoError(t, rd.Close()) }()
		return f.read(rd)
	}
	page := func(token string) ([]string, string, error) {
		req := router.ReadRequest{PageToken: token}
		if token == "" {
			req.PageSize = new(int(2))
		}
		p, err := f.r.Page(ctx, "d.t", &req, router.Scan)
		require.NoError(t, err)
		rd := f.r.Open(p)
		defer func() { require.NoError(t, rd.Close()) }()
		rows, err := f.read(rd)
		if err != nil {
			return nil, "", err
		}
		next, err := rd.NextPage(context.Background())
		require.NoError(t, err)
		return rows, next, nil
	}
	follow := func() *router.Reader {
		return f.r.Open(f.plan("d.t", &router.ReadRequest{View: "changelog", Columns: []string{"k"}, Until: &router.Position{Kind: router.Never}}))
	}
	early := ticket()
	rows, token, err := page("")
	require.NoError(t, err)
	require.Equal(t, all[:2], rows)
	tail, idle := follow(), follow()
	at := f.r.Open(f.plan("d.t$changelog", &router.ReadRequest{Limit: new(int64(3))}))
	_, err = f.read(at)
	require.NoError(t, err)
	cursor := at.Cursor() // at offset 3
	require.NoError(t, at.Close())

	f.expire()
	// What begins now.
	rows, stats := f.scan("d.t", &earliest)
	require.ElementsMatch(t, all[5:], rows)
	require.EqualValues(t, 10, stats.RowsRead)
	n, err := f.r.Count(ctx, "d.t", &earliest)
	require.NoError(t, err)
	require.EqualValues(t, 10, n)
	for _, from := range []router.Position{{Kind: router.Earliest}, {Kind: router.Full}, {Kind: router.AtTime, Time: f.clock.Now().Add(-time.Hour)}} {
		_, got, err := f.r.Offsets(ctx, "d.t", nil, from)
		require.NoError(t, err)
		require.Equal(t, map[string]millrace.Offset{"0": 5}, got)
	}
	info, _, err := f.r.Buckets(ctx, tbl, "", 10)
	require.NoError(t, err)
	require.EqualValues(t, 5, info[0].Start)
	require.EqualValues(t, 10, info[0].Rows)
	p := f.plan("d.t", &earliest)
	size, bytes, err := f.r.Size(context.Background(), p)
	require.NoError(t, err)
	require.EqualValues(t, 10, size)
	require.InDelta(t, info[0].Bytes*10/15, bytes, 1, "what has expired is still among the bytes")
	p.Close()
	_, err = f.r.Plan(ctx, "d.t$changelog", &router.ReadRequest{From: offsets("0", 4)}, router.Scan)
	f.below(err, "0", 5, 15)
	_, err = f.r.Plan(ctx, "d.t$changelog", &router.ReadRequest{From: &router.Position{Kind: router.AtCursor, Cursor: cursor}}, router.Scan)
	f.below(err, "0", 5, 15)
	rows, _ = f.scan("d.t", &router.ReadRequest{From: offsets("0", 5)})
	require.Len(t, rows, 10)

	// What was planned before.
	rows, err = readTicket(early)
	require.NoError(t, err)
	require.Equal(t, all, rows)
	_, _, err = f.r.RenewTicket(ctx, early)
	f.below(err, "0", 5, 15)
	late := ticket()
	renewed, _, err := f.r.RenewTicket(ctx, late)
	require.NoError(t, err)
	rows, token, err = page(token)
	require.NoError(t, err)
	require.Equal(t, all[2:4], rows)
	f.clock.Add(59 * time.Minute)
	f.release()
	rows, err = readTicket(early)
	require.NoError(t, err)
	require.Equal(t, all, rows, "a ticket is repeatable as long as it lives")
	rows, err = f.read(running)
	require.NoError(t, err)
	require.Equal(t, all, rows)
	require.NoError(t, running.Close())
	_, err = f.read(tail)
	require.NoError(t, err)
	require.Equal(t, map[string]millrace.Offset{"0": 15}, tail.Places())
	require.NoError(t, tail.Close())

	// An hour later it is gone; by now all of it has expired.
	f.clock.Add(time.Minute)
	f.release()
	_, _, err = page(token)
	f.below(err, "0", 15, 15)
	if _, err = f.read(idle); testShards == "" { // else its owner has sent some ahead
		f.below(err, "0", 15, 15)
	}
	require.NoError(t, idle.Close())
	_, err = readTicket(early)
	f.refused(errs.OffsetOutOfRange, err)
	rows, err = readTicket(renewed)
	require.NoError(t, err)
	require.Equal(t, all[5:], rows, "what the start passed later is there")
	rows, _ = f.scan("d.t", &earliest)
	require.Empty(t, rows)
	f.crash()
	rows, _ = f.scan("d.t", &earliest)
	require.Empty(t, rows)
	write(15, 16)
	rows, _ = f.scan("d.t", &earliest)
	require.Equal(t, []string{`{"k":15}`}, rows)
}

// Shows that of a keyed table the changelog expires and the rows stay, and that
// readers of the rows as of some moment find the changes since: those under way, and
// those who come with the offsets that a ticket stands for, as long as it lives.
func TestExpiredChangelog(t *testing.T) {
	f := newParted(t)
	ctx := context.Background()
	tbl := f.table("t", "k BIGINT, v STRING", short(true))
	other := f.table("other", "k BIGINT, v STRING", func(s *catalog.Spec) {
		short(true)(s)
		s.Buckets = new(int(3))
	})
	p := f.plan(other.Path.String(), &router.ReadRequest{})
	require.NoError(t, f.r.Hold(context.Background(), p, router.TicketTTL, router.TicketTTL)) // promises nothing of the first table
	p.Close()
	f.must(tbl, router.Upsert, `{"k":1,"v":"a"}`)
	full := f.r.Open(f.plan("d.t$changelog", &router.ReadRequest{Columns: []string{"v"}, From: &router.Position{Kind: router.Full}, Until: &router.Position{Kind: router.Never}}))
	begun()
	p = f.plan("d.t", &router.ReadRequest{})
	require.NoError(t, f.r.Hold(context.Background(), p, router.TicketTTL, router.TicketTTL))
	ticket, err := f.r.Ticket(p, f.clock.Now().Add(router.TicketTTL))
	require.NoError(t, err)
	p.Close()
	f.clock.Add(time.Minute)
	f.must(tbl, router.Upsert, `{"k":1,"v":"b"}`)
	f.clock.Add(11 * time.Minute)
	f.expire()

	rows, _ := f.scan("d.t", &router.ReadRequest{})
	require.Equal(t, []string{`{"k":1,"v":"b"}`}, rows)
	n, err := f.r.Count(ctx, "d.t", &router.ReadRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	rows, _ = f.scan("d.t$changelog", &router.ReadRequest{})
	require.Empty(t, rows)

	changes := func(from millrace.Offset) ([]string, error) {
		p, err := f.r.Plan(ctx, "d.t$changelog", &router.ReadRequest{Columns: []string{"v"}, From: offsets("0", from)}, router.Scan)
		if err != nil {
			return nil, err
		}
		rd := f.r.Open(p)
		defer func() { require.NoError(t, rd.Close()) }()
		return f.read(rd)
	}
	_, err = changes(0)
	f.below(err, "0", 3, 3)
	rows, err = changes(1) // where the ticket's rows stand
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Contains(t, rows[0], `"-U"`)
	_, err = f.r.OpenTicket(ctx, ticket)
	require.NoError(t, err)
	_, _, err = f.r.RenewTicket(ctx, ticket)
	f.below(err, "0", 3, 3)
	require.NoError(t, f.r.CancelTicket(ctx, ticket))
	_, err = changes(1)
	f.below(err, "0", 3, 3)

	f.clock.Add(45 * time.Minute)
	f.release()
	rows, err = f.read(full)
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Contains(t, rows[0], `"a"`)
	require.Contains(t, rows[1], `"-U"`)
	require.Contains(t, rows[2], `"b"`)
	require.NoError(t, full.Close())
}

// Shows that records expire by partition and bucket, and that an ALTER counts at once,
// in both directions.
func TestExpiredPartitions(t *testing.T) {
	f := newParted(t)
	ctx := context.Background()
	tbl := f.table("t", "k BIGINT, dt STRING", func(s *catalog.Spec) {
		s.PartitionBy = []string{"dt"}
		s.Properties = map[string]string{"table.log.ttl": "0"}
	})
	alter := func(ttl string) {
		var steps []catalog.AlterStep
		steps = append(steps, catalog.AlterStep{Op: "set_properties", Properties: map[string]string{"table.log.ttl": ttl}})
		var err error
		tbl, err = f.cat.AlterTable(ctx, tbl.Path, steps, nil)
		require.NoError(t, err)
		f.r.AlteredTable(context.Background(), tbl)
	}
	f.must(tbl, router.Append, `{"k":1,"dt":"a"}`)
	f.clock.Add(time.Hour)
	f.must(tbl, router.Append, `{"k":2,"dt":"b"}`)
	f.expire()
	rows, _ := f.scan("d.t", &router.ReadRequest{})
	require.Len(t, rows, 2)
	alter("30min")
	f.expire()
	rows, _ = f.scan("d.t", &router.ReadRequest{})
	require.Equal(t, []string{`{"k":2,"dt":"b"}`}, rows)
	_, err := f.r.Plan(ctx, "d.t$changelog", &router.ReadRequest{From: offsets("dt=a/0", 0)}, router.Scan)
	f.below(err, "dt=a/0", 1, 1)
	alter("0")
	f.clock.Add(time.Hour)
	f.expire()
	rows, _ = f.scan("d.t", &router.ReadRequest{})
	require.Len(t, rows, 1)
	require.Equal(t, []string{"dt=a", "dt=b"}, f.names(tbl))
}

// Shows that a read from the earliest record is never refused, however the log's start
// moves meanwhile, and that what it gives has no hole.
func TestEarliestWhileExpiring(t *testing.T) {
	f := newParted(t)
	tbl := f.table("t", "k BIGINT", short(false))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			text, _ := countedRows(i, i+1)
			_, err := f.write(tbl, router.Append, text)
			f.clock.Add(2 * time.Minute)
			for _, s := range f.w.Shards() {
				err = errors.Join(err, s.Expire(ctx))
				if i%100 == 0 {
					err = errors.Join(err, s.Checkpoint(ctx))
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		p, err := f.r.Plan(ctx, "d.t$changelog", &router.ReadRequest{From: &router.Position{Kind: router.Earliest}}, router.Scan)
		require.NoError(t, err)
		want := p.Parts[0].End - p.Parts[0].Start
		rd := f.r.Open(p)
		rows, err := f.read(rd)
		require.NoError(t, rd.Close())
		if err != nil {
			// Each pass is two minutes: sixty later it may be gone indeed.
			require.Equal(t, errs.OffsetOutOfRange, errs.CodeOf(err), "%v", err)
			continue
		}
		require.Len(t, rows, int(want))
	}
}
