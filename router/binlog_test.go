package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/segment"
)

// change is what the test says a write did, worked out from the writes alone.
type change struct {
	what          string
	offset        int64
	before, after string // of column v; "" for none
}

func (c change) String() string {
	return fmt.Sprintf("%d %s %s>%s", c.offset, c.what, c.before, c.after)
}

// binlogOf writes at random and says what the binlog has to hold.
func binlogOf(f *fixture, tbl *millrace.Table, ops int) []change {
	rng := rand.New(rand.NewPCG(7, 7))
	state := map[int]string{}
	var out []change
	var next int64
	for i := range ops {
		k := rng.IntN(6)
		old := state[k]
		if rng.IntN(3) == 0 {
			f.write(tbl, router.Delete, rows(tbl, k, k+1, ""))
			if old != "" {
				out = append(out, change{"delete", next, old, ""})
				next++
			}
			delete(state, k)
			continue
		}
		tag := fmt.Sprintf("t%d_", i)
		f.write(tbl, router.Upsert, rows(tbl, k, k+1, tag))
		state[k] = fmt.Sprintf("%s%d", tag, k)
		if old == "" {
			out = append(out, change{"insert", next, "", state[k]})
			next++
			continue
		}
		out = append(out, change{"update", next, old, state[k]})
		next += 2
		if i%17 == 0 {
			for _, s := range f.w.Shards() {
				require.NoError(f.t, s.Checkpoint(context.Background()))
			}
		}
	}
	return out
}

func parseChange(t *testing.T, s string) change {
	var m struct {
		What   string             `json:"_change_type"`
		Offset *int64             `json:"_log_offset"`
		Time   *string            `json:"_commit_timestamp"`
		Before map[string]*string `json:"before"`
		After  map[string]*string `json:"after"`
		Bucket int                `json:"_bucket"`
	}
	require.NoError(t, json.Unmarshal([]byte(s), &m))
	c := change{what: m.What, offset: -1}
	if m.Offset != nil {
		c.offset = *m.Offset
	}
	for into, image := range map[*string]map[string]*string{&c.before: m.Before, &c.after: m.After} {
		if image != nil {
			require.Len(t, image, 1, "only the column asked for")
			*into = *image["v"]
		}
	}
	return c
}

func (f *fixture) binlog(t *millrace.Table, req *router.ReadRequest) []string {
	if req.Columns == nil {
		req.Columns = []string{"v"}
	}
	p, err := f.r.Plan(context.Background(), t.Path.String()+"$binlog", req, router.Scan)
	require.NoError(f.t, err)
	var out []string
	for _, s := range f.drain(p) {
		out = append(out, parseChange(f.t, s).String())
	}
	return out
}

func texts(cs []change, keep func(change) bool) []string {
	var out []string
	for _, c := range cs {
		if keep(c) {
			out = append(out, c.String())
		}
	}
	return out
}

func every(change) bool { return true }

// The binlog has a row a change with the rows before and after it; filters, limits,
// positions inside an update, tickets and cursors all give whole changes.
func TestBinlog(t *testing.T) {
	f := newFixture(t)
	tbl := f.table("binlog", true, 1)
	all := binlogOf(f, tbl, 300)
	check := func() {
		require.Equal(t, texts(all, every), f.binlog(tbl, &router.ReadRequest{}))
		some := all[3].after
		require.Equal(t, texts(all, func(c change) bool { return c.before == some || c.after == some }),
			f.binlog(tbl, &router.ReadRequest{Filter: "v = '" + some + "'"}))
		require.Equal(t, texts(all, func(c change) bool { return c.what == "update" && c.offset > 40 }),
			f.binlog(tbl, &router.ReadRequest{Filter: "_change_type = 'update' AND _log_offset > 40"}))
		require.Equal(t, texts(all[:7], every), f.binlog(tbl, &router.ReadRequest{Limit: new(int64(7))}))
	}
	check()
	var update change
	for _, c := range all {
		if c.what == "update" {
			update = c
		}
	}
	inside := map[string]millrace.Offset{"0": millrace.Offset(update.offset) + 1}
	require.Equal(t, texts(all, func(c change) bool { return c.offset >= update.offset }),
		f.binlog(tbl, &router.ReadRequest{From: &router.Position{Kind: router.AtOffsets, Offsets: inside}}), "from a +U: its change whole")
	require.Equal(t, texts(all, func(c change) bool { return c.offset < update.offset }),
		f.binlog(tbl, &router.ReadRequest{Until: &router.Position{Kind: router.AtOffsets, Offsets: inside}}), "until a +U: without its change")

	p, err := f.r.Plan(context.Background(), tbl.Path.String(), &router.ReadRequest{View: "binlog", Columns: []string{"v"}}, router.Scan)
	require.NoError(t, err)
	ticket, err := f.r.Ticket(p, time.Now().Add(time.Hour))
	require.NoError(t, err)
	schema := p.Schema
	p.Close()
	p, err = f.r.OpenTicket(context.Background(), ticket)
	require.NoError(t, err)
	require.True(t, schema.Equal(p.Schema), "%v", p.Schema)
	require.Len(t, f.drain(p), len(all))

	f.crash()
	check()
}

// A follower that is cut off after any change goes on with the next one, each once,
// through the state (as inserts without an offset) into the log.
func TestBinlogResumes(t *testing.T) {
	f := newFixture(t)
	tbl := f.table("binlog", true, 1)
	binlogOf(f, tbl, 40)
	o := router.PlanOptions{View: router.ChangelogView, ViewSet: true, Until: router.Position{Kind: router.Never}}
	var got []string
	from := &router.Position{Kind: router.Full}
	for i := 0; ; i++ {
		p, err := f.r.Plan(context.Background(), tbl.Path.String(), &router.ReadRequest{View: "binlog", Columns: []string{"v"}, From: from}, o)
		require.NoError(t, err)
		rd := f.r.Open(p)
		c, err := rd.Next(context.Background(), time.Millisecond)
		require.NoError(t, err)
		if c == nil {
			require.NoError(t, rd.Close())
			break
		}
		rec, err := c.Record()
		require.NoError(t, err)
		got = append(got, parseChange(t, text(t, rec)[0]).String())
		rec.Release()
		from = &router.Position{Kind: router.AtCursor, Cursor: rd.CursorAfter(c, 0)}
		c.Release()
		require.NoError(t, rd.Close())
		if i == 2 { // while the state is being read
			f.write(tbl, router.Upsert, rows(tbl, 100, 102, "new"))
			f.write(tbl, router.Upsert, rows(tbl, 100, 101, "newer"))
		}
	}
	state := f.read(tbl, &router.ReadRequest{})
	require.Len(t, got, len(state)-2+3)
	for _, s := range got[:len(state)-2] {
		require.Regexp(t, "^-1 insert >t", s)
	}
	tail := got[len(got)-3:]
	require.Regexp(t, `^\d+ insert >new100$`, tail[0])
	require.Regexp(t, `^\d+ insert >new101$`, tail[1])
	require.Regexp(t, `^\d+ update new100>newer100$`, tail[2])
}

// A log table's binlog is inserts; chunks become Arrow messages of the plan's schema.
func TestBinlogOfLogTable(t *testing.T) {
	f := newFixture(t)
	tbl := f.table("log", false, 1)
	f.write(tbl, router.Append, rows(tbl, 0, 100, "a"))
	got := f.binlog(tbl, &router.ReadRequest{Filter: "k >= 98"})
	require.Equal(t, []string{"98 insert >a98", "99 insert >a99"}, got)
	p, err := f.r.Plan(context.Background(), tbl.Path.String()+"$binlog", &router.ReadRequest{}, router.Scan)
	require.NoError(t, err)
	rd := f.r.Open(p)
	c, err := rd.Next(context.Background(), time.Second)
	require.NoError(t, err)
	ships, err := c.Ship(segment.Stored, 2<<20)
	require.NoError(t, err)
	require.Len(t, ships, 1)
	require.Equal(t, 100, ships[0].Rows)
	ships[0].Message.Release()
	c.Release()
	_, err = rd.Next(context.Background(), time.Second)
	require.True(t, errors.Is(err, io.EOF))
	require.NoError(t, rd.Close())
}

// Without images from before an update, a filter that hangs on more than the key
// would lose half of it.
func TestFilterOnWALImage(t *testing.T) {
	f := newFixture(t)
	tbl := f.table("wal", true, 1)
	tbl.Options.Image = millrace.WALImage
	for _, view := range []string{"changelog", "binlog"} {
		_, err := f.r.Plan(context.Background(), tbl.Path.String(), &router.ReadRequest{View: view, Filter: "v = 'a'"}, router.Scan)
		require.True(t, errs.Is(err, errs.InvalidFilter), "%v", err)
		p, err := f.r.Plan(context.Background(), tbl.Path.String(), &router.ReadRequest{View: view, Filter: "k = 1 AND _log_offset > 0"}, router.Scan)
		require.NoError(t, err)
		p.Close()
	}
	p, err := f.r.Plan(context.Background(), tbl.Path.String(), &router.ReadRequest{Filter: "v = 'a'"}, router.Scan)
	require.NoError(t, err)
	p.Close()
}
