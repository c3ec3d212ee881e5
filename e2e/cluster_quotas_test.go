package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// exceeded says whether an answer is that a quota is used up, which must say when to come again.
func exceeded(t *testing.T, a answer) bool {
	t.Helper()
	if a.status != http.StatusTooManyRequests {
		return false
	}
	a.problem(t, 429, "quota_exceeded")
	require.Regexp(t, `^[1-9]\d*$`, a.header.Get("Retry-After"))
	return true
}

// requireExceeded is the same of a call of Flight, which must be refused.
func requireExceeded(t *testing.T, err error) {
	t.Helper()
	st := status.Convert(err)
	require.Equal(t, codes.ResourceExhausted.String(), st.Code().String(), "%v", err)
	require.True(t, slices.ContainsFunc(st.Details(), func(d any) bool {
		retry, is := d.(*errdetails.RetryInfo)
		return is && retry.GetRetryDelay().AsDuration() >= time.Second
	}), "%v", st.Details())
}

// Quotas bind through the fronts of a cluster, each of which counts for itself, though rows are
// written and read at other processes: rows, and streams, over both doors. What is changed at
// one front holds at the other soon after. The table of the audit log has, once, what was
// allowed and what was refused at either front.
func TestClusterWithQuotas(t *testing.T) {
	c := newAccessCluster(t, "--audit-table", "ops.audit")
	const at = "/v1/databases/d/tables/t"
	c.ok(t, "root", 0, "POST", "/v1/databases", obj{"name": "d"})
	c.ok(t, "root", 0, "POST", "/v1/databases/d/tables", obj{"name": "t", "columns": columnList("id BIGINT"), "buckets": 8})
	c.ok(t, "root", 0, "POST", "/v1/grants", obj{"principal": "user:pat", "on": "d.t", "verbs": []string{"read", "write"}})
	quota := func(limits obj, id string) {
		t.Helper()
		c.ok(t, "root", 0, "PUT", "/v1/quotas/user:pat", limits, "X-Request-Id", id)
	}
	rows := func(n int) string { return strings.Repeat("{\"id\":1}\n", n) }
	write := func(user string, front, n int, headers ...string) answer {
		t.Helper()
		return c.as(t, user, front, "POST", at+"/records", rows(n), append(headers, "Content-Type", mediaNDJSON)...)
	}
	count := func() string { return c.ok(t, "root", 0, "GET", at+"/count", nil) }
	ctx := within(t, 10*time.Minute)
	flights := func(user, id string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "authorization", c.keys.bearer(t, user), "x-request-id", id)
	}
	tb := table{c.fronts[1], "d", "t"}
	conn := c.fronts[1].dial(t)
	put := func(user, id string) error {
		t.Helper()
		p, err := conn.put(flights(user, id), command(t, obj{"op": "put", "table": "d.t"}), schemaOf("id long"))
		require.NoError(t, err)
		_ = p.send(longs("id", 1, func(int, int) int64 { return 2 }), "") // what came of it the end says
		_, err = p.finish()
		return err
	}

	// Rows: what is over the quota at a front is refused there, and nothing of it is written.
	soon(t, "a grant holds at the other front", func() bool { return write("pat", 1, 10).status == 200 })
	quota(obj{"write_rows_per_s": 1}, "q-set")
	soon(t, "a quota of rows holds at the other front", func() bool { return exceeded(t, write("pat", 1, 1000)) })
	require.Equal(t, 200, write("pat", 0, 1000, "X-Request-Id", "q-first").status, "each front counts for itself")
	before := count()
	require.True(t, exceeded(t, write("pat", 0, 1, "X-Request-Id", "q-refused-0")))
	require.True(t, exceeded(t, write("pat", 1, 1, "X-Request-Id", "q-refused-1")))
	requireExceeded(t, put("pat", "q-refused-put"))
	require.Equal(t, before, count())
	require.NoError(t, put("root", "q-other"), "others are not bound by it")
	require.Equal(t, 200, write("root", 1, 1000).status)
	require.Equal(t, 200, c.as(t, "pat", 1, "GET", at+"/scan?limit=1", nil).status, "nor are reads")
	quota(obj{"streams": 1}, "q-streams")
	soon(t, "that there is no quota of rows holds at the other front", func() bool { return write("pat", 1, 1).status == 200 })
	require.Equal(t, 200, write("pat", 0, 1).status)

	// Streams: one is open, so that another is refused.
	open := func(id string) (end func() error, refused answer) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, "GET", c.fronts[1].base+at+"/changelog?from=latest", nil)
		require.NoError(t, err)
		req.Header = http.Header{"Authorization": {c.keys.bearer(t, "pat")}, "Accept": {mediaSSE}, "X-Request-Id": {id}}
		resp, err := (&http.Client{}).Do(req)
		require.NoError(t, err)
		if resp.StatusCode == 200 {
			t.Cleanup(func() { resp.Body.Close() })
			return resp.Body.Close, answer{}
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return nil, answer{resp.StatusCode, resp.Header, b, nil}
	}
	first, a := open("q-stream")
	require.NotNil(t, first, "%s", a.body)
	second, a := open("q-refused-stream")
	require.Nil(t, second)
	require.True(t, exceeded(t, a))
	_, err := conn.get(flights("pat", "q-refused-tail"), command(t, scanCommand(tb, obj{"until": "never"})).Cmd)
	requireExceeded(t, err)
	quota(obj{"streams": 2}, "q-more")
	soon(t, "a quota of more streams holds at the other front", func() bool { second, a = open(""); return second != nil || !exceeded(t, a) })
	require.NotNil(t, second, "%s", a.body)
	require.NoError(t, first())
	require.NoError(t, second())
	quota(obj{"streams": 1}, "q-less")
	require.Eventually(t, func() bool { // when those are known to have ended
		third, _ := open("")
		return third != nil
	}, patience, 10*time.Millisecond)
	c.ok(t, "root", 1, "DELETE", "/v1/quotas/user:pat", nil, "X-Request-Id", "q-gone")

	require.Equal(t, 401, c.as(t, "", 1, "GET", at, nil, "X-Request-Id", "q-nobody").status)
	require.Equal(t, 404, c.as(t, "eve", 1, "GET", at+"/count", nil, "X-Request-Id", "q-eve").status)
	require.Equal(t, 403, c.as(t, "pat", 0, "PATCH", at, obj{"ops": []obj{{"op": "set_comment", "comment": "x"}}}, "X-Request-Id", "q-alter").status)
	want := []string{
		"q-alter user:pat http alter_table alter d.t denied permission_denied",
		"q-eve user:eve http count_rows describe d.t denied database_not_found",
		"q-first user:pat http write_records write d.t allowed ok",
		"q-gone user:root http delete_quota admin * allowed ok",
		"q-nobody  http get_table  d.t  unauthenticated",
		"q-other user:root flight DoPut write d.t allowed ok",
		"q-refused-0 user:pat http write_records write d.t allowed quota_exceeded",
		"q-refused-1 user:pat http write_records write d.t allowed quota_exceeded",
		"q-refused-put user:pat flight DoPut write d.t allowed quota_exceeded",
		"q-refused-stream user:pat http get_changelog read d.t allowed quota_exceeded",
		"q-refused-tail user:pat flight DoGet read d.t allowed quota_exceeded",
		"q-set user:root http put_quota admin * allowed ok",
	}
	var got []string
	require.Eventually(t, func() bool {
		var answer struct{ Rows [][]*string }
		text := c.ok(t, "root", 0, "POST", "/v1/sql", obj{"sql": "SELECT request_id, principal, door, operation, verb, object, decision, outcome FROM ops.audit WHERE request_id LIKE 'q-%'"})
		require.NoError(t, json.Unmarshal([]byte(text), &answer))
		got = nil
		for _, r := range answer.Rows {
			line := ""
			for i, v := range r {
				if i > 0 {
					line += " "
				}
				if v != nil {
					line += *v
				}
			}
			// What else is asked for by the way, and the stream that takes longer than 10 s or not.
			if slices.Contains([]string{"q-streams", "q-more", "q-less", "q-stream"}, *r[0]) {
				continue
			}
			got = append(got, line)
		}
		slices.Sort(got)
		return len(got) >= len(want)
	}, patience, 50*time.Millisecond, "%v", &got)
	require.Equal(t, want, got)
	for _, s := range slices.Concat(c.fronts, c.workers) {
		require.NotContains(t, s.log.String(), "cannot be written", fmt.Sprint(s.flags))
	}
}
