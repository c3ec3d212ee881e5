package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A restart keeps everything: descriptors, rows, offsets, times, cursors and the numbering of tables; after kill -9 as
// after an orderly end.
func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	log := create(t, s, db, "log", "id BIGINT, v STRING", "", 3, obj{"comment": "events", "properties": obj{"owner": "me", "table.log.ttl": "7d"}})
	keyed := create(t, s, db, "keyed", "id BIGINT, m MAP<STRING, ARRAY<INT>>, r ROW<a INT, b STRING NOT NULL>", "id", 3)
	gone := create(t, s, db, "gone", "id BIGINT", "id", 1)
	for i := range 30 {
		log.write(t, fmt.Sprintf(`[{"id":%d,"v":"x%d"}]`, i, i))
		keyed.write(t, fmt.Sprintf(`[{"id":%d,"m":{"k":[%d,null]},"r":{"a":null,"b":"b%d"}}]`, i%7, i, i))
	}
	keyed.write(t, `[{"id":3}]`, `"mode":"delete"`)
	cursor := log.changelog(t, "from=earliest&limit=10").next
	s.ok(t, "DELETE", gone.path(), nil)
	goneID := s.ok(t, "GET", keyed.path(), nil)["id"]

	type picture struct {
		tables, state []string
		changes, rest []change
		offsets       string
		etag          string
	}
	look := func() picture {
		a := s.do(t, "GET", "/v1/databases/"+db+"/tables", nil)
		return picture{
			tables:  rowsOf(t, a.body, "tables"),
			state:   keyed.scan(t, nil),
			changes: append(log.allChanges(t, "earliest"), keyed.allChanges(t, "earliest")...),
			rest:    log.allChanges(t, cursor),
			offsets: log.at(t, "latest") + keyed.at(t, "latest"),
			etag:    s.do(t, "GET", keyed.path(), nil).header.Get("ETag"),
		}
	}
	before := look()
	require.Len(t, before.tables, 2)
	require.Len(t, before.rest, 20)
	s.kill()
	s.restart(t)
	require.Equal(t, before, look(), "after kill -9")
	require.Equal(t, 0, s.drain(t))
	s.restart(t)
	require.Equal(t, before, look(), "after SIGTERM")
	next := create(t, s, db, "gone", "id BIGINT", "id", 1)
	require.NotEqual(t, goneID, s.ok(t, "GET", next.path(), nil)["id"], "an id is never used again")
	log.write(t, `[{"id":30}]`)
	require.Len(t, log.allChanges(t, cursor), 21)
}

// A second server on the same data directory is refused at once and disturbs nothing.
func TestSecondServerRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 1)
	second := exec.CommandContext(within(t, 20*time.Second), binaryPath, "serve", "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0", "--data-dir", s.dir)
	second.Env = bareEnviron()
	var said bytes.Buffer
	second.Stdout, second.Stderr = &said, &said
	err := second.Run()
	_, exited := errors.AsType[*exec.ExitError](err)
	require.True(t, exited, "%v: %s", err, said.String())
	require.Equal(t, 1, second.ProcessState.ExitCode(), said.String())
	require.Contains(t, said.String(), s.dir, "the message names the directory")
	tb.write(t, `[{"id":1}]`)
	require.Equal(t, "1", tb.count(t, ""))
}

// SIGTERM drains: writers see their acknowledgements or a refusal, open streams end with a reason, the process ends
// with 0, and the next start has every acknowledged row and the streams' cursors.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 2)
	tb.write(t, `[{"id":-1}]`)
	sub, err := tb.subscribe(within(t, patience), url.Values{"from": {"earliest"}}, "")
	require.NoError(t, err)
	defer sub.close()
	c := s.dial(t)
	info, err := c.GetFlightInfo(within(t, patience), command(t, scanCommand(tb, obj{"from": "latest", "until": "never"})))
	require.NoError(t, err)
	tail, err := c.get(within(t, patience), info.Endpoint[0].Ticket.Ticket)
	require.NoError(t, err)
	defer tail.cancel()

	var acked atomic.Int64
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				a, err := s.send("POST", tb.path()+"/records", recordsBody(fmt.Sprintf(`[{"id":%d}]`, w*1_000_000+i)))
				switch {
				case err == nil && a.status == http.StatusOK:
					acked.Add(1)
				case err == nil && a.status != http.StatusServiceUnavailable:
					t.Errorf("a write while draining: %d %s", a.status, a.body)
					return
				default:
					return
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	seen := 0
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			if _, err := sub.change(t); err != nil {
				var said *statusError
				if !errors.Is(err, io.EOF) && !errors.As(err, &said) {
					t.Errorf("the event stream broke off: %v", err)
				}
				return
			}
			seen++
		}
	})
	var tailErr error
	ended.Go(func() {
		for tailErr == nil {
			_, tailErr = tail.next()
		}
	})
	require.Equal(t, 0, s.drain(t))
	require.NotContains(t, s.log.String(), "requests broken off", "the drain waited for streams without an end")
	wg.Wait()
	ended.Wait()
	require.Equal(t, codes.Unavailable.String(), status.Code(tailErr).String(), "%v", tailErr)

	s.restart(t)
	require.Equal(t, fmt.Sprint(acked.Load()+1), tb.count(t, ""))
	rest := tb.allChanges(t, sub.lastID)
	require.EqualValues(t, acked.Load()+1, seen+len(rest), "the stream resumes from its last id")
}

// Liveness and readiness are open, documents need no network, and an answer's request id is the caller's.
func TestService(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs/errors", "/v1/info"} {
		a := s.do(t, "GET", path, nil)
		require.Equal(t, 200, a.status, path)
		require.NotEmpty(t, a.body, path)
	}
	for _, page := range []string{"/docs", "/docs/errors"} {
		require.NotContains(t, string(s.do(t, "GET", page, nil).body), `src="http`, page)
	}
	require.Equal(t, "abc-123", s.do(t, "GET", "/v1/info", nil, "X-Request-Id", "abc-123").header.Get("X-Request-Id"))
	require.NotEmpty(t, s.do(t, "GET", "/v1/info", nil).header.Get("X-Request-Id"))
	info := s.ok(t, "GET", "/v1/info", nil)
	require.Contains(t, info["flight_address"], s.flight)
	limits := info["limits"].(obj)
	for name, want := range map[string]string{"json_body_rows": "10000", "json_body_bytes": "16777216", "lookup_keys": "1000", "row_bytes": "1048576", "key_bytes": "4096", "columns": "2000", "nesting": "16"} {
		require.Equal(t, want, fmt.Sprint(limits[name]), name)
	}
	req, err := s.request("GET", "/v1/info", nil)
	require.NoError(t, err)
	req.Host = "evil.example"
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.GreaterOrEqual(t, resp.StatusCode, 400, "without authentication only loopback names are served")
}
