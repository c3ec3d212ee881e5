package router_test

// These tests drive router and storage together on a crashable file system: what
// is written is read back through every view, also after a crash.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage"
)

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

// plainSigner seals nothing: signing is auth's affair.
type plainSigner struct{}

func (plainSigner) Sign(p []byte) (string, error)   { return string(p), nil }
func (plainSigner) Verify(s string) ([]byte, error) { return []byte(s), nil }

type fakeCatalog struct {
	router.Catalog // of partitions there is none
	mu             sync.Mutex
	tables         map[millrace.TablePath]*millrace.Table
	// schemas are all versions, of tables that were altered.
	schemas map[millrace.TableID][]*millrace.Schema
}

func (c *fakeCatalog) Table(_ context.Context, p millrace.TablePath) (*millrace.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tables[p]; t != nil {
		return t, nil
	}
	return nil, errs.New(errs.TableNotFound, "no table %s", p)
}

func (c *fakeCatalog) TableByID(_ context.Context, id millrace.TableID) (*millrace.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, errs.New(errs.TableNotFound, "no table %d", id)
}

// Schemas are those of tables that alter changed.
func (c *fakeCatalog) Schemas(_ context.Context, id millrace.TableID) ([]*millrace.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.schemas[id], nil
}

// alter makes a version of a table the newest.
func (c *fakeCatalog) alter(from, to *millrace.Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tables, from.Path)
	c.tables[to.Path] = to
	if c.schemas == nil {
		c.schemas = map[millrace.TableID][]*millrace.Schema{}
	}
	if len(c.schemas[to.ID]) == 0 {
		c.schemas[to.ID] = append(c.schemas[to.ID], from.Schema)
	}
	c.schemas[to.ID] = append(c.schemas[to.ID], to.Schema)
}

type fixture struct {
	t   *testing.T
	fs  *vfs.MemFS
	cat *fakeCatalog
	w   *storage.Worker
	r   *router.Router
	// lake is nil for tests that have none.
	lake router.Lake
	// access is nil for tests in which everybody may do everything.
	access router.Access
	quotas router.Quotas // nil for tests in which everybody may do as much as he likes
	room   *admit.Room   // nil for tests in which reads take what they need
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, fs: vfs.NewCrashableMem(), cat: &fakeCatalog{tables: map[millrace.TablePath]*millrace.Table{}}}
	f.open()
	t.Cleanup(func() { require.NoError(t, f.w.Close(context.Background())) })
	return f
}

func (f *fixture) open() {
	var err error
	f.w, err = storage.Open(context.Background(), storage.Options{
		Dir: "data", Shards: 3, FS: f.fs, Clock: realClock{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(f.t, err)
	require.NoError(f.t, f.w.Err())
	f.r = newRouter(f.options(), f.w.Shards())
}

// options are those of a router of the fixture.
func (f *fixture) options() router.Options {
	return router.Options{Catalog: f.cat, Signer: plainSigner{}, Lake: f.lake, Access: f.access, Quotas: f.quotas, Room: f.room, Clock: realClock{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}
}

// crash drops everything that is not synced and opens again.
func (f *fixture) crash() {
	clone := f.fs.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(f.t, f.w.Close(context.Background()))
	f.fs = clone
	f.open()
}

func (f *fixture) table(name string, keyed bool, buckets int) *millrace.Table {
	id := millrace.TableID(len(f.cat.tables) + 1)
	t := &millrace.Table{
		ID: id, Path: millrace.TablePath{Database: "d", Table: name}, Kind: millrace.LogTable, Buckets: buckets,
		Schema: &millrace.Schema{ID: 1, Columns: []millrace.Column{
			{ID: 1, Name: "k", Type: millrace.DataType{Kind: millrace.BigInt}},
			{ID: 2, Name: "v", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
			{ID: 3, Name: "n", Type: millrace.DataType{Kind: millrace.Int}, Nullable: true},
		}},
	}
	if keyed {
		t.Kind, t.PrimaryKey, t.BucketKey = millrace.KeyedTable, []millrace.ColumnID{1}, []millrace.ColumnID{1}
	}
	for i := range buckets {
		t.Shards = append(t.Shards, millrace.ShardID(i%3))
	}
	f.cat.tables[t.Path] = t
	return t
}

func rows(t *millrace.Table, from, to int, tag string) row.Rows {
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(t.Schema.Columns))
	defer b.Release()
	for i := from; i < to; i++ {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("%s%d", tag, i))
		b.Field(2).(*array.Int32Builder).Append(int32(i % 10))
	}
	return row.Rows{Record: b.NewRecordBatch(), Columns: t.Schema.Columns}
}

func (f *fixture) write(t *millrace.Table, mode router.Mode, r row.Rows) *router.WriteResult {
	res, err := f.r.Write(context.Background(), &router.WriteRequest{Table: t, Mode: mode, Rows: r})
	require.NoError(f.t, err)
	return res
}

// read gives every row as JSON text of its columns, sorted.
func (f *fixture) read(t *millrace.Table, req *router.ReadRequest) []string {
	p, err := f.r.Plan(context.Background(), t.Path.String(), req, router.Scan)
	require.NoError(f.t, err)
	out := f.drain(p)
	slices.Sort(out)
	return out
}

func (f *fixture) drain(p *router.Plan) []string {
	rd := f.r.Open(p)
	defer func() { require.NoError(f.t, rd.Close()) }()
	var out []string
	for {
		c, err := rd.Next(context.Background(), time.Second)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(f.t, err)
		rec, err := c.Record()
		require.NoError(f.t, err)
		require.Equal(f.t, int(rec.NumRows()), c.Rows)
		out = append(out, text(f.t, rec)...)
		rec.Release()
		c.Release()
	}
}

func text(t *testing.T, rec arrow.RecordBatch) []string {
	b, err := rec.MarshalJSON()
	require.NoError(t, err)
	var all []json.RawMessage
	require.NoError(t, json.Unmarshal(b, &all))
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = string(r)
	}
	return out
}

// A log table gives back what was appended, narrow and filtered, before and after
// a crash and a restart.
func TestLogTable(t *testing.T) {
	f := newFixture(t)
	tbl := f.table("log", false, 4)
	for i := range 20 {
		f.write(tbl, router.Append, rows(tbl, i*100, i*100+100, "a"))
	}
	f.write(tbl, router.Append, rows(tbl, 2000, 2005, "b"))
	check := func() {
		require.Len(t, f.read(tbl, &router.ReadRequest{}), 2005)
		got := f.read(tbl, &router.ReadRequest{Columns: []string{"v"}, Filter: "k BETWEEN 1998 AND 2001"})
		require.Equal(t, []string{`{"v":"a1998"}`, `{"v":"a1999"}`, `{"v":"b2000"}`, `{"v":"b2001"}`}, got)
		require.Len(t, f.read(tbl, &router.ReadRequest{Limit: new(int64(7))}), 7)
		n, err := f.r.Count(context.Background(), tbl.Path.String(), &router.ReadRequest{})
		require.NoError(t, err)
		require.Equal(t, int64(2005), n)
		n, err = f.r.Count(context.Background(), tbl.Path.String(), &router.ReadRequest{Filter: "n = 3"})
		require.NoError(t, err)
		require.Equal(t, int64(201), n)
	}
	check()
	f.crash()
	check()
	for _, s := range f.w.Shards() {
		require.NoError(t, s.Checkpoint(context.Background()))
	}
	check()
	f.crash()
	check()
}

// A keyed table gives the changelog of the write table of semantics.md, the
// current rows, and lookups, before and after a crash.
func TestKeyedTable(t *testing.T) {
	f := newFixture(t)
	tbl := f.table("keyed", true, 1)
	f.write(tbl, router.Upsert, rows(tbl, 1, 3, "a"))
	f.write(tbl, router.Upsert, rows(tbl, 2, 3, "b"))
	f.write(tbl, router.Delete, rows(tbl, 1, 2, ""))
	f.write(tbl, router.Delete, rows(tbl, 9, 10, ""))
	check := func() {
		require.Equal(t, []string{`{"k":2,"n":2,"v":"b2"}`}, f.read(tbl, &router.ReadRequest{}))
		p, err := f.r.Plan(context.Background(), tbl.Path.String()+"$changelog", &router.ReadRequest{Columns: []string{"v"}, Filter: "_log_offset >= 0"}, router.Scan)
		require.NoError(t, err)
		var got []string
		for _, s := range f.drain(p) {
			var m map[string]any
			require.NoError(t, json.Unmarshal([]byte(s), &m))
			got = append(got, fmt.Sprint(m["_log_offset"], m["_change_type"], m["v"]))
		}
		require.Equal(t, []string{"0 +I a1", "1 +I a2", "2 -U a2", "3 +U b2", "4 -D a1"}, spaced(got))
		n, err := f.r.Count(context.Background(), tbl.Path.String(), &router.ReadRequest{})
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
	}
	check()
	f.crash()
	check()
	for _, s := range f.w.Shards() {
		require.NoError(t, s.Checkpoint(context.Background()))
	}
	f.crash()
	check()
}

func spaced(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		var off int
		var rest string
		if _, err := fmt.Sscanf(s, "%d%s", &off, &rest); err != nil {
			panic(err)
		}
		out[i] = fmt.Sprintf("%d %s %s", off, rest[:2], rest[2:])
	}
	return out
}

// Pages of a keyed scan together give each row of one snapshot once, while writes go on.
func TestPages(t *testing.T) {
	f := newFixture(t)
	tbl := f.table("paged", true, 3)
	f.write(tbl, router.Upsert, rows(tbl, 0, 1000, "a"))
	size := 77
	req := &router.ReadRequest{PageSize: &size, Columns: []string{"k"}}
	seen := map[string]int{}
	for page := 0; ; page++ {
		p, err := f.r.Page(context.Background(), tbl.Path.String(), req, router.Scan)
		require.NoError(t, err)
		rd := f.r.Open(p)
		n := 0
		for {
			c, err := rd.Next(context.Background(), time.Second)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			rec, err := c.Record()
			require.NoError(t, err)
			for _, s := range text(t, rec) {
				seen[s]++
				n++
			}
			rec.Release()
			c.Release()
		}
		next, err := rd.NextPage(context.Background())
		require.NoError(t, err)
		require.NoError(t, rd.Close())
		if next == "" {
			require.LessOrEqual(t, n, size)
			break
		}
		require.Equal(t, size, n)
		req = &router.ReadRequest{PageToken: next}
		f.write(tbl, router.Upsert, rows(tbl, page*50, page*50+2000, "b"))
	}
	require.Len(t, seen, 1000)
	for k, n := range seen {
		require.Equal(t, 1, n, k)
	}
}
