package router_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

type callerKey struct{}

// caller is what the caller of a context may do.
type caller struct {
	describes, reads, writes, alters bool
	columns                          []millrace.ColumnID // if not all of them are read
	ended                            atomic.Bool         // what is open is allowed no more
	lost                             atomic.Int32        // the column that is not read any more
}

func (c *caller) in(t *testing.T) context.Context {
	return context.WithValue(t.Context(), callerKey{}, c)
}

// fakeAccess goes by the caller of the context, and allows nothing without one.
type fakeAccess struct{ cat *fakeCatalog }

func (a fakeAccess) Table(ctx context.Context, path millrace.TablePath) (*millrace.Table, error) {
	t, err := a.cat.Table(ctx, path)
	if err == nil {
		err = a.Describe(ctx, t)
	}
	return t, err
}

func (fakeAccess) of(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{}
}

func (a fakeAccess) Describe(ctx context.Context, t *millrace.Table) error {
	if !a.of(ctx).describes {
		return errs.NoTable(t.Path.Database, t.Path.Table)
	}
	return nil
}

func (a fakeAccess) allow(ctx context.Context, t *millrace.Table, may bool) (router.Pass, error) {
	if err := a.Describe(ctx, t); err != nil {
		return nil, err
	}
	if !may {
		return nil, errs.New(errs.PermissionDenied, "not to table %s", t.Path)
	}
	return fakePass{c: a.of(ctx)}, nil
}

func (a fakeAccess) Read(ctx context.Context, t *millrace.Table, columns []millrace.ColumnID) (router.Pass, error) {
	c := a.of(ctx)
	for _, id := range columns {
		if c.columns != nil && !slices.Contains(c.columns, id) {
			return nil, errs.New(errs.ColumnDenied, "not column %d", id)
		}
	}
	if _, err := a.allow(ctx, t, c.reads); err != nil {
		return nil, err
	}
	return fakePass{c, columns}, nil
}

func (a fakeAccess) Write(ctx context.Context, t *millrace.Table) (router.Pass, error) {
	return a.allow(ctx, t, a.of(ctx).writes)
}

func (a fakeAccess) Alter(ctx context.Context, t *millrace.Table) error {
	_, err := a.allow(ctx, t, a.of(ctx).alters)
	return err
}

type fakePass struct {
	c       *caller
	columns []millrace.ColumnID
}

func (p fakePass) Still() error {
	if p.c.ended.Load() {
		return errs.New(errs.PermissionDenied, "not any more")
	}
	if lost := millrace.ColumnID(p.c.lost.Load()); slices.Contains(p.columns, lost) {
		return errs.New(errs.ColumnDenied, "not column %d any more", lost)
	}
	return nil
}

// accessFixture is a fixture with a keyed table of 1,000 rows, whose router goes by access.
func accessFixture(t *testing.T) (*fixture, *millrace.Table) {
	f := newFixture(t)
	tbl := f.table("t", true, 2)
	f.write(tbl, router.Upsert, rows(tbl, 0, 1000, "a"))
	f.access = fakeAccess{f.cat}
	f.crash()
	return f, tbl
}

// keyOf is a record of one key.
func keyOf(tbl *millrace.Table, k int) arrow.RecordBatch {
	rec := rows(tbl, k, k+1, "").Record
	return array.NewRecordBatch(arrow.NewSchema(rec.Schema().Fields()[:1], nil), rec.Columns()[:1], 1)
}

func code(err error) errs.Code { return errs.CodeOf(err) }

// Each way to rows, and to what tells of a table, asks for what it needs.
func TestAccessIsAsked(t *testing.T) {
	f, tbl := accessFixture(t)
	path := tbl.Path.String()
	k, v, n := tbl.Schema.Columns[0], tbl.Schema.Columns[1], tbl.Schema.Columns[2]
	onlyKey := row.Rows{Record: keyOf(tbl, 7), Columns: []millrace.Column{k}}
	plan := func(path string, req router.ReadRequest, o router.PlanOptions) func(context.Context) error {
		return func(ctx context.Context) error {
			p, err := f.r.Plan(ctx, path, &req, o)
			if err == nil {
				p.Close()
			}
			return err
		}
	}
	all := []millrace.ColumnID{1, 2, 3}
	for _, op := range []struct {
		name    string
		do      func(context.Context) error
		verb    string
		columns []millrace.ColumnID
	}{
		{"table", func(ctx context.Context) error { _, err := f.r.Table(ctx, path, nil); return err }, "describe", nil},
		{"table by number", func(ctx context.Context) error { _, err := f.r.Table(ctx, path, &tbl.ID); return err }, "describe", nil},
		{"named", func(ctx context.Context) error { _, err := f.r.Named(ctx, path+"$changelog"); return err }, "describe", nil},
		{"offsets", func(ctx context.Context) error {
			_, _, err := f.r.Offsets(ctx, path, nil, router.Position{Kind: router.Latest})
			return err
		}, "describe", nil},
		{"plan", plan(path, router.ReadRequest{}, router.Scan), "read", all},
		{"projection", plan(path, router.ReadRequest{Columns: []string{"v", "_bucket"}}, router.Scan), "read", []millrace.ColumnID{2}},
		{"filter", plan(path, router.ReadRequest{Columns: []string{"v"}, Filter: "n = 1 AND _bucket = 0"}, router.Scan), "read", []millrace.ColumnID{2, 3}},
		{"changelog", plan(path+"$changelog", router.ReadRequest{Columns: []string{"n"}}, router.Scan), "read", []millrace.ColumnID{3}},
		{"binlog", plan(path+"$binlog", router.ReadRequest{Columns: []string{"n"}}, router.Scan), "read", []millrace.ColumnID{3}},
		{"changelog with rows before", plan(path+"$changelog", router.ReadRequest{Columns: []string{"n"}, From: &router.Position{Kind: router.Full}}, router.Scan), "read", []millrace.ColumnID{1, 3}},
		{"page", func(ctx context.Context) error {
			p, err := f.r.Page(ctx, path, &router.ReadRequest{Columns: []string{"v"}}, router.Scan)
			if err == nil {
				p.Close()
			}
			return err
		}, "read", []millrace.ColumnID{2}},
		{"count", func(ctx context.Context) error {
			n, err := f.r.Count(ctx, path, &router.ReadRequest{})
			require.True(t, err != nil || n == 1000)
			return err
		}, "read", []millrace.ColumnID{}},
		{"count with filter", func(ctx context.Context) error {
			n, err := f.r.Count(ctx, path, &router.ReadRequest{Filter: "n = 1"})
			require.True(t, err != nil || n == 100)
			return err
		}, "read", []millrace.ColumnID{3}},
		{"lookup", func(ctx context.Context) error {
			_, err := f.r.Lookup(ctx, tbl, onlyKey.Record, []millrace.Column{v})
			return err
		}, "read", []millrace.ColumnID{1, 2}},
		{"lookups", func(ctx context.Context) error {
			_, err := f.r.OpenLookups(ctx, tbl, []millrace.Column{n}, 1<<20, false)
			return err
		}, "read", []millrace.ColumnID{1, 3}},
		{"prefix", func(ctx context.Context) error {
			p, err := f.r.PrefixPage(ctx, tbl, &router.PrefixRequest{Prefix: onlyKey, Columns: []string{"v"}, PageSize: 10})
			if err == nil {
				p.Close()
			}
			return err
		}, "read", []millrace.ColumnID{1, 2}},
		{"prefixes", func(ctx context.Context) error {
			_, err := f.r.OpenPrefixLookups(ctx, tbl, []millrace.Column{k}, []millrace.Column{n}, -1, 1<<20)
			return err
		}, "read", []millrace.ColumnID{1, 3}},
		{"write", func(ctx context.Context) error {
			_, err := f.r.Write(ctx, &router.WriteRequest{Table: tbl, Mode: router.Upsert, Rows: rows(tbl, 0, 1, "a")})
			return err
		}, "write", nil},
		{"write of nothing", func(ctx context.Context) error {
			_, err := f.r.Write(ctx, &router.WriteRequest{Table: tbl, Mode: router.Upsert, Rows: row.Rows{Columns: tbl.Schema.Columns}})
			return err
		}, "write", nil},
		{"writes", func(ctx context.Context) error { _, err := f.r.Writes(ctx, tbl); return err }, "write", nil},
		{"drop of a partition", func(ctx context.Context) error {
			err := f.r.DropPartition(ctx, tbl, "x")
			if errs.Is(err, errs.PartitionNotFound) { // the table has none
				return nil
			}
			return err
		}, "alter", nil},
	} {
		t.Run(op.name, func(t *testing.T) {
			for _, c := range []*caller{
				{},
				{describes: true},
				{describes: true, reads: true},
				{describes: true, reads: true, columns: op.columns},
				{describes: true, writes: true},
				{describes: true, alters: true},
			} {
				want := errs.PermissionDenied
				switch {
				case !c.describes:
					want = errs.TableNotFound
				case op.verb == "describe", op.verb == "read" && c.reads, op.verb == "write" && c.writes, op.verb == "alter" && c.alters:
					want = ""
				}
				require.Equal(t, want, code(op.do(c.in(t))), "%+v", c)
			}
			for i := range op.columns {
				c := &caller{describes: true, reads: true, columns: slices.Delete(slices.Clone(op.columns), i, i+1)}
				require.Equal(t, errs.ColumnDenied, code(op.do(c.in(t))), "without column %d", op.columns[i])
			}
			require.Error(t, op.do(t.Context()), "nobody calls")
		})
	}
	both := &caller{describes: true, reads: true, writes: true}
	for _, c := range []*caller{{describes: true, reads: true}, {describes: true, writes: true}, both} {
		_, err := f.r.LookupOrInsert(c.in(t), tbl, onlyKey.Record, []millrace.Column{v}, nil)
		require.Equal(t, c == both, err == nil, "%v", err)
		_, err = f.r.OpenLookups(c.in(t), tbl, []millrace.Column{v}, 1<<20, true)
		require.Equal(t, c == both, err == nil, "%v", err)
	}
}

// Tickets and tokens are for whoever brings them what he may read, not what the one may
// who asked for them.
func TestAccessOfTickets(t *testing.T) {
	f, tbl := accessFixture(t)
	all := &caller{describes: true, reads: true}
	ticket := func() string {
		p, err := f.r.Plan(all.in(t), tbl.Path.String(), &router.ReadRequest{Columns: []string{"v"}, Filter: "n = 1"}, router.Scan)
		require.NoError(t, err)
		defer p.Close()
		require.NoError(t, f.r.Hold(all.in(t), p, router.TicketTTL, router.TicketTTL))
		s, err := f.r.Ticket(p, time.Now().Add(time.Hour))
		require.NoError(t, err)
		return s
	}()
	page := func(ctx context.Context, req *router.ReadRequest) (string, error) {
		p, err := f.r.Page(ctx, tbl.Path.String(), req, router.Scan)
		if err != nil {
			return "", err
		}
		rd := f.r.Open(p)
		defer func() { require.NoError(t, rd.Close()) }()
		for {
			c, err := rd.Next(ctx, 0)
			if errors.Is(err, io.EOF) {
				return rd.NextPage(ctx)
			}
			require.NoError(t, err)
			c.Release()
		}
	}
	size := 10
	token, err := page(all.in(t), &router.ReadRequest{Columns: []string{"v"}, PageSize: &size})
	require.NoError(t, err)
	for _, c := range []struct {
		who          *caller
		ticket, page errs.Code
		text         string
	}{
		{&caller{}, errs.TableNotFound, errs.TableNotFound, "there is no table with id 1"},
		{&caller{describes: true}, errs.PermissionDenied, errs.PermissionDenied, ""},
		{&caller{describes: true, reads: true, columns: []millrace.ColumnID{2}}, errs.ColumnDenied, errs.ColumnDenied, ""},
		{&caller{describes: true, reads: true, columns: []millrace.ColumnID{1, 2}}, errs.ColumnDenied, "", ""},
		{&caller{describes: true, reads: true, columns: []millrace.ColumnID{2, 3}}, "", errs.ColumnDenied, ""}, // the next token has the key
		{all, "", "", ""},
	} {
		p, err := f.r.OpenTicket(c.who.in(t), ticket)
		require.Equal(t, c.ticket, code(err), "%v", err)
		if c.text != "" {
			require.EqualError(t, err, c.text)
		}
		if err == nil {
			require.Len(t, f.drain(p), 100)
		}
		_, _, err = f.r.RenewTicket(c.who.in(t), ticket)
		require.Equal(t, c.ticket, code(err))
		_, err = page(c.who.in(t), &router.ReadRequest{PageToken: token})
		require.Equal(t, c.page, code(err), "%v", err)
	}
	require.Equal(t, errs.PermissionDenied, code(f.r.CancelTicket((&caller{describes: true}).in(t), ticket)))
	require.NoError(t, f.r.CancelTicket(all.in(t), ticket))
}

// A log that begins with rows is opened, by ticket or token, as it is planned: by who may read
// the keys that say where it stands, for as long as he may.
func TestAccessOfTicketsWithKeys(t *testing.T) {
	f, tbl := accessFixture(t)
	all := &caller{describes: true, reads: true}
	full, latest, size := router.Position{Kind: router.Full}, router.Position{Kind: router.Latest}, 10
	req := &router.ReadRequest{Columns: []string{"v"}, From: &full, Until: &latest, PageSize: &size}
	p, err := f.r.Plan(all.in(t), tbl.Path.String()+"$changelog", req, router.Scan)
	require.NoError(t, err)
	require.NoError(t, f.r.Hold(all.in(t), p, router.TicketTTL, router.TicketTTL))
	ticket, err := f.r.Ticket(p, time.Now().Add(time.Hour))
	require.NoError(t, err)
	p.Close()
	p, err = f.r.Page(all.in(t), tbl.Path.String()+"$changelog", req, router.Scan)
	require.NoError(t, err)
	rd := f.r.Open(p)
	for err = nil; err == nil; {
		var c *router.Chunk
		if c, err = rd.Next(all.in(t), 0); err == nil {
			c.Release()
		}
	}
	require.ErrorIs(t, err, io.EOF)
	token, err := rd.NextPage(all.in(t))
	require.NoError(t, err)
	require.NotEmpty(t, token)
	require.NoError(t, rd.Close())

	for _, c := range []struct {
		columns []millrace.ColumnID
		code    errs.Code
	}{{nil, ""}, {[]millrace.ColumnID{1, 2}, ""}, {[]millrace.ColumnID{2, 3}, errs.ColumnDenied}, {[]millrace.ColumnID{1, 3}, errs.ColumnDenied}} {
		who := &caller{describes: true, reads: true, columns: c.columns}
		p, err := f.r.Plan(who.in(t), tbl.Path.String()+"$changelog", req, router.Scan)
		require.Equal(t, c.code, code(err), "%v", c.columns)
		if err == nil {
			p.Close()
		}
		p, err = f.r.OpenTicket(who.in(t), ticket)
		require.Equal(t, c.code, code(err), "%v", c.columns)
		if err == nil {
			require.Len(t, f.drain(p), 1000)
		}
		_, _, err = f.r.RenewTicket(who.in(t), ticket)
		require.Equal(t, c.code, code(err), "%v", c.columns)
		p, err = f.r.Page(who.in(t), tbl.Path.String(), &router.ReadRequest{PageToken: token}, router.Scan)
		require.Equal(t, c.code, code(err), "%v", c.columns)
		if err == nil {
			p.Close()
		}
	}
	p, err = f.r.OpenTicket(all.in(t), ticket)
	require.NoError(t, err)
	rd = f.r.Open(p)
	all.lost.Store(1)
	_, err = rd.Next(all.in(t), time.Hour)
	require.Equal(t, errs.ColumnDenied, code(err), "%v", err)
	require.NoError(t, rd.Close())

	all.lost.Store(0)
	keyless := &caller{describes: true, reads: true, columns: []millrace.ColumnID{2}}
	require.Equal(t, errs.ColumnDenied, code(f.r.CancelTicket((&caller{describes: true, reads: true, columns: []millrace.ColumnID{1}}).in(t), ticket)))
	require.NoError(t, f.r.CancelTicket(keyless.in(t), ticket), "who lost the keys lets go of what he holds")
	p, err = f.r.OpenTicket(all.in(t), ticket)
	require.NoError(t, err)
	rd = f.r.Open(p)
	_, err = rd.Next(all.in(t), time.Hour)
	require.Equal(t, errs.SnapshotGone, code(err), "%v", err)
	require.NoError(t, rd.Close())
}

// What is open ends when it is allowed no more, also while nothing comes.
func TestAccessEnds(t *testing.T) {
	f, tbl := accessFixture(t)
	for _, idle := range []bool{false, true} {
		c := &caller{describes: true, reads: true}
		from, never := router.Position{Kind: router.Earliest}, router.Position{Kind: router.Never}
		p, err := f.r.Plan(c.in(t), tbl.Path.String()+"$changelog", &router.ReadRequest{From: &from, Until: &never}, router.Scan)
		require.NoError(t, err)
		rd := f.r.Open(p)
		if !idle {
			chunk, err := rd.Next(c.in(t), time.Hour)
			require.NoError(t, err)
			chunk.Release()
			c.ended.Store(true)
		} else {
			for n := 0; n < 1000; {
				chunk, err := rd.Next(c.in(t), time.Hour)
				require.NoError(t, err)
				n += chunk.Rows
				chunk.Release()
			}
			time.AfterFunc(50*time.Millisecond, func() { c.ended.Store(true) })
		}
		_, err = rd.Next(c.in(t), time.Hour)
		require.Equal(t, errs.PermissionDenied, code(err))
		require.NoError(t, rd.Close())
	}
	c := &caller{describes: true, reads: true}
	l, err := f.r.OpenLookups(c.in(t), tbl, tbl.Schema.Columns, 1<<20, false)
	require.NoError(t, err)
	require.NoError(t, l.Still())
	pl, err := f.r.OpenPrefixLookups(c.in(t), tbl, tbl.Schema.Columns[:1], tbl.Schema.Columns, -1, 1<<20)
	require.NoError(t, err)
	c.ended.Store(true)
	keys := keyOf(tbl, 0)
	_, err = l.Next(c.in(t), keys)
	require.Equal(t, errs.PermissionDenied, code(err))
	_, err = pl.Next(c.in(t), keys)
	require.Equal(t, errs.PermissionDenied, code(err))
}

// A log that begins with rows, whose cursors hold keys, ends when the key may not be read any
// more, and when a column of its rows or filter may not.
func TestAccessToKeysEnds(t *testing.T) {
	f, tbl := accessFixture(t)
	for _, lost := range []int32{1, 2, 3} {
		c := &caller{describes: true, reads: true}
		full, never := router.Position{Kind: router.Full}, router.Position{Kind: router.Never}
		p, err := f.r.Plan(c.in(t), tbl.Path.String()+"$changelog", &router.ReadRequest{Columns: []string{"v"}, Filter: "n >= 0", From: &full, Until: &never}, router.Scan)
		require.NoError(t, err)
		rd := f.r.Open(p)
		chunk, err := rd.Next(c.in(t), time.Hour)
		require.NoError(t, err)
		chunk.Release()
		c.lost.Store(lost)
		_, err = rd.Next(c.in(t), time.Hour)
		require.Equal(t, errs.ColumnDenied, code(err), "%v", err)
		require.NoError(t, rd.Close())
	}
}
