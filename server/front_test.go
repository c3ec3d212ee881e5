package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

type testFront struct {
	*front

	now  atomic.Int64
	base string
	addr string
}

func (f *testFront) advance(d time.Duration) { f.now.Add(int64(d)) }

// newTestFront serves api, nil for none yet, on a port of its own.
func newTestFront(t *testing.T, api http.Handler) *testFront {
	t.Helper()
	f := &testFront{}
	clock := func() time.Time { return time.Now().Add(time.Duration(f.now.Load())) }
	h := newHealth(clock)
	log := slog.New(slog.DiscardHandler)
	f.front = newFront(h, newMetrics("v1.2.3", []string{"insecure"}, h, func() int64 { return 0 }), log, clock, auth.Off{}, false)
	if api != nil {
		f.serveAPI(api)
		h.enter(serving)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = newHTTPServer(f.handler(), log)
	srv.Start()
	t.Cleanup(srv.Close)
	f.base, f.addr = srv.URL, srv.Listener.Addr().String()
	return f
}

func (f *testFront) get(t *testing.T, path string, headers ...string) (int, http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	_ = json.Unmarshal(b, &m) // not everything is JSON
	if m == nil {
		m = map[string]any{"text": string(b)}
	}
	return resp.StatusCode, resp.Header, m
}

func okAPI() http.Handler {
	r := chi.NewRouter()
	r.Get("/v1/things/{thing}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"ok":true}`) })
	return r
}

// Liveness is good from the start unless a component is red; readiness only while
// work is taken; work is refused before and after, and says when to come again.
func TestPhases(t *testing.T) {
	f := newTestFront(t, nil)
	var broken error
	f.health.watch("disk", func() error { return broken })
	expect := func(when string, live, ready int, status string, work int, code string) {
		t.Helper()
		if got, _, m := f.get(t, "/healthz"); got != live || m["uptime_ms"] == nil {
			t.Errorf("%s: healthz %d %v", when, got, m)
		}
		if got, _, m := f.get(t, "/readyz"); got != ready || m["status"] != status {
			t.Errorf("%s: readyz %d %v", when, got, m)
		}
		got, h, m := f.get(t, "/v1/things/1")
		if got != work || code != "" && (m["code"] != code || h.Get("Retry-After") == "" || m["request_id"] == "" || h.Get("Content-Type") != "application/problem+json") {
			t.Errorf("%s: work %d %v %v", when, got, m, h)
		}
	}
	expect("starting", 200, 503, "starting", 503, "unavailable")
	f.serveAPI(okAPI())
	f.health.enter(serving)
	expect("serving", 200, 200, "ok", 200, "")
	broken = errors.New("fsync failed")
	expect("broken", 503, 503, "failing", 200, "")
	if _, _, m := f.get(t, "/healthz"); m["detail"] != "disk: fsync failed" {
		t.Errorf("healthz says %v", m)
	}
	broken = nil
	f.health.enter(draining)
	expect("draining", 200, 503, "draining", 503, "draining")
}

// Draining waits for the work under way, and not longer than it is given.
func TestDrained(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := newTestFront(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.get(t, "/v1/slow")
	}()
	<-entered
	f.health.enter(draining)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := f.drained(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with work under way: %v", err)
	}
	close(leave)
	if err := f.drained(t.Context()); err != nil {
		t.Errorf("without work: %v", err)
	}
	<-done
}

// Only names of this machine are answered, in any spelling of theirs.
func TestHosts(t *testing.T) {
	f := newTestFront(t, okAPI())
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:80": 200, "localhost.": 200, "app.localhost:8080": 200, "127.0.0.1": 200, "127.1.2.3:80": 200, "[::1]:80": 200, "[::1]": 200,
		"evil.example": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403, "0.0.0.0:80": 403, "[::]": 403, "notlocalhost": 403,
	} {
		if got, _, m := f.get(t, "/v1/things/1", "Host", host); got != want {
			t.Errorf("host %s: %d %v, want %d", host, got, m, want)
		}
		if got, _, _ := f.get(t, "/metrics", "Host", host); got != want {
			t.Errorf("metrics by host %s: %d, want %d", host, got, want)
		}
		if got, _, _ := f.get(t, "/healthz", "Host", host); got != 200 {
			t.Errorf("healthz by host %s: %d", host, got)
		}
	}
	f.anyHost = true
	if got, _, _ := f.get(t, "/v1/things/1", "Host", "evil.example"); got != 200 {
		t.Errorf("insecure: %d", got)
	}
}

// A good request id comes back; a bad or missing one is replaced.
func TestRequestIDs(t *testing.T) {
	f := newTestFront(t, okAPI())
	for _, id := range []string{"abc-123", strings.Repeat("x", 128), "a/b:c=d+e"} {
		if _, h, _ := f.get(t, "/v1/things/1", trace.HeaderRequestID, id); h.Get(trace.HeaderRequestID) != id {
			t.Errorf("%q came back as %q", id, h.Get(trace.HeaderRequestID))
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 129), "a b", "a\tb", "é", `a"b`, `a\b`} {
		if _, h, _ := f.get(t, "/v1/things/1", trace.HeaderRequestID, id); len(h.Get(trace.HeaderRequestID)) != 36 {
			t.Errorf("%q came back as %q", id, h.Get(trace.HeaderRequestID))
		}
	}
}

// Requests are counted by the pattern of their route, never by what is in the path.
func TestMetrics(t *testing.T) {
	f := newTestFront(t, okAPI())
	for _, p := range []string{"/v1/things/1", "/v1/things/2", "/nowhere", "/nowhere/else", "/healthz"} {
		f.get(t, p)
	}
	_, _, m := f.get(t, "/metrics")
	text := fmt.Sprint(m["text"])
	for _, line := range []string{
		`millrace_server_http_requests_total{method="GET",route="/v1/things/{thing}",status="200"} 2`,
		`millrace_server_http_requests_total{method="GET",route="other",status="404"} 2`,
		`millrace_server_build_info{version="v1.2.3"} 1`,
		`millrace_server_unsafe_setting_info{setting="insecure"} 1`,
		`millrace_server_ready_info 1`,
		`millrace_server_http_request_duration_seconds_count{method="GET",route="/v1/things/{thing}"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(text, "nowhere") || strings.Contains(text, "things/1") {
		t.Error("a path became a label")
	}
	families, err := f.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, fam := range families {
		if strings.HasPrefix(fam.GetName(), "millrace_") {
			names = append(names, fam.GetName())
		}
	}
	want := "millrace_server_build_info millrace_server_http_inflight_requests millrace_server_http_request_duration_seconds millrace_server_http_requests_total millrace_server_ready_info millrace_server_unsafe_setting_info"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("names changed:\n%s\n%s", got, want)
	}
}

// A body that stops coming is given up; one that comes slowly for longer than that
// is not.
func TestStalledBody(t *testing.T) {
	type outcome struct {
		n   int
		err error
	}
	read := make(chan outcome, 1)
	f := newTestFront(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		read <- outcome{len(b), err}
	}))
	send := func(pieces int, between time.Duration) outcome {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
		for range pieces {
			time.Sleep(between)
			fmt.Fprint(c, "x")
		}
		return <-read
	}
	// The deadlines are 30 s after the front's clock, which is 29 s behind.
	f.advance(time.Second - stallTime)
	if o := send(3, 0); o.err == nil || o.n != 3 {
		t.Errorf("a body that stopped: %+v", o)
	}
	// Each piece comes in time, and all of them together do not; the clock passes a
	// second with each, so that the deadline is moved.
	f.advance(stallTime - time.Second)
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		for range 10 {
			time.Sleep(5 * time.Millisecond)
			f.advance(5 * time.Second)
		}
	}()
	if o := send(10, 5*time.Millisecond); o.err != nil || o.n != 10 {
		t.Errorf("a slow body: %+v", o)
	}
	<-slow
}

// An answer that nobody takes is given up, whatever its handler does.
func TestStalledAnswer(t *testing.T) {
	failed := make(chan error, 1)
	f := newTestFront(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 1<<20)
		for {
			if _, err := w.Write(piece); err != nil {
				failed <- err
				return
			}
		}
	}))
	f.advance(200*time.Millisecond - stallTime)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the handler still writes")
	}
}

// A refusal renders any code of the table as the API does.
func TestRefuse(t *testing.T) {
	for _, k := range errs.Kinds() {
		w := httptest.NewRecorder()
		refuse(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil), errs.New(k.Code, "because"))
		var p map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != k.HTTP || p["code"] != string(k.Code) || p["detail"] != "because" || p["type"] != "/docs/errors#"+string(k.Code) {
			t.Errorf("%s: %d %s", k.Code, w.Code, w.Body)
		}
		if (w.Header().Get("Retry-After") != "") != (k.RetryAfterSeconds > 0) {
			t.Errorf("%s: Retry-After %q", k.Code, w.Header().Get("Retry-After"))
		}
	}
}
