package client

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

const writeAnswer = `{"accepted":2,"rejected":0,"errors":[],"offsets":{"0":{"start":17,"end":9007199254740993}},"last_seq":5}`

// A batch is JSON with every digit of its integers; options are query parameters and headers.
func TestWrite(t *testing.T) {
	f, c := newFake(t, answer(200, writeAnswer))
	got, err := table(t, c, "retail.cust_dim").Write(t.Context(), []any{
		map[string]any{"cust_id": int64(9007199254740993)}, struct {
			ID int64 `json:"cust_id"`
		}{1},
	}, WriteOptions{Mode: openapi.WriteModeUpsert, Columns: []string{"cust_id", "tier"}, ContinueOnError: true, TableID: 7, IdempotencyKey: "k", WriterID: "w", WriterSeq: 4, WriterEpoch: 2})
	require.NoError(t, err)
	require.Equal(t, openapi.OffsetRange{Start: 17, End: 9007199254740993}, got.Offsets["0"])
	require.Equal(t, int64(5), got.LastSeq)
	r := f.only(t)
	require.Equal(t, "POST /v1/databases/retail/tables/cust_dim/records", r.method+" "+r.path)
	require.Equal(t, `{"rows":[{"cust_id":9007199254740993},{"cust_id":1}]}`, r.body)
	q, err := url.ParseQuery(r.query)
	require.NoError(t, err)
	require.Equal(t, url.Values{"mode": {"upsert"}, "columns": {"cust_id,tier"}, "on_error": {"continue"}, "table_id": {"7"}}, q)
	require.Equal(t, []string{"k", "w", "4", "2"}, []string{r.header.Get("Idempotency-Key"), r.header.Get("X-Writer-Id"), r.header.Get("X-Writer-Seq"), r.header.Get("X-Writer-Epoch")})
}

// Streams go out as they come, with their media type and nothing that was not asked for.
func TestWriteStreams(t *testing.T) {
	f, c := newFake(t, answer(200, writeAnswer))
	tb := table(t, c, "retail.cust_dim")
	_, err := tb.WriteNDJSON(t.Context(), strings.NewReader("{}\n{}\n"), WriteOptions{})
	require.NoError(t, err)
	_, err = tb.WriteArrow(t.Context(), bytes.NewReader([]byte{1, 2}), WriteOptions{Encoding: "zstd"})
	require.NoError(t, err)
	a, b := f.all()[0], f.all()[1]
	require.Equal(t, "application/x-ndjson {}\n{}\n", a.header.Get("Content-Type")+" "+a.body)
	require.Empty(t, a.query)
	require.NotContains(t, a.header, "X-Writer-Seq")
	require.NotContains(t, a.header, "Content-Encoding")
	require.Equal(t, "application/vnd.apache.arrow.stream \x01\x02", b.header.Get("Content-Type")+" "+b.body)
	require.Equal(t, "zstd", b.header.Get("Content-Encoding"))
}

// Rows are written by key: the key is in the address, whatever characters it has, and comes apart there as it went in.
func TestRowsByKey(t *testing.T) {
	f, c := newFake(t, answer(200, writeAnswer))
	tb := table(t, c, "retail.orders")
	key := Key{"tenant": "a&b=c/d %,+é", "id": int64(9007199254740993), "raw": []byte{0xFB, 0xFF}, "ok": true}
	_, err := tb.Put(t.Context(), key, map[string]any{"total": 1})
	require.NoError(t, err)
	_, err = tb.Patch(t.Context(), key, map[string]any{"total": nil})
	require.NoError(t, err)
	_, err = tb.Delete(t.Context(), key, "total", "note")
	require.NoError(t, err)
	_, err = tb.Get(t.Context(), key, "total")
	require.NoError(t, err)
	want := url.Values{"pk.tenant": {"a&b=c/d %,+é"}, "pk.id": {"9007199254740993"}, "pk.raw": {"-_8"}, "pk.ok": {"true"}}
	for i, method := range []string{"PUT", "PATCH", "DELETE", "GET"} {
		r := f.all()[i]
		require.Equal(t, method+" /v1/databases/retail/tables/orders/rows", r.method+" "+r.path)
		q, err := url.ParseQuery(r.query)
		require.NoError(t, err)
		columns := q["columns"]
		delete(q, "columns")
		require.Equal(t, want, q, method)
		require.Equal(t, map[string][]string{"DELETE": {"total,note"}, "GET": {"total"}}[method], columns, method)
	}
	require.Equal(t, `{"total":1}`, f.all()[0].body)
	require.Equal(t, `{"total":null}`, f.all()[1].body)
	for _, bad := range []Key{nil, {"id": nil}, {"id": []int{1}}, {"id": map[string]int{}}, {"id": func() {}}} {
		_, err := tb.Get(t.Context(), bad)
		require.Error(t, err)
	}
}

// A row comes back as the server wrote it; an absent one is row_not_found.
func TestGet(t *testing.T) {
	_, c := newFake(t, answer(200, `{"id":9007199254740993,"tier":null}`), problem(404, "row_not_found", "no row", nil))
	tb := table(t, c, "a.b")
	row, err := tb.Get(t.Context(), Key{"id": 1})
	require.NoError(t, err)
	require.Equal(t, `{"id":9007199254740993,"tier":null}`, string(row))
	_, err = tb.Get(t.Context(), Key{"id": 1})
	require.True(t, errs.Is(err, errs.RowNotFound))
}

// Lookups keep the order of the keys and say nil for what is not there; an answer of another length is refused.
func TestLookup(t *testing.T) {
	f, c := newFake(t, answer(200, `{"rows":[{"name":"Acme"},null]}`))
	tb := table(t, c, "a.b")
	rows, err := tb.Lookup(t.Context(), []any{Key{"id": 1}, Key{"id": 2}}, "name")
	require.NoError(t, err)
	require.Equal(t, `{"name":"Acme"}`, string(rows[0]))
	require.Nil(t, rows[1])
	require.JSONEq(t, `{"keys":[{"id":1},{"id":2}],"columns":["name"]}`, f.only(t).body)
	_, err = tb.Lookup(t.Context(), []any{Key{"id": 1}})
	require.True(t, errs.Is(err, errs.Internal))
}
