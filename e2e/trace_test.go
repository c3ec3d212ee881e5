package e2e

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/cluster/natstest"
)

// spanTaker is an OpenTelemetry collector that keeps what it is sent.
type spanTaker struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans map[string][]takenSpan // by trace
	raw   strings.Builder
}

type takenSpan struct {
	*otlp.Span

	instance string
}

func (c *spanTaker) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.WriteString(r.String())
	for _, rs := range r.GetResourceSpans() {
		instance := ""
		for _, kv := range rs.GetResource().GetAttributes() {
			if kv.GetKey() == "service.instance.id" {
				instance = kv.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				id := hex.EncodeToString(s.GetTraceId())
				c.spans[id] = append(c.spans[id], takenSpan{s, instance})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// ServeHTTP is OTLP over HTTP.
func (c *spanTaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	m := &collector.ExportTraceServiceRequest{}
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(b, m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = c.Export(r.Context(), m) // it does not fail
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// newSpanTaker starts one that takes both forms.
func newSpanTaker(t *testing.T) (c *spanTaker, grpcURL, httpURL string) {
	t.Helper()
	c = &spanTaker{spans: map[string][]takenSpan{}}
	g, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gs, hs := grpc.NewServer(), &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	collector.RegisterTraceServiceServer(gs, c)
	go func() { _ = gs.Serve(g) }()
	go func() { _ = hs.Serve(h) }()
	t.Cleanup(func() {
		gs.Stop()
		_ = hs.Close()
	})
	return c, "grpc://" + g.Addr().String(), "http://" + h.Addr().String()
}

// chain waits for a span of a trace by a process whose forebears have these names, the
// nearest first, the last of which is a child of the caller's span.
func (c *spanTaker) chain(t *testing.T, trace, caller string, names ...string) []takenSpan {
	t.Helper()
	var found []takenSpan
	t.Cleanup(func() {
		if t.Failed() {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, s := range c.spans[trace] {
				t.Logf("%s: %s %x of %x", s.instance, s.GetName(), s.GetSpanId(), s.GetParentSpanId())
			}
		}
	})
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		byID := map[string]takenSpan{}
		for _, s := range c.spans[trace] {
			byID[hex.EncodeToString(s.GetSpanId())] = s
		}
		for _, s := range c.spans[trace] {
			found = nil
			for ok := true; ok; s, ok = byID[hex.EncodeToString(s.GetParentSpanId())] {
				found = append(found, s)
			}
			got := make([]string, len(found))
			for i, s := range found {
				got[i] = s.GetName()
			}
			if slices.Equal(got, names) && hex.EncodeToString(found[len(found)-1].GetParentSpanId()) == caller {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond, "no span %v", names)
	return found
}

// tasks says whether a process did something by itself, and within that something else.
// REQUIRES: c.mu is held.
func (c *spanTaker) tasks(instance, task, within string) bool {
	for _, all := range c.spans {
		for _, s := range all {
			if s.GetName() != task || s.instance != instance || len(s.GetParentSpanId()) > 0 {
				continue
			}
			if within == "" || slices.ContainsFunc(all, func(in takenSpan) bool {
				return in.GetName() == within && string(in.GetParentSpanId()) == string(s.GetSpanId())
			}) {
				return true
			}
		}
	}
	return false
}

// In a cluster of processes a request is one trace, its caller's: from the front to the
// owner of the shard, its log and back, through both doors; lines of both processes'
// logs name the trace and the request, and no span has a value of a row. Rounds to the lake
// and what shards do unasked are traces of their own, with their calls to the object store.
func TestTraces(t *testing.T) {
	t.Parallel()
	c, byGRPC, byHTTP := newSpanTaker(t)
	nats, err := natstest.Start(t.Context(), natstest.Options{Servers: 1, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(nats.Close)
	dir := t.TempDir()
	common := []string{
		"--nats-url", nats.URLs(), "--shards", "2", "--log-max-size", "1GiB", "--insecure-nats", "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0",
		"--remote-uri", "file://" + dir + "/remote", "--lake-uri", "file://" + dir + "/lake", "--log-level", "debug", "--log-format", "json",
	}
	start := func(name, roles, endpoint string) *server {
		s := &server{dir: filepath.Join(dir, name), flags: append([]string{"--worker-name", name, "--roles", roles, "--otlp-endpoint", endpoint}, common...), log: &tailBuffer{all: true}}
		require.NoError(t, s.launchAlone())
		t.Cleanup(s.kill)
		return s
	}
	worker := start("w1", "worker", byHTTP)
	front := start("f1", "front,tier", byGRPC)

	db := newDB(t, front)
	tb := create(t, front, db, "t", "id BIGINT, v STRING", "id", 2)
	const trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	head := http.Header{"Traceparent": {"00-" + trace + "-" + caller + "-01"}, "X-Request-Id": {"req-of-trace"}, "Content-Type": {"application/json"}}
	send := func(method, path, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, front.base+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header = head.Clone()
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, _ = io.ReadAll(resp.Body)
		return resp.StatusCode
	}
	const base = "/v1/databases/{database}/tables/{table}"
	at := "/v1/databases/" + db + "/tables/t"
	require.Equal(t, 200, send("POST", at+"/records", `{"rows":[{"id":1,"v":"canary-value"}]}`))
	spans := c.chain(t, trace, caller, "log append", "shard write", "shardrpc write", "call write", "POST "+base+"/records")
	require.Equal(t, []string{"w1", "w1", "w1", "f1", "f1"}, []string{spans[0].instance, spans[1].instance, spans[2].instance, spans[3].instance, spans[4].instance})
	require.Equal(t, 200, send("GET", at+"/rows/1", ""))
	c.chain(t, trace, caller, "shardrpc lookup", "call lookup", "GET "+base+"/rows/{key}")
	require.Equal(t, 200, send("POST", at+"/scan", `{"filter":"v = 'canary-value'"}`))
	c.chain(t, trace, caller, "shardrpc read", "call read", "POST "+base+"/scan")
	require.Equal(t, 404, send("GET", "/v1/databases/"+db+"/tables/none", ""))
	failed := c.chain(t, trace, caller, "GET "+base)[0]
	require.Equal(t, "table_not_found", failed.GetStatus().GetMessage())

	// Flight: its own trace, so that the names are found apart.
	const other = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+other+"-"+caller+"-01", "x-request-id", "flight-of-trace")
	_, err = front.dial(t).GetFlightInfo(ctx, pathOf(tb))
	require.NoError(t, err)
	c.chain(t, other, caller, "shardrpc look", "call look", "flight GetFlightInfo")

	// What each process logs of it names both ids.
	front.says(t, `"request_id":"req-of-trace","trace_id":"`+trace+`"`)
	create(t, front, db, "l", "id BIGINT", "", 1, obj{"properties": obj{"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}}).write(t, `[{"id":1}]`)
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.tasks("f1", "lake round", "objstore create") && c.tasks("w1", "shard open", "")
	}, patience, 50*time.Millisecond, "no round")
	worker.says(t, `"ready"`)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NotContains(t, c.raw.String(), "canary-value")
}
