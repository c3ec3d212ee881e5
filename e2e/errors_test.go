package e2e

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// Every kind of bad input has its own code, and says in the form of RFC 9457 what to do. Nothing of it is written.
func TestErrorsREST(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	keyed := create(t, s, db, "keyed", "id BIGINT, v STRING NOT NULL, n INT", "id", 2)
	log := create(t, s, db, "log", "id BIGINT, v STRING", "", 1)
	log.write(t, `[{"id":1,"v":"a"},{"id":2,"v":"b"}]`)
	k, l := keyed.path(), log.path()
	whole := stream(t, []arrow.RecordBatch{longs("id", 1000, func(i, _ int) int64 { return int64(i) })})
	manyRows := recordsBody("[" + strings.TrimSuffix(strings.Repeat(`{"id":1},`, 10_001), ",") + "]")
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	page := s.ok(t, "POST", l+"/scan", obj{"page_size": 1})["next_page_token"].(string)

	for _, c := range []struct {
		name         string
		status       int
		code         string
		method, path string
		body         any
		headers      []string
	}{
		{"unknown database", 404, "database_not_found", "GET", "/v1/databases/no_such", nil, nil},
		{"unknown table", 404, "table_not_found", "POST", "/v1/databases/" + db + "/tables/no_such/records", recordsBody(`[]`), nil},
		{"unknown table read", 404, "table_not_found", "GET", "/v1/databases/" + db + "/tables/no_such/scan", nil, nil},
		{"unknown row", 404, "row_not_found", "GET", k + "/rows/1", nil, nil},
		{"unknown route", 404, "route_not_found", "GET", "/v1/nothing", nil, nil},
		{"wrong method", 405, "method_not_allowed", "PUT", "/v1/databases", `{}`, nil},
		{"not acceptable", 406, "not_acceptable", "GET", l + "/scan", nil, []string{"Accept", "image/png"}},
		{"media type", 415, "unsupported_media_type", "POST", l + "/records", "a,b", []string{"Content-Type", "text/csv"}},
		{"content encoding", 415, "unsupported_media_type", "POST", l + "/records", recordsBody(`[]`), []string{"Content-Encoding", "br"}},
		{"database exists", 409, "database_already_exists", "POST", "/v1/databases", obj{"name": db}, nil},
		{"table exists", 409, "table_already_exists", "POST", "/v1/databases/" + db + "/tables", obj{"name": "log", "columns": columnList("a INT")}, nil},
		{"database not empty", 409, "database_not_empty", "DELETE", "/v1/databases/" + db, nil, nil},
		{"another table's id", 409, "table_recreated", "GET", l + "/scan?table_id=4000000000", nil, nil},
		{"broken JSON", 400, "invalid_request", "POST", k + "/records", `{"rows":[`, nil},
		{"broken gzip", 400, "invalid_request", "POST", k + "/records", `no gzip`, []string{"Content-Encoding", "gzip"}},
		{"no Arrow stream", 400, "invalid_request", "POST", l + "/records", "certainly not Arrow", []string{"Content-Type", mediaArrow}},
		{"cut Arrow stream", 400, "invalid_request", "POST", l + "/records", whole[:len(whole)/2], []string{"Content-Type", mediaArrow}},
		{"unknown member", 422, "unknown_field", "POST", k + "/records", `{"rows":[],"rowz":[]}`, nil},
		{"unknown parameter", 422, "unknown_field", "GET", l + "/scan?limits=1", nil, nil},
		{"unknown mode", 422, "invalid_value", "POST", k + "/records", recordsBody(`[]`, `"mode":"insert"`), nil},
		{"unknown column asked", 422, "unknown_column", "GET", l + "/scan?columns=id,nothing", nil, nil},
		{"unknown column written", 422, "unknown_column", "POST", k + "/records", recordsBody(`[]`, `"columns":["id","nothing"]`), nil},
		{"unknown column in a filter", 422, "unknown_column", "GET", l + "/scan?filter=" + url.QueryEscape("nothing = 1"), nil, nil},
		{"wrong type in a filter", 422, "type_mismatch", "GET", l + "/scan?filter=" + url.QueryEscape("id LIKE 'a%'"), nil, nil},
		{"broken filter", 422, "invalid_filter", "GET", l + "/scan?filter=" + url.QueryEscape("id = = 1"), nil, nil},
		{"unknown field", 422, "unknown_field", "POST", k + "/records", recordsBody(`[{"id":1,"v":"a","w":1}]`), nil},
		{"duplicate field", 422, "duplicate_field", "POST", k + "/records", recordsBody(`[{"id":1,"v":"a","id":2}]`), nil},
		{"wrong type", 422, "type_mismatch", "POST", k + "/records", recordsBody(`[{"id":{},"v":"a"}]`), nil},
		{"out of range", 422, "value_out_of_range", "POST", k + "/records", recordsBody(`[{"id":1,"v":"a","n":2147483648}]`), nil},
		{"NULL in NOT NULL", 422, "null_not_allowed", "POST", k + "/records", recordsBody(`[{"id":1,"v":null}]`), nil},
		{"missing key", 422, "missing_key", "POST", k + "/lookup", `{"keys":[{}]}`, nil},
		{"wrong kind", 422, "wrong_table_kind", "POST", l + "/lookup", `{"keys":[{"id":1}]}`, nil},
		{"keys too many", 413, "too_large", "POST", k + "/lookup", `{"keys":[` + strings.TrimSuffix(strings.Repeat(`{"id":1},`, 1001), ",") + `]}`, nil},
		{"rows too many", 413, "too_large", "POST", k + "/records", manyRows, nil},
		{"body too large", 413, "too_large", "POST", l + "/records", recordsBody(`[{"v":"` + strings.Repeat("x", 17<<20) + `"}]`), nil},
		{"line too long", 413, "too_large", "POST", l + "/records", `{"v":"` + strings.Repeat("x", 1<<20) + `"}`, []string{"Content-Type", mediaNDJSON}},
		{"before the log", 410, "offset_out_of_range", "GET", l + `/changelog?from=%7B%220%22:3%7D`, nil, nil},
		{"a time ahead", 422, "timestamp_in_future", "GET", l + "/changelog?from=" + future, nil, nil},
		{"no position", 422, "invalid_value", "GET", l + "/changelog?from=yesterday", nil, nil},
		{"no cursor", 422, "invalid_value", "GET", l + "/changelog?from=c1.AAAA", nil, nil},
		{"list token of no list", 422, "invalid_value", "GET", "/v1/databases?page_token=zzz", nil, nil},
		{"offsets of a view that is none", 422, "invalid_value", "GET", l + "$foo/offsets", nil, nil},
		{"pages of a count", 422, "unknown_field", "GET", l + "/count?page_size=3", nil, nil},
		{"tampered page token", 422, "invalid_value", "POST", l + "/scan", obj{"page_token": tampered(page)}, nil},
		{"keyed rows from elsewhere", 422, "invalid_value", "GET", k + "/scan?from=earliest", nil, nil},
		{"contradiction", 422, "invalid_value", "GET", l + "$changelog/scan?view=rows", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.fails(t, c.status, c.code, c.method, c.path, c.body, append([]string{"X-Request-Id", "e2e-" + c.code}, c.headers...)...)
			require.Equal(t, "e2e-"+c.code, p.RequestID)
		})
	}
	p := s.fails(t, 410, "offset_out_of_range", "GET", l+`/changelog?from=%7B%220%22:99%7D`, nil)
	require.Equal(t, "map[end:2 start:0]", fmt.Sprint(p.Offsets["0"]), "says what can be read")
	require.Equal(t, "offset 99 is outside the log of bucket 0, which holds offsets 0 to 1 (the next is 2)", p.Detail)
	require.Equal(t, "0", keyed.count(t, ""))
	require.Equal(t, "2", log.count(t, ""))
	require.Empty(t, keyed.allChanges(t, "earliest"))
}

// tampered flips a bit in the middle of a token.
func tampered(token string) string {
	b := []byte(token)
	at := len(b) / 2
	if b[at] == 'A' {
		b[at] = 'B'
	} else {
		b[at] = 'A'
	}
	return string(b)
}

// The same through Flight: the gRPC code of the table in contract.md, and ErrorInfo names the reason.
func TestErrorsFlight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	keyed := create(t, s, db, "keyed", "id BIGINT, v STRING NOT NULL, n INT", "id", 2)
	log := create(t, s, db, "log", "id BIGINT, v STRING", "", 1)
	log.write(t, `[{"id":1,"v":"a"}]`)
	c := s.dial(t)
	plan := func(request obj) error {
		_, err := c.GetFlightInfo(within(t, patience), command(t, request))
		return err
	}
	refused(t, plan(scanCommand(table{s, db, "nothing"}, nil)), codes.NotFound, "table_not_found")
	refused(t, plan(scanCommand(log, obj{"columns": []string{"nothing"}})), codes.InvalidArgument, "unknown_column")
	refused(t, plan(scanCommand(log, obj{"filter": "id ="})), codes.InvalidArgument, "invalid_filter")
	refused(t, plan(scanCommand(log, obj{"colums": 1})), codes.InvalidArgument, "unknown_field")
	refused(t, plan(scanCommand(log, obj{"view": "changelog", "from": obj{"0": 9}})), codes.OutOfRange, "offset_out_of_range")
	refused(t, plan(obj{"op": "juggle"}), codes.InvalidArgument, "invalid_value")

	put := func(tb table, columns, rows string) error {
		_, err := c.putAll(t, pathOf(tb), batch(t, schemaOf(columns), rows))
		return err
	}
	refused(t, put(keyed, "id long, v string, w long", `[{"id":1,"v":"a","w":1}]`), codes.InvalidArgument, "unknown_column")
	refused(t, put(keyed, "id long, v bool", `[{"id":1,"v":true}]`), codes.InvalidArgument, "type_mismatch")
	refused(t, put(keyed, "id long, v string, n long", `[{"id":1,"v":"a","n":2147483648}]`), codes.InvalidArgument, "value_out_of_range")
	refused(t, put(keyed, "id long, v string", `[{"id":1,"v":null}]`), codes.InvalidArgument, "null_not_allowed")
	refused(t, put(keyed, "id long", `[{"id":1}]`), codes.InvalidArgument, "missing_column")
	refused(t, put(keyed, "v string", `[{"v":"a"}]`), codes.InvalidArgument, "missing_key")
	refused(t, put(table{s, db, "nothing"}, "id long", `[{"id":1}]`), codes.NotFound, "table_not_found")
	_, err := c.exchange(t, obj{"op": "lookup", "table": keyed.full()}, batch(t, schemaOf("v string"), `[{"v":"a"}]`))
	refused(t, err, codes.InvalidArgument, "missing_key")
	_, err = c.action(t, "millrace.drop_table", obj{"database": db, "table": "nothing"})
	refused(t, err, codes.NotFound, "table_not_found")
	_, err = c.action(t, "millrace.make_coffee", obj{})
	refused(t, err, codes.NotFound, "route_not_found")

	info, err := c.GetFlightInfo(within(t, patience), pathOf(log))
	require.NoError(t, err)
	ticket := bytes.Clone(info.Endpoint[0].Ticket.Ticket)
	ticket[len(ticket)/2] ^= 1
	_, err = c.get(within(t, patience), ticket)
	refused(t, err, codes.InvalidArgument, "invalid_value")
	require.Equal(t, "0", keyed.count(t, ""))
}
