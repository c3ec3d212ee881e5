package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func (g *guarded) quota(principal, body string) {
	g.t.Helper()
	g.must("root", "PUT", "/v1/quotas/"+principal, body)
}

// flightAs is the context of calls of a user.
func (g *guarded) flightAs(t *testing.T, user string) context.Context {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", g.bearer(user)), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// requireHint is for an answer that a quota is used up, which says when to come again.
func requireHint(t *testing.T, what string, code int, answer string, h http.Header) {
	t.Helper()
	require.Equal(t, 429, code, "%s: %s", what, answer)
	require.Contains(t, answer, "quota_exceeded", what)
	require.Regexp(t, `^[1-9]\d*$`, h.Get("Retry-After"), what)
}

// requireFlightHint is the same of a call of Flight.
func requireFlightHint(t *testing.T, what string, err error) {
	t.Helper()
	st := status.Convert(err)
	require.Equal(t, "ResourceExhausted", st.Code().String(), "%s: %v", what, err)
	hint := false
	for _, d := range st.Details() {
		if retry, is := d.(*errdetails.RetryInfo); is {
			hint = retry.RetryDelay.AsDuration() >= time.Second
		}
	}
	require.True(t, hint, "%s: %v", what, st.Details())
}

// putOne writes a row by DoPut.
func putOne(ctx context.Context, t *testing.T, fl flight.Client, rows int) error {
	t.Helper()
	put, err := fl.DoPut(ctx)
	require.NoError(t, err)
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	w := flight.NewRecordWriter(put, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"d", "u"}})
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
	}
	if w.Write(b.NewRecordBatch()) == nil { // else the call has ended, and Recv says why
		_ = w.Close()
		_ = put.CloseSend()
	}
	for {
		if _, err = put.Recv(); err != nil {
			break
		}
	}
	if err == io.EOF { //nolint:errorlint // as gRPC gives it
		return nil
	}
	return err
}

// Quotas are the administrator's to see and set, and are what was set.
func TestQuotasAreManaged(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	require.JSONEq(t, `{}`, g.must("root", "GET", "/v1/quotas/user:pat", ""))
	g.quota("user:pat", `{"write_rows_per_s":5,"streams":2}`)
	g.quota("default", `{"read_bytes_per_s":7}`)
	g.quota("user:pat", `{"write_rows_per_s":6}`)
	require.JSONEq(t, `{"write_rows_per_s":6}`, g.must("root", "GET", "/v1/quotas/user:pat", ""))
	require.JSONEq(t, `{"quotas":[{"principal":"user:pat","write_rows_per_s":6}],"next_page_token":"1"}`, g.must("root", "GET", "/v1/quotas?limit=1", ""))
	require.JSONEq(t, `{"quotas":[{"principal":"default","read_bytes_per_s":7}]}`, g.must("root", "GET", "/v1/quotas?limit=1&page_token=1", ""))
	for want, asked := range map[string]int{
		"PUT /v1/quotas/pat {}":                              422,
		"GET /v1/quotas/pat":                                 422,
		"DELETE /v1/quotas/pat":                              422,
		`PUT /v1/quotas/user:pat {"streams":-1}`:             422,
		`PUT /v1/quotas/user:pat {"speed":1}`:                422,
		`PUT /v1/quotas/user:pat {"streams":"many"}`:         422,
		`PUT /v1/quotas/user:pat {`:                          400,
		"GET /v1/quotas?page_token=x":                        422,
		"GET /v1/quotas?limit=0":                             422,
		`PUT /v1/quotas/user:pat?x=1 {"write_rows_per_s":1}`: 422,
	} {
		method, rest, _ := strings.Cut(want, " ")
		path, body, _ := strings.Cut(rest, " ")
		code, answer := g.as("root", method, path, body)
		require.Equal(t, asked, code, "%s: %s", want, answer)
	}
	g.grant("group:pats", "d", "admin")
	for _, asked := range []string{"GET /v1/quotas", "GET /v1/quotas/user:pat", "PUT /v1/quotas/user:pat", "DELETE /v1/quotas/user:pat", "GET /v1/quotas/pat"} {
		method, path, _ := strings.Cut(asked, " ")
		code, answer := g.as("pat", method, path, map[string]string{"PUT": `{}`}[method])
		require.Equal(t, 403, code, "%s: %s", asked, answer)
	}
	for range 2 {
		g.must("root", "DELETE", "/v1/quotas/user:pat", "")
	}
	require.JSONEq(t, `{"quotas":[{"principal":"default","read_bytes_per_s":7}]}`, g.must("root", "GET", "/v1/quotas", ""))
}

// Who has written as much as he may is refused through every door, with a hint, and writes
// nothing; others are not, and he is not when the quota is gone.
func TestQuotaOfWrites(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.grant("group:pats", "d", "read,write")
	fl := g.flightClient(t)
	row := `{"a":1}`
	many := `{"rows":[` + strings.Repeat(row+",", 4999) + row + `]}`
	for _, limits := range []string{`{"write_rows_per_s":1}`, `{"write_bytes_per_s":1}`} {
		g.quota("user:pat", `{}`)
		g.quota("user:pat", limits)
		require.Eventually(t, func() bool { // of the round before something may be overdrawn
			code, _ := g.as("pat", "POST", "/v1/databases/d/tables/u/records", many)
			return code == 200
		}, time.Minute, time.Second)
		before := g.must("root", "GET", "/v1/databases/d/tables/u/count", "")
		for _, o := range []struct{ method, path, body, media string }{
			{"POST", "/v1/databases/d/tables/u/records", `{"rows":[{"a":1}]}`, "application/json"},
			{"POST", "/v1/databases/d/tables/u/records", row, "application/x-ndjson"},
			{"POST", "/v1/databases/d/tables/u/records", "", "application/vnd.apache.arrow.stream"},
			{"PUT", "/v1/databases/d/tables/t/rows/9", `{"a":9,"b":"x","c":"y"}`, "application/json"},
			{"PATCH", "/v1/databases/d/tables/t/rows/9", `{"b":"x"}`, "application/json"},
			{"DELETE", "/v1/databases/d/tables/t/rows/1", "", "application/json"},
			{"POST", "/v1/databases/d/tables/t/lookup", `{"keys":[{"a":77}],"insert_if_absent":true}`, "application/json"},
			{"POST", "/v1/sql", sqlOf("INSERT INTO d.u VALUES (1)"), "application/json"},
			{"POST", "/v1/sql", sqlOf("DELETE FROM d.t WHERE a = 1"), "application/json"},
		} {
			req, err := http.NewRequestWithContext(t.Context(), o.method, "http://"+g.addr.HTTP+o.path, strings.NewReader(o.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", o.media)
			req.Header.Set("Authorization", g.bearer("pat"))
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			answer, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			requireHint(t, limits+o.method+o.path+o.body, resp.StatusCode, string(answer), resp.Header)
		}
		requireFlightHint(t, "DoPut", putOne(g.flightAs(t, "pat"), t, fl, 1))
		_, err := actWith(t, fl, "millrace.write_records", `{"database":"d","table":"u","rows":[{"a":1}]}`, g.bearer("pat"))
		requireFlightHint(t, "action", err)
		require.Equal(t, before, g.must("root", "GET", "/v1/databases/d/tables/u/count", ""))
		require.Contains(t, g.must("root", "GET", "/v1/databases/d/tables/t/rows/1", ""), "secret")
		code, answer := g.as("root", "GET", "/v1/databases/d/tables/t/rows/9", "")
		require.Equal(t, 404, code, answer)
		g.must("pat", "GET", "/v1/databases/d/tables/t/rows/1", "") // of which there is no quota
		g.must("root", "POST", "/v1/databases/d/tables/u/records", many)
		require.NoError(t, putOne(g.flightAs(t, "root"), t, fl, 5000))
		g.must("root", "DELETE", "/v1/quotas/user:pat", "")
		g.must("pat", "POST", "/v1/databases/d/tables/u/records", `{"rows":[{"a":1}]}`)
		require.NoError(t, putOne(g.flightAs(t, "pat"), t, fl, 1))
	}
}

// actWith runs an action with a body.
func actWith(t *testing.T, c flight.Client, action, body, authorization string) ([]byte, error) {
	t.Helper()
	s, err := c.DoAction(metadata.AppendToOutgoingContext(t.Context(), "authorization", authorization), &flight.Action{Type: action, Body: []byte(body)})
	require.NoError(t, err)
	res, err := s.Recv()
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// So it is with reads.
func TestQuotaOfReads(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.grant("group:pats", "d", "read,write")
	fl := g.flightClient(t)
	g.must("root", "POST", "/v1/databases/d/tables/u/records", `{"rows":[`+strings.Repeat(`{"a":1},`, 9999)+`{"a":1}]}`)
	const table = "/v1/databases/d/tables/t"
	g.quota("user:pat", `{"read_bytes_per_s":1}`)
	g.must("pat", "GET", "/v1/databases/d/tables/u/scan", "")
	for _, o := range []struct{ method, path, body, accept string }{
		{"GET", "/v1/databases/d/tables/u/scan", "", "application/json"},
		{"GET", "/v1/databases/d/tables/u/scan", "", "application/x-ndjson"},
		{"GET", "/v1/databases/d/tables/u/scan", "", "application/vnd.apache.arrow.stream"},
		{"GET", table + "/changelog?from=earliest&wait=0s", "", "application/json"},
		{"GET", table + "/changelog?from=earliest", "", "text/event-stream"},
		{"GET", table + "/rows/1", "", "application/json"},
		{"GET", table + "/count?filter=b%3D%27x%27", "", "application/json"},
		{"POST", table + "/lookup", `{"keys":[{"a":1}]}`, "application/json"},
		{"POST", table + "/prefix-lookup", `{"prefix":{"a":1}}`, "application/json"},
		{"POST", "/v1/sql", sqlOf("SELECT * FROM d.t"), "application/json"},
		{"POST", "/v1/sql", sqlOf("SELECT b FROM d.t WHERE a = 1"), "application/json"},
		{"POST", "/v1/sql", sqlOf("SELECT MAX(b) FROM d.t"), "application/x-ndjson"},
	} {
		code, answer, h := g.ask(t, o.method, o.path, o.body, "Authorization", g.bearer("pat"), "Accept", o.accept)
		requireHint(t, o.method+o.path+o.body, code, answer, h)
	}
	for _, ticket := range []string{`{"op":"scan","table":"d.u"}`, `{"op":"scan","table":"d.u$changelog","from":"earliest","until":"never"}`} {
		s, err := fl.DoGet(g.flightAs(t, "pat"), &flight.Ticket{Ticket: []byte(ticket)})
		require.NoError(t, err)
		_, err = s.Recv()
		requireFlightHint(t, ticket, err)
	}
	g.must("pat", "GET", table, "") // what tells of the table is not charged
	g.must("pat", "POST", "/v1/databases/d/tables/u/records", `{"rows":[{"a":1}]}`)
	g.must("root", "GET", "/v1/databases/d/tables/u/scan", "")
	g.must("root", "DELETE", "/v1/quotas/user:pat", "")
	g.must("pat", "GET", "/v1/databases/d/tables/u/scan", "")
}

// Streams are counted through both doors, until they end.
func TestQuotaOfStreams(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.grant("group:pats", "d", "read,write")
	g.quota("default", `{"streams":1}`)
	fl := g.flightClient(t)
	events := func(ctx context.Context, user string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr.HTTP+"/v1/databases/d/tables/u/changelog?from=earliest", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", g.bearer(user))
		req.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		return resp
	}
	open := events(t.Context(), "pat")
	require.Equal(t, 200, open.StatusCode)
	for _, accept := range []string{"text/event-stream", "application/x-ndjson", "application/vnd.apache.arrow.stream"} {
		code, answer, h := g.ask(t, "GET", "/v1/databases/d/tables/u/changelog", "", "Authorization", g.bearer("pat"), "Accept", accept)
		requireHint(t, accept, code, answer, h)
	}
	g.must("pat", "POST", "/v1/databases/d/tables/u/records", `{"rows":[{"a":1}]}`) // a document is no stream
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+g.addr.HTTP+"/v1/databases/d/tables/u/records", strings.NewReader(`{"a":1}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", g.bearer("pat"))
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	requireHint(t, "a body of lines", resp.StatusCode, string(body), resp.Header)
	requireFlightHint(t, "DoPut", putOne(g.flightAs(t, "pat"), t, fl, 1))
	tail, err := fl.DoGet(g.flightAs(t, "pat"), &flight.Ticket{Ticket: []byte(`{"op":"scan","table":"d.u$changelog","until":"never"}`)})
	require.NoError(t, err)
	_, err = tail.Recv()
	requireFlightHint(t, "tail", err)
	s, err := fl.DoGet(g.flightAs(t, "pat"), &flight.Ticket{Ticket: []byte(`{"op":"scan","table":"d.u"}`)})
	require.NoError(t, err)
	_, err = s.Recv()
	require.NoError(t, err, "a bounded read is none of them")
	other := events(t.Context(), "root")
	require.Equal(t, 200, other.StatusCode)
	require.NoError(t, other.Body.Close())
	require.NoError(t, open.Body.Close())
	require.Eventually(t, func() bool { return putOne(g.flightAs(t, "pat"), t, fl, 1) == nil }, time.Minute, 100*time.Millisecond)
}

// A stream of rows is slowed down to its quota and loses nothing; what it waits for is told.
func TestQuotaSlowsStreams(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.grant("group:pats", "d", "read,write")
	g.quota("group:pats", `{"write_rows_per_s":10000}`)
	began := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+g.addr.HTTP+"/v1/databases/d/tables/u/records", strings.NewReader(strings.Repeat("{\"a\":1}\n", 30_000)))
	require.NoError(t, err)
	req.Header.Set("Authorization", g.bearer("pat"))
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(answer), `"accepted":30000`)
	require.GreaterOrEqual(t, time.Since(began), 900*time.Millisecond)

	// A tail waits, and goes on when the quota is gone.
	g.quota("user:pat", `{"read_bytes_per_s":1}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err = http.NewRequestWithContext(ctx, "GET", "http://"+g.addr.HTTP+"/v1/databases/d/tables/u/changelog?from=earliest", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", g.bearer("pat"))
	req.Header.Set("Accept", "application/x-ndjson")
	rows, err := http.DefaultClient.Do(req) //nolint:bodyclose // the line after next does
	require.NoError(t, err)
	defer rows.Body.Close()
	require.Equal(t, 200, rows.StatusCode)
	lines := make(chan int)
	go func() {
		defer close(lines)
		sc := bufio.NewScanner(rows.Body)
		for n := 1; n <= 30_000 && sc.Scan(); n++ {
			lines <- n
		}
	}()
	seen := <-lines
	g.must("root", "DELETE", "/v1/quotas/user:pat", "")
	for n := range lines {
		seen = n
	}
	require.Equal(t, 30_000, seen, fmt.Sprint(ctx.Err()))
}
