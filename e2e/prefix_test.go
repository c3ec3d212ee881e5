package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tenantTable is a table whose key begins with its bucket key, with rows of some tenants: days 1 to 3, ids 1 to 40.
func tenantTable(t *testing.T, s *server) table {
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, tenant STRING, day DATE, v STRING", "tenant,day,id", 4, obj{"bucket_key": []string{"tenant"}})
	var b strings.Builder
	for _, tenant := range []string{"acme", "acme2", "b"} {
		for day := 1; day <= 3; day++ {
			for id := 1; id <= 40; id++ {
				fmt.Fprintf(&b, `,{"id":%d,"tenant":%q,"day":"2026-08-%02d","v":"%s-%d-%d"}`, (id*17)%40+1, tenant, day, tenant, day, (id*17)%40+1)
			}
		}
	}
	tb.write(t, "["+b.String()[1:]+"]")
	return tb
}

// prefixPages reads all pages of a prefix and gives the values of v.
func (tb table) prefixPages(t *testing.T, body string, between func()) (vs []string, pages int) {
	t.Helper()
	token := ""
	for {
		send := body[:len(body)-1] + token + "}"
		o := tb.s.ok(t, "POST", tb.path()+"/prefix-lookup", send)
		for _, r := range o["rows"].([]any) {
			vs = append(vs, fmt.Sprint(r.(map[string]any)["v"]))
		}
		pages++
		next, more := o["next_page_token"]
		if !more {
			return vs, pages
		}
		token = fmt.Sprintf(`,"page_token":%q`, next)
		if between != nil {
			between()
		}
	}
}

// A prefix of the key that covers the bucket key gives its rows, and no others, in the order of their keys, in pages of
// one snapshot.
func TestPrefixLookup(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := tenantTable(t, s)
	var want []string
	for day := 1; day <= 3; day++ {
		for id := 1; id <= 40; id++ {
			want = append(want, fmt.Sprintf("acme-%d-%d", day, id))
		}
	}
	got, pages := tb.prefixPages(t, `{"prefix":{"tenant":"acme"}}`, nil)
	require.Equal(t, want, got)
	require.Equal(t, 1, pages)
	got, _ = tb.prefixPages(t, `{"prefix":{"day":"2026-08-02","tenant":"acme"},"columns":["v"]}`, nil)
	require.Equal(t, want[40:80], got)
	got, _ = tb.prefixPages(t, `{"prefix":{"tenant":"acme","day":"2026-08-02","id":7}}`, nil)
	require.Equal(t, []string{"acme-2-7"}, got)
	got, _ = tb.prefixPages(t, `{"prefix":{"tenant":"nobody"}}`, nil)
	require.Empty(t, got)

	n := 0
	got, pages = tb.prefixPages(t, `{"prefix":{"tenant":"acme"},"limit":50}`, func() {
		n++
		tb.write(t, fmt.Sprintf(`[{"id":%d,"tenant":"acme","day":"2026-08-04","v":"later"},{"id":3,"tenant":"acme","day":"2026-08-03","v":"changed"}]`, n))
		s.ok(t, "POST", tb.path()+"/records?mode=delete", recordsBody(`[{"id":2,"tenant":"acme","day":"2026-08-03"}]`))
	})
	require.Equal(t, want, got, "the pages see one snapshot")
	require.Equal(t, 3, pages)
	got, _ = tb.prefixPages(t, `{"prefix":{"tenant":"acme"},"limit":120}`, nil)
	require.Len(t, got, 121)

	o := s.ok(t, "POST", tb.path()+"/prefix-lookup?int64=string", `{"prefix":{"tenant":"b"},"columns":["id","day"],"limit":1}`)
	require.Equal(t, []any{map[string]any{"id": "1", "day": "2026-08-01"}}, o["rows"])

	// A prefix reads the rows it gives and no more.
	a := s.do(t, "POST", tb.path()+"/prefix-lookup", `{"prefix":{"tenant":"b","day":"2026-08-01"}}`)
	require.Contains(t, a.header.Get("X-Millrace-Stats"), `"rows_read":40,`)
}

// What is no prefix, or one of several buckets, is refused, and what is missing is named.
func TestPrefixLookupThatIsRefused(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := tenantTable(t, s)
	token := s.ok(t, "POST", tb.path()+"/prefix-lookup", `{"prefix":{"tenant":"acme"},"limit":1,"columns":["v"]}`)["next_page_token"]
	scanned := s.ok(t, "POST", tb.path()+"/scan", `{"page_size":1}`)["next_page_token"]
	for body, code := range map[string]string{
		`{"prefix":{}}`:                                                                     "prefix_too_short",
		`{"prefix":{"day":"2026-08-02","id":1}}`:                                            "prefix_too_short",
		`{"prefix":{"tenant":"acme","id":1}}`:                                               "prefix_too_short",
		`{"prefix":{"tenant":"acme","v":"x"}}`:                                              "unknown_column",
		`{"prefix":{"tenant":"acme","w":1}}`:                                                "unknown_column",
		`{"prefix":{"tenant":null}}`:                                                        "null_not_allowed",
		`{"prefix":{"tenant":"acme","day":"never"}}`:                                        "invalid_value",
		`{"prefix":{"tenant":"a","tenant":"b"}}`:                                            "duplicate_field",
		`{"prefix":{"tenant":"acme"},"limit":0}`:                                            "invalid_value",
		`{"prefix":{"tenant":"acme"},"limit":10001}`:                                        "invalid_value",
		`{"prefix":{"tenant":"acme"},"limit":"x"}`:                                          "invalid_value",
		`{"prefix":{"tenant":"acme"},"columns":["x"]}`:                                      "unknown_column",
		`{"prefix":{"tenant":"acme"},"columns":["_bucket"]}`:                                "unknown_column",
		`{"prefix":{"tenant":"acme"},"filter":"id = 1"}`:                                    "unknown_field",
		`{"prefix":{"tenant":"acme"},"page_token":"x"}`:                                     "invalid_value",
		fmt.Sprintf(`{"prefix":{"tenant":"b"},"page_token":%q}`, token):                     "invalid_value",
		fmt.Sprintf(`{"prefix":{"tenant":"acme"},"columns":["id"],"page_token":%q}`, token): "invalid_value",
		fmt.Sprintf(`{"prefix":{"tenant":"acme"},"page_token":%q}`, scanned):                "invalid_value",
	} {
		s.fails(t, 422, code, "POST", tb.path()+"/prefix-lookup", body)
	}
	s.fails(t, 400, "invalid_request", "POST", tb.path()+"/prefix-lookup", `{}`)
	s.fails(t, 400, "invalid_request", "POST", tb.path()+"/prefix-lookup", `{"prefix":7}`)
	p := s.fails(t, 422, "prefix_too_short", "POST", tb.path()+"/prefix-lookup", `{"prefix":{"tenant":"acme","id":1}}`)
	require.Contains(t, p.Detail, "the prefix lacks day: ")
	p = s.fails(t, 422, "prefix_too_short", "POST", tb.path()+"/prefix-lookup", `{"prefix":{"id":1}}`)
	require.Contains(t, p.Detail, "the prefix lacks tenant, day: ")

	log := create(t, s, tb.db, "log", "id BIGINT", "", 1)
	s.fails(t, 422, "wrong_table_kind", "POST", log.path()+"/prefix-lookup", `{"prefix":{"id":1}}`)
	s.fails(t, 404, "table_not_found", "POST", tb.path()+"x/prefix-lookup", `{"prefix":{"id":1}}`)
	got, _ := tb.prefixPages(t, fmt.Sprintf(`{"prefix":{"tenant":"acme"},"page_token":%q}`, token), nil)
	require.Len(t, got, 119, "the columns are those of the first page")

	// A bucket key that does not begin the key leaves whole keys only.
	other := create(t, s, tb.db, "other", "a BIGINT, b BIGINT", "a,b", 4, obj{"bucket_key": []string{"b"}})
	p = s.fails(t, 422, "prefix_too_short", "POST", other.path()+"/prefix-lookup", `{"prefix":{"b":1}}`)
	require.Contains(t, p.Detail, "the prefix lacks a: it begins with a, b")
	s.ok(t, "POST", other.path()+"/prefix-lookup", `{"prefix":{"a":1,"b":1}}`)
}
