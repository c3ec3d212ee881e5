package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

const (
	clickColumns   = "event_id BIGINT, user_id BIGINT, product_id BIGINT, url STRING, event_ts TIMESTAMP(3)"
	productColumns = "product_id BIGINT, name STRING, category STRING, price_cents BIGINT"
	clickRows      = `[{"event_id":1,"user_id":7,"product_id":99,"url":"/a","event_ts":"2026-11-29T10:00:00.123"},
		{"event_id":2,"user_id":8,"product_id":98,"url":"/b","event_ts":"2026-11-29T10:00:01.000"}]`
	productRows = `[{"product_id":99,"name":"Widget","category":"tools","price_cents":1499},{"product_id":98,"name":"Gadget","category":null,"price_cents":5}]`
)

// X1 through REST: a log table refuses what needs a key, a keyed table refuses append; both prune columns.
func TestX1REST(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	clicks := create(t, s, db, "clicks", clickColumns, "", 1)
	products := create(t, s, db, "product_dim", productColumns, "product_id", 4)
	clicks.write(t, clickRows)
	products.write(t, productRows)

	for _, refusal := range []struct{ method, path, body string }{
		{"POST", clicks.path() + "/lookup", `{"keys":[{"event_id":1}]}`},
		{"GET", clicks.path() + "/rows?pk.event_id=1", ""},
		{"PUT", clicks.path() + "/rows/1", `{"event_id":1}`},
		{"POST", clicks.path() + "/records", recordsBody(clickRows, `"mode":"upsert"`)},
		{"POST", clicks.path() + "/records", recordsBody(`[{"event_id":1}]`, `"mode":"delete"`)},
		{"POST", products.path() + "/records", recordsBody(productRows, `"mode":"append"`)},
	} {
		p := s.fails(t, 422, "wrong_table_kind", refusal.method, refusal.path, refusal.body)
		require.Contains(t, p.Detail, "table", "%s %s", refusal.method, refusal.path)
	}
	require.Equal(t, "2", clicks.count(t, ""), "a refused write leaves nothing")

	require.Equal(t, []string{`{"url":"/a","user_id":7}`, `{"url":"/b","user_id":8}`}, clicks.scan(t, obj{"columns": []string{"url", "user_id"}}))
	require.ElementsMatch(t, []string{`{"price_cents":1499}`, `{"price_cents":5}`}, products.scan(t, obj{"columns": []string{"price_cents"}}))
	require.Equal(t, []string{`{"product_id":99,"name":"Widget","category":"tools","price_cents":1499}`, "null"}, products.lookup(t, `[{"product_id":99},{"product_id":1}]`))
	require.Len(t, products.allChanges(t, "earliest"), 2)
	require.Equal(t, "log", s.ok(t, "GET", clicks.path(), nil)["kind"])
	require.Equal(t, "keyed", s.ok(t, "GET", products.path(), nil)["kind"])
}

// X1 through Flight: the same refusals with their codes, and both tables' columns pruned.
func TestX1Flight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	clicks := create(t, s, db, "clicks", clickColumns, "", 1)
	products := create(t, s, db, "product_dim", productColumns, "product_id", 4)
	c := s.dial(t)
	clickBatch := batch(t, schemaOf("event_id long, user_id long, product_id long, url string"), `[{"event_id":1,"user_id":7,"product_id":99,"url":"/a"}]`)
	productBatch := batch(t, schemaOf("product_id long, name string, category string, price_cents long"), productRows)

	_, err := c.putAll(t, pathOf(clicks), clickBatch)
	require.NoError(t, err)
	_, err = c.putAll(t, pathOf(products), productBatch)
	require.NoError(t, err)
	_, err = c.putAll(t, command(t, obj{"op": "put", "table": clicks.full(), "mode": "upsert"}), clickBatch)
	refused(t, err, codes.InvalidArgument, "wrong_table_kind")
	_, err = c.putAll(t, command(t, obj{"op": "put", "table": products.full(), "mode": "append"}), productBatch)
	refused(t, err, codes.InvalidArgument, "wrong_table_kind")
	_, err = c.exchange(t, obj{"op": "lookup", "table": clicks.full()}, batch(t, schemaOf("event_id long"), `[{"event_id":1}]`))
	refused(t, err, codes.InvalidArgument, "wrong_table_kind")

	schema, rows := c.scan(t, command(t, scanCommand(clicks, obj{"columns": []string{"url", "user_id"}})))
	require.Equal(t, "url,user_id", names(schema))
	require.Equal(t, []string{"/a|7"}, rows)
	schema, rows = c.scan(t, command(t, scanCommand(products, obj{"columns": []string{"price_cents"}})))
	require.Equal(t, "price_cents", names(schema))
	require.ElementsMatch(t, []string{"1499", "5"}, rows)

	got, err := c.exchange(t, obj{"op": "lookup", "table": products.full(), "columns": []string{"name"}}, batch(t, schemaOf("product_id long"), `[{"product_id":99},{"product_id":1}]`))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"true|Widget", "false|null"}}, got)
	_, rows = c.scan(t, command(t, scanCommand(products, obj{"view": "changelog", "columns": []string{"product_id"}})), "_change_type", "product_id")
	require.ElementsMatch(t, []string{"+I|99", "+I|98"}, rows)
}

// X1 through the command line: put, get and scan of both kinds, and the refusal is an error a person can act on.
func TestX1CLI(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	clicks := create(t, s, db, "clicks", clickColumns, "", 1)
	products := create(t, s, db, "product_dim", productColumns, "product_id", 4)
	s.cliOK(t, "put", clicks.full(), "--file", tempFile(t, "clicks.csv", "event_id,user_id,product_id,url,event_ts\n1,7,99,/a,2026-11-29T10:00:00.123\n2,8,98,/b,2026-11-29T10:00:01\n"))
	s.cliOK(t, "put", products.full(), "--file", tempFile(t, "products.ndjson", `{"product_id":99,"name":"Widget","category":"tools","price_cents":1499}`+"\n"))

	require.Equal(t, []string{`{"url":"/a","user_id":7}`, `{"url":"/b","user_id":8}`}, s.cliOK(t, "scan", clicks.full(), "--columns", "url,user_id", "--format", "ndjson"))
	require.Contains(t, strings.Join(s.cliOK(t, "get", products.full(), "product_id=99"), " "), "Widget")
	o := s.cli(t, "", "get", products.full(), "product_id=1")
	require.Equal(t, 3, o.code, "an absent key is exit code 3: %s", o.stderr)
	o = s.cli(t, "", "get", clicks.full(), "event_id=1")
	require.Equal(t, 1, o.code, "%s", o.stderr)
	require.Contains(t, o.stderr, "wrong_table_kind")
	o = s.cli(t, "", "scan", db+".nothing")
	require.Equal(t, 3, o.code, "%s", o.stderr)
	o = s.cli(t, "", "scan", clicks.full(), "--no-such-flag")
	require.Equal(t, 2, o.code, "%s", o.stderr)
}
