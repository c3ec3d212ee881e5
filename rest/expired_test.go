package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/rest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/storagetest"
)

// node is the API over a real catalog and worker in memory, whose clock a test sets.
type node struct {
	t     *testing.T
	clock *storagetest.Clock
	w     *storage.Worker
	api   http.Handler
}

type noSigner struct{}

func (noSigner) Sign(p []byte) (string, error)   { return string(p), nil }
func (noSigner) Verify(s string) ([]byte, error) { return []byte(s), nil }

func newNode(t *testing.T) *node {
	ctx, fs, quiet := context.Background(), vfs.NewMem(), slog.New(slog.DiscardHandler)
	n := &node{t: t, clock: storagetest.NewClock()}
	cat, err := catalog.Open(ctx, catalog.Options{Dir: "catalog", Shards: 1, FS: fs, Clock: n.clock.Now, Logger: quiet})
	require.NoError(t, err)
	n.w, err = storage.Open(ctx, storage.Options{Dir: "data", Shards: 1, FS: fs, Clock: n.clock, Logger: quiet, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	r := router.New(router.Options{Catalog: cat, Owners: router.Local(n.w.Shards()), Signer: noSigner{}, Clock: n.clock, Logger: quiet, Registerer: prometheus.NewRegistry()})
	n.api = rest.New(rest.Options{Catalog: cat, Router: r, Clock: n.clock, Logger: quiet, Draining: make(chan struct{})})
	t.Cleanup(func() {
		require.NoError(t, n.w.Close(ctx))
		require.NoError(t, cat.Close())
	})
	return n
}

func (n *node) request(method, path, accept, body string) *http.Request {
	r := httptest.NewRequestWithContext(n.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	return r
}

func (n *node) do(method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	n.api.ServeHTTP(w, n.request(method, path, "application/json", body))
	return w
}

func (n *node) must(method, path, body string) {
	n.t.Helper()
	w := n.do(method, path, body)
	require.Less(n.t, w.Code, 300, "%s", w.Body)
}

func (n *node) expire() {
	s := n.w.Shards()[0]
	require.NoError(n.t, s.Expire(context.Background()))
	require.NoError(n.t, s.Checkpoint(context.Background()))
}

// slowClient lets something happen before it takes the first row.
type slowClient struct {
	*httptest.ResponseRecorder
	once   sync.Once
	before func()
}

func (c *slowClient) Write(b []byte) (int, error) {
	if strings.Contains(string(b), `"k":`) {
		c.once.Do(c.before)
	}
	return c.ResponseRecorder.Write(b)
}

// problem is the part of a problem that says what a log holds.
type problem struct {
	Code    string
	Offsets map[string]struct{ Start, End int64 }
}

// Shows that a read of records that have expired is told so in every form, with what
// the log holds: as an answer when it begins, and within a stream when it was too slow.
func TestReadsBelowTheStart(t *testing.T) {
	const table = "/v1/databases/d/tables/t"
	n := newNode(t)
	n.must("POST", "/v1/databases", `{"name":"d"}`)
	n.must("POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"k","type":"BIGINT"},{"name":"v","type":"STRING"}],"properties":{"table.log.ttl":"1min"}}`)
	big := strings.Repeat("x", 450<<10)
	write := func(rows int) {
		for k := range rows {
			n.must("POST", table+"/records", fmt.Sprintf(`{"rows":[{"k":%d,"v":"%s"}]}`, k, big))
		}
	}
	held := func(start, end int64) map[string]struct{ Start, End int64 } {
		return map[string]struct{ Start, End int64 }{"0": {start, end}}
	}
	at := int64(0)
	for _, c := range []struct {
		name, method, path, accept, body string
		of                               func(out string) string
	}{
		{"NDJSON", "POST", table + "/scan", "application/x-ndjson", `{"columns":["k"]}`, func(out string) string {
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Len(t, lines, 3)
			return strings.TrimSuffix(strings.TrimPrefix(lines[2], `{"__error":`), "}")
		}},
		{"events", "GET", table + "/changelog?from=earliest&columns=k", "text/event-stream", "", func(out string) string {
			_, data, ok := strings.Cut(out, "event: problem\ndata: ")
			require.True(t, ok, "%s", out)
			require.Equal(t, 2, strings.Count(out, "event: insert"))
			return data
		}},
	} {
		write(3) // two of them are read as one
		w := &slowClient{ResponseRecorder: httptest.NewRecorder(), before: func() {
			n.clock.Add(2 * time.Minute)
			n.expire()
			n.clock.Add(2 * time.Hour)
			n.expire()
		}}
		n.api.ServeHTTP(w, n.request(c.method, c.path, c.accept, c.body))
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		at += 3
		var p problem
		require.NoError(t, json.Unmarshal([]byte(c.of(w.Body.String())), &p), "%s: %s", c.name, w.Body)
		require.Equal(t, problem{"offset_out_of_range", held(at, at)}, p, c.name)
	}

	// An Arrow stream is broken off without its end mark.
	write(3)
	w := &slowClient{ResponseRecorder: httptest.NewRecorder()}
	func() {
		defer func() { require.Equal(t, http.ErrAbortHandler, recover()) }()
		r := n.request("POST", table+"/scan", "application/vnd.apache.arrow.stream", `{"columns":["v"]}`)
		n.api.ServeHTTP(expiring{w, n}, r)
	}()
	require.NotContains(t, w.Body.String()[w.Body.Len()-8:], "\xff\xff\xff\xff\x00\x00\x00\x00")
	at += 3

	// What begins below the start is refused before anything is sent.
	write(1)
	for _, accept := range []string{"application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/event-stream"} {
		w := httptest.NewRecorder()
		n.api.ServeHTTP(w, n.request("GET", table+"/changelog?from=%7B%220%22:5%7D", accept, ""))
		require.Equal(t, http.StatusGone, w.Code, "%s", accept)
		var p problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Equal(t, problem{"offset_out_of_range", held(at, at+1)}, p, accept)
	}
}

// expiring lets all records expire and go before the client takes a large piece.
type expiring struct {
	*slowClient
	n *node
}

func (c expiring) Write(b []byte) (int, error) {
	if len(b) > 100<<10 {
		c.once.Do(func() {
			c.n.clock.Add(2 * time.Minute)
			c.n.expire()
			c.n.clock.Add(2 * time.Hour)
			c.n.expire()
		})
	}
	return c.ResponseRecorder.Write(b)
}
