package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
)

func (f *parted) auto(name, typ string, props ...string) *millrace.Table {
	return f.table(name, "k BIGINT, t "+typ, func(s *catalog.Spec) {
		s.PartitionBy = []string{"t"}
		s.Properties = map[string]string{"table.auto-partition.enabled": "true"}
		for _, p := range props {
			k, v, _ := strings.Cut(p, "=")
			s.Properties["table.auto-partition."+k] = v
		}
	})
}

func (f *parted) keep() { router.NewKeeper(f.r, f.cat).Pass(context.Background()) }

// The keeper makes the partitions from the current period on, in the table's unit, zone
// and type, once.
func TestPartitionsAhead(t *testing.T) {
	f := newParted(t)
	f.clock.Add(10*time.Hour + 30*time.Minute) // 2026-08-01 22:30 in London, 00:30 next day in Kyiv
	for i, c := range []struct {
		typ, unit, zone, precreate string
		want                       []string
	}{
		{"STRING", "DAY", "UTC", "", []string{"t=20260801", "t=20260802"}},
		{"STRING", "DAY", "Europe/Kyiv", "3", []string{"t=20260802", "t=20260803", "t=20260804"}},
		{"STRING", "HOUR", "UTC", "2", []string{"t=2026080122", "t=2026080123"}},
		{"BIGINT", "MONTH", "", "2", []string{"t=202608", "t=202609"}},
		{"INT", "QUARTER", "", "2", []string{"t=20263", "t=20264"}},
		{"STRING", "YEAR", "", "1", []string{"t=2026"}},
		{"DATE", "DAY", "Europe/Kyiv", "1", []string{"t=2026-08-02"}},
		{"TIMESTAMP(0)", "HOUR", "", "1", []string{"t=2026-08-01T22%3A00%3A00"}},
		{"TIMESTAMP_LTZ(0)", "DAY", "Europe/Kyiv", "1", []string{"t=2026-08-01T21%3A00%3A00Z"}},
		{"STRING", "DAY", "", "0", []string{}},
	} {
		props := []string{"time-unit=" + c.unit}
		if c.zone != "" {
			props = append(props, "time-zone="+c.zone)
		}
		if c.precreate != "" {
			props = append(props, "num-precreate="+c.precreate)
		}
		tbl := f.auto(fmt.Sprint("t", i), c.typ, props...)
		f.keep()
		require.Equal(t, c.want, f.names(tbl), "%+v", c)
		before := f.cat.Revision()
		f.keep()
		require.Equal(t, before, f.cat.Revision(), "a second pass changes nothing")
	}
}

// Partitions that are older than is kept end with all their rows, whoever made them;
// what comes for them later is refused and makes none, also after a crash and when the
// clock goes back.
func TestPartitionsExpire(t *testing.T) {
	f := newParted(t)
	tbl := f.auto("t", "STRING", "time-unit=DAY", "num-retention=2")
	f.must(tbl, router.Append, `{"k":1,"t":"20260730"} {"k":2,"t":"20260731"} {"k":3,"t":"20260801"} {"k":4,"t":"20260805"}`)
	_, err := f.write(tbl, router.Append, `{"k":5,"t":"20260801"} {"k":5,"t":"20260729"}`)
	e := f.problem(errs.PartitionExpired, err)
	require.EqualValues(t, 1, *e.Fields[0].Index)
	_, err = f.write(tbl, router.Append, `{"k":5,"t":"2026-08-01"}`)
	f.refused(errs.InvalidValue, err)
	rows := func() []string {
		got, _ := f.scan("d.t", &router.ReadRequest{})
		return got
	}
	require.Len(t, rows(), 4)
	f.keep()
	require.Equal(t, []string{"t=20260730", "t=20260731", "t=20260801", "t=20260802", "t=20260805"}, f.names(tbl))
	f.clock.Add(24 * time.Hour)
	f.must(tbl, router.Append, `{"k":6,"t":"20260730"}`) // nobody has come by yet
	f.keep()
	require.Equal(t, []string{"t=20260731", "t=20260801", "t=20260802", "t=20260803", "t=20260805"}, f.names(tbl))
	check := func() {
		t.Helper()
		require.Equal(t, []string{`{"k":2,"t":"20260731"}`, `{"k":3,"t":"20260801"}`, `{"k":4,"t":"20260805"}`}, rows())
		_, err := f.write(tbl, router.Append, `{"k":7,"t":"20260730"}`)
		f.refused(errs.PartitionExpired, err)
		require.NotContains(t, f.names(tbl), "t=20260730")
	}
	check()
	f.crash()
	check()
	f.clock.Add(-24 * time.Hour)
	check()
}

// A partition's end goes on after a crash between any two of its steps, and after it
// nothing is left: no rows, no files, no name. A write that was acknowledged meanwhile
// was before the seal; later ones are refused.
func TestPartitionEndResumes(t *testing.T) {
	ctx := context.Background()
	for step := range 5 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			f := newParted(t)
			tbl := f.days(2)
			f.must(tbl, router.Append, `{"k":1,"v":"x","dt":"a"} {"k":2,"v":"x","dt":"a"} {"k":3,"v":"x","dt":"a"} {"k":1,"v":"x","dt":"b"}`)
			for _, s := range f.w.Shards() {
				require.NoError(t, s.Checkpoint(ctx))
			}
			p, err := f.cat.Partition(ctx, tbl.ID, "dt=a")
			require.NoError(t, err)
			states := []millrace.PartitionState{millrace.PartitionClosing, millrace.PartitionSealed, millrace.PartitionExpired}
			for i, st := range states[:min(step, 3)] {
				_, err = f.cat.SetPartitionState(ctx, tbl.ID, p.ID, st)
				require.NoError(t, err)
				if i == 0 && step > 1 {
					for _, id := range p.Shards {
						require.NoError(t, f.w.Shards()[id].SealPartition(ctx, tbl.ID, p.ID))
					}
				}
			}
			if step == 4 {
				require.NoError(t, f.w.Shards()[p.Shards[0]].DropPartition(ctx, tbl.ID, p.ID))
			}
			f.crash()
			if step > 0 {
				_, err := f.write(tbl, router.Append, `{"k":1,"v":"late","dt":"a"}`)
				f.refused(errs.PartitionExpired, err)
			}
			if step == 0 {
				require.NoError(t, f.r.DropPartition(ctx, tbl, "dt=a"))
			} else {
				f.keep()
			}
			require.Equal(t, []string{"dt=b"}, f.names(tbl))
			got, _ := f.scan("d.days", &router.ReadRequest{Columns: []string{"k", "dt"}})
			require.Equal(t, []string{`{"k":1,"dt":"b"}`}, got)
			for _, s := range f.w.Shards() {
				require.NotContains(t, s.Partitions(tbl.ID), p.ID)
				require.NoError(t, s.Checkpoint(ctx))
			}
			require.Empty(t, filesUnder(t, f.fs, fmt.Sprintf("%010d/%010d", tbl.ID, p.ID)))
			// It can be made again, and is another one.
			f.must(tbl, router.Append, `{"k":9,"v":"x","dt":"a"}`)
			got, _ = f.scan("d.days", &router.ReadRequest{Filter: "dt = 'a'", Columns: []string{"k"}})
			require.Equal(t, []string{`{"k":9}`}, got)
			q, err := f.cat.Partition(ctx, tbl.ID, "dt=a")
			require.NoError(t, err)
			require.NotEqual(t, p.ID, q.ID)
		})
	}
}

// filesUnder are the segment files whose path contains a directory.
func filesUnder(t *testing.T, fs *vfs.MemFS, dir string) (out []string) {
	var walk func(at string)
	walk = func(at string) {
		names, err := fs.List(at)
		require.NoError(t, err)
		for _, n := range names {
			p := fs.PathJoin(at, n)
			if st, err := fs.Stat(p); err == nil && st.IsDir() {
				walk(p)
			} else if strings.Contains(p, dir) {
				out = append(out, p)
			}
		}
	}
	walk("data")
	return out
}

// Dropping a partition is refused where there is none to drop, and another drop of the
// same is not in the way.
func TestDropPartition(t *testing.T) {
	ctx := context.Background()
	f := newParted(t)
	tbl := f.keyedDays(2)
	plain := f.table("plain", "k BIGINT", func(*catalog.Spec) {})
	f.refused(errs.PartitionNotFound, f.r.DropPartition(ctx, plain, "k=1"))
	f.refused(errs.PartitionNotFound, f.r.DropPartition(ctx, tbl, "dt=a/hour=1"))
	f.refused(errs.InvalidValue, f.r.DropPartition(ctx, tbl, "hour=1/dt=a"))
	f.must(tbl, router.Upsert, `{"k":1,"dt":"a","hour":7} {"k":1,"dt":"a","hour":8}`)
	errors := make(chan error, 4)
	for range 4 {
		go func() { errors <- f.r.DropPartition(ctx, tbl, "dt=a/hour=7") }()
	}
	for range 4 {
		if err := <-errors; err != nil {
			f.refused(errs.PartitionNotFound, err)
		}
	}
	require.Equal(t, []string{"dt=a/hour=8"}, f.names(tbl))
	n, err := f.r.Count(ctx, "d.keyed", &router.ReadRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	keys := f.rows(tbl, `{"dt":"a","k":1,"hour":7} {"dt":"a","k":1,"hour":8}`, jsonrow.Options{}, "dt", "k", "hour")
	cols, err := router.LookupColumns(tbl, []string{"k"})
	require.NoError(t, err)
	res, err := f.r.Lookup(ctx, tbl, keys.Record, cols)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, res.Found)
	res.Record.Release()
}

// A read that was planned before a partition ended says so rather than give fewer rows;
// offsets, cursors and tails go on with the others.
func TestReadsOfDroppedPartitions(t *testing.T) {
	ctx := context.Background()
	f := newParted(t)
	tbl := f.days(1)
	write := func(v string) {
		f.must(tbl, router.Append, fmt.Sprintf(`{"k":1,"v":%q,"dt":"a"} {"k":1,"v":%q,"dt":"b"}`, v, v))
	}
	write("1")
	bounded, err := f.r.Plan(ctx, "d.days", &router.ReadRequest{}, router.Scan)
	require.NoError(t, err)
	ticket, err := f.r.Ticket(bounded, f.clock.Now().Add(time.Hour))
	require.NoError(t, err)
	size := 1
	page, err := f.r.Page(ctx, "d.days", &router.ReadRequest{PageSize: &size, Filter: "v = '1'"}, router.Scan)
	require.NoError(t, err)
	rd := f.r.Open(page)
	_, err = rd.Next(ctx, 0)
	require.NoError(t, err)
	token, err := rd.NextPage(context.Background())
	require.NoError(t, err)
	require.NoError(t, rd.Close())
	tail, err := f.r.Plan(ctx, "d.days", &router.ReadRequest{From: &router.Position{Kind: router.Earliest}, Until: &router.Position{Kind: router.Never}}, router.Scan)
	require.NoError(t, err)
	tailTicket, err := f.r.Ticket(tail, f.clock.Now().Add(time.Hour))
	require.NoError(t, err)

	require.NoError(t, f.r.DropPartition(ctx, tbl, "dt=b"))
	rd = f.r.Open(bounded)
	c, err := rd.Next(ctx, 0)
	require.NoError(t, err)
	c.Release()
	_, err = rd.Next(ctx, 0)
	f.refused(errs.PartitionNotFound, err)
	require.NoError(t, rd.Close())
	_, err = f.r.OpenTicket(ctx, ticket)
	f.refused(errs.PartitionNotFound, err)
	_, err = f.r.Page(ctx, "d.days", &router.ReadRequest{PageToken: token}, router.Scan)
	f.refused(errs.PartitionNotFound, err)
	for _, p := range []*router.Plan{tail, mustPlan(t)(f.r.OpenTicket(ctx, tailTicket))} {
		rd := f.r.Open(p)
		c, err := rd.Next(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, []string{`{"k":1,"v":"1","dt":"a"}`}, f.chunk(rd, c))
		c, err = rd.Next(ctx, 0)
		require.NoError(t, err)
		require.Nil(t, c)
		require.Equal(t, map[string]millrace.Offset{"dt=a/0": 1}, rd.Places())
		require.NoError(t, rd.Close())
	}
	from := &router.Position{Kind: router.AtOffsets, Offsets: map[string]millrace.Offset{"dt=a/0": 0, "dt=b/0": 1}}
	got, _ := f.scan("d.days$changelog", &router.ReadRequest{From: from, Columns: []string{"v"}})
	require.Len(t, got, 1)
	var row map[string]any
	require.NoError(t, json.Unmarshal([]byte(got[0]), &row))
	require.Equal(t, "dt=a", row["_partition"])
}

func mustPlan(t *testing.T) func(p *router.Plan, err error) *router.Plan {
	return func(p *router.Plan, err error) *router.Plan {
		t.Helper()
		require.NoError(t, err)
		return p
	}
}
