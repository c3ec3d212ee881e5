package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

const tableAnswer = `{"id":7,"name":"cust_dim","database":"retail","kind":"keyed","columns":[{"id":1,"name":"cust_id","type":"BIGINT","nullable":false}],
	"primary_key":["cust_id"],"partition_by":[],"bucket_key":["cust_id"],"buckets":4,"properties":{},"comment":"","schema_id":1,"version":1,"created_at":"2026-11-29T10:00:00Z","of_the_future":1}`

// Creating a table sends exactly what was asked for, with the token and the program's name; unknown answer fields are ignored.
func TestCreateTable(t *testing.T) {
	f, c := newFake(t, answer(201, tableAnswer))
	got, err := c.CreateTable(t.Context(), "retail", openapi.CreateTable{
		Name: "cust_dim", Columns: []openapi.NewColumn{{Name: "cust_id", Type: "BIGINT"}, {Name: "tier", Type: "STRING", Nullable: new(false)}},
		PrimaryKey: []string{"cust_id"}, Buckets: 4, Properties: map[string]string{"table.log.ttl": "7d"},
	}, true)
	require.NoError(t, err)
	require.Equal(t, millrace.KeyedTable, got.Kind)
	require.Equal(t, int64(7), got.ID)
	r := f.only(t)
	require.Equal(t, "POST /v1/databases/retail/tables?if_not_exists=true", r.method+" "+r.path+"?"+r.query)
	require.JSONEq(t, `{"name":"cust_dim","columns":[{"name":"cust_id","type":"BIGINT"},{"name":"tier","type":"STRING","nullable":false}],
		"primary_key":["cust_id"],"buckets":4,"properties":{"table.log.ttl":"7d"}}`, r.body)
	require.Equal(t, "Bearer secret", r.header.Get("Authorization"))
	require.Equal(t, "test", r.header.Get("User-Agent"))
	require.Equal(t, mediaJSON, r.header.Get("Content-Type"))
}

// Lists follow next_page_token to the last page and stop when the caller does.
func TestListsPage(t *testing.T) {
	f, c := newFake(t,
		answer(200, `{"databases":[{"id":1,"name":"a","comment":"","created_at":"2026-11-29T10:00:00Z"}],"next_page_token":"p2"}`),
		answer(200, `{"databases":[{"id":2,"name":"b","comment":"","created_at":"2026-11-29T10:00:00Z"}]}`))
	var names []string
	for d, err := range c.Databases(t.Context()) {
		require.NoError(t, err)
		names = append(names, d.Name)
	}
	require.Equal(t, []string{"a", "b"}, names)
	require.Equal(t, []string{"", "page_token=p2"}, []string{f.all()[0].query, f.all()[1].query})
	for _, err := range c.Databases(t.Context()) {
		require.NoError(t, err)
		break
	}
	require.Len(t, f.all(), 3)
}

// Drops answer 204 and carry their flags.
func TestDrops(t *testing.T) {
	f, c := newFake(t, answer(204, ""))
	require.NoError(t, c.DropDatabase(t.Context(), "retail", true, false))
	require.NoError(t, table(t, c, "retail.cust_dim").Drop(t.Context(), true, true))
	require.Equal(t, "DELETE /v1/databases/retail?cascade=true", f.all()[0].method+" "+f.all()[0].path+"?"+f.all()[0].query)
	require.Equal(t, "DELETE /v1/databases/retail/tables/cust_dim?purge=true&if_exists=true", f.all()[1].method+" "+f.all()[1].path+"?"+f.all()[1].query)
}

// The other questions go to their addresses.
func TestAddresses(t *testing.T) {
	f, c := newFake(t, answer(200, `{}`))
	ctx := t.Context()
	tb := table(t, c, "retail.cust_dim$changelog")
	_, err := c.Info(ctx)
	require.NoError(t, err)
	_, err = c.Cluster(ctx)
	require.NoError(t, err)
	_, err = c.Database(ctx, "retail")
	require.NoError(t, err)
	_, err = c.CreateDatabase(ctx, openapi.CreateDatabase{Name: "retail"}, false)
	require.NoError(t, err)
	_, err = tb.Describe(ctx)
	require.NoError(t, err)
	_, err = tb.Offsets(ctx, AtOffsets(openapi.Offsets{"0": 3}))
	require.NoError(t, err)
	for b, err := range tb.Buckets(ctx) {
		t.Fatal("no buckets were sent", b, err)
	}
	for s, err := range tb.Schemas(ctx) {
		t.Fatal("no schemas were sent", s, err)
	}
	for tb, err := range c.Tables(ctx, "retail") {
		t.Fatal("no tables were sent", tb, err)
	}
	var got []string
	for _, r := range f.all() {
		got = append(got, r.method+" "+r.path+"?"+r.query)
	}
	require.Equal(t, []string{
		"GET /v1/info?", "GET /v1/cluster?", "GET /v1/databases/retail?", "POST /v1/databases?", "GET /v1/databases/retail/tables/cust_dim?",
		"GET /v1/databases/retail/tables/cust_dim/offsets?at=%7B%220%22%3A3%7D", "GET /v1/databases/retail/tables/cust_dim/buckets?",
		"GET /v1/databases/retail/tables/cust_dim/schemas?", "GET /v1/databases/retail/tables?",
	}, got)
	require.Equal(t, "retail.cust_dim$changelog", tb.String())
	require.Equal(t, "cust_dim", tb.Name())
	require.Equal(t, "retail", tb.Database())
}

// Addresses and names that cannot be right are refused before anything is sent.
func TestNew(t *testing.T) {
	for _, ok := range []string{"", "localhost:8080", "http://h", "https://h:1/base"} {
		_, err := New(Options{Server: ok})
		require.NoError(t, err, ok)
	}
	for _, bad := range []string{"ftp://h", "http://", "://"} {
		_, err := New(Options{Server: bad})
		require.True(t, errs.Is(err, errs.InvalidRequest), bad)
	}
	c, err := New(Options{})
	require.NoError(t, err)
	require.Equal(t, DefaultServer, c.Server())
	for _, bad := range []string{"", "a", "a.b.c", "a.$changelog", "a.b$other", "../x.y"} {
		_, err := c.Table(bad)
		require.True(t, errs.Is(err, errs.InvalidName), bad)
	}
}
