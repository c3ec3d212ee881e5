package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/errs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// logBuffer takes a server's log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func testSettings(t *testing.T, dir string) *Settings {
	t.Helper()
	s, _, err := Load(Sources{Flags: map[string]any{"data-dir": dir, "http-addr": "127.0.0.1:0", "flight-addr": "127.0.0.1:0", "metrics-addr": "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// running is a server that Run runs.
type running struct {
	dir    string
	cancel context.CancelFunc
	ended  chan error
	log    *logBuffer
	addr   addressesRecord
}

func startServer(t *testing.T, dir string) *running {
	t.Helper()
	return startServerWith(t, dir, func(*Settings) {})
}

// startServerWith starts a server with other settings than testSettings.
func startServerWith(t *testing.T, dir string, set func(*Settings)) *running {
	t.Helper()
	return startServerAs(t, Options{}, dir, set)
}

// startServerAs is startServerWith with other options too.
func startServerAs(t *testing.T, o Options, dir string, set func(*Settings)) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{dir: dir, cancel: cancel, ended: make(chan error, 1), log: &logBuffer{}}
	settings := testSettings(t, dir)
	set(settings)
	o.Settings, o.Version, o.Log = settings, "test", r.log
	go func() { r.ended <- Run(ctx, o) }()
	for {
		if b, err := os.ReadFile(filepath.Join(dir, addressesFile)); err == nil && json.Unmarshal(b, &r.addr) == nil {
			return r
		}
		select {
		case err := <-r.ended:
			t.Fatalf("the server ended: %v\n%s", err, r.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		t.Fatalf("stopping: %v\n%s", err, r.log)
	}
	if _, err := os.Stat(filepath.Join(r.dir, addressesFile)); err == nil {
		t.Errorf("%s is still there", addressesFile)
	}
}

func (r *running) call(t *testing.T, method, path, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.addr.HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s\n%s", method, path, resp.StatusCode, b.String(), r.log)
	}
	return strings.TrimSpace(b.String())
}

// A server starts from nothing, takes tables and rows, stops, and starts again with
// them; while it runs, a second one on its directory is refused.
func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r := startServer(t, dir)
	if r.addr.PID != os.Getpid() || r.addr.Flight == "" || r.addr.Metrics == "" {
		t.Errorf("addresses %+v", r.addr)
	}
	r.call(t, "POST", "/v1/databases", `{"name":"d"}`)
	r.call(t, "POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"id","type":"BIGINT"},{"name":"v","type":"STRING"}],"primary_key":["id"]}`)
	r.call(t, "POST", "/v1/databases/d/tables/t/records", `{"rows":[{"id":1,"v":"one"}]}`)

	err := Run(context.Background(), Options{Settings: testSettings(t, dir), Log: &logBuffer{}})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second server: %v", err)
	}
	r.call(t, "GET", "/readyz", "")
	r.stop(t)
	for _, says := range []string{"ready", "stopping", "stopped"} {
		if !strings.Contains(r.log.String(), says) {
			t.Errorf("the log does not say %q:\n%s", says, r.log)
		}
	}

	r = startServer(t, dir)
	if got := r.call(t, "GET", "/v1/databases/d/tables/t/rows/1", ""); got != `{"id":1,"v":"one"}` {
		t.Errorf("row after a restart: %s", got)
	}
	r.stop(t)
}

// A server that cannot start says why, and leaves nothing open: the directory can be
// used at once by one that can.
func TestRunFailsToStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r := startServer(t, dir)
	taken := r.addr.HTTP
	other := filepath.Join(t.TempDir(), "other")
	for _, name := range []string{"http-addr", "flight-addr", "metrics-addr"} {
		s := testSettings(t, other)
		switch name {
		case "http-addr":
			s.HTTPAddr = taken
		case "flight-addr":
			s.FlightAddr = taken
		default:
			s.MetricsAddr = taken
		}
		err := Run(context.Background(), Options{Settings: s, Log: &logBuffer{}})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), taken) {
			t.Errorf("%s taken: %v", name, err)
		}
	}
	startServer(t, other).stop(t)
	r.stop(t)

	// A lost catalog is not made anew over the data of the old one.
	if err := os.RemoveAll(filepath.Join(dir, catalogDir)); err != nil {
		t.Fatal(err)
	}
	err := Run(context.Background(), Options{Settings: testSettings(t, dir), Log: &logBuffer{}})
	if err == nil || !strings.Contains(err.Error(), clusterFile) {
		t.Errorf("lost catalog: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(context.Background(), Options{Settings: testSettings(t, file), Log: &logBuffer{}}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as data directory: %v", err)
	}
}

// An action is the operation of its name: its members become path, query and body,
// and a problem becomes the error that it was.
func TestActions(t *testing.T) {
	var got string
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		got = fmt.Sprintf("%s %s %s %s", r.Method, r.URL.EscapedPath(), r.URL.Query().Encode(), b.String())
		switch r.URL.Path {
		case "/v1/databases/problem":
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"code":"database_not_empty","detail":"it has tables","title":"x","status":409,"tables":2,"errors":[{"field":"f","code":"invalid_name","message":"m"}]}`)
		case "/v1/databases/broken":
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "oops")
		default:
			fmt.Fprint(w, `{"answer":1}`)
		}
	})
	a := newActions(api)
	for _, c := range []struct{ op, body, want string }{
		{"create_database", `{"name":"d","comment":"c"}`, `POST /v1/databases  {"comment":"c","name":"d"}`},
		{"list_databases", `{"limit":5,"page_token":"x y"}`, `GET /v1/databases limit=5&page_token=x+y `},
		{"list_databases", ``, `GET /v1/databases  `},
		{"drop_database", `{"database":"a/b c","cascade":true}`, `DELETE /v1/databases/a%2Fb%20c cascade=true `},
		{
			"create_table", `{"database":"d","if_not_exists":true,"name":"t","columns":[{"name":"id","type":"BIGINT"}]}`,
			`POST /v1/databases/d/tables if_not_exists=true {"columns":[{"name":"id","type":"BIGINT"}],"name":"t"}`,
		},
	} {
		answer, err := a.Do(t.Context(), c.op, []byte(c.body))
		if err != nil || string(answer) != `{"answer":1}` || got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s, %v", c.op, c.body, got, c.want, err)
		}
	}
	for _, c := range []struct {
		op, body string
		code     errs.Code
	}{
		{"nothing", `{}`, errs.RouteNotFound},
		{"healthz", `{}`, errs.RouteNotFound},
		{"drop_database", `{}`, errs.InvalidRequest},
		{"drop_database", `[`, errs.InvalidRequest},
		{"drop_database", `{"database":"d","color":"red"}`, errs.UnknownField},
		{"drop_database", `{"database":"broken"}`, errs.Internal},
	} {
		if _, err := a.Do(t.Context(), c.op, []byte(c.body)); errs.CodeOf(err) != c.code {
			t.Errorf("%s %s: %v", c.op, c.body, err)
		}
	}
	_, err := a.Do(t.Context(), "drop_database", []byte(`{"database":"problem"}`))
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || e.Code != errs.DatabaseNotEmpty || e.Message != "it has tables" || len(e.Fields) != 1 || len(e.Extra) != 1 || e.Extra["tables"] == nil {
		t.Errorf("problem became %+v", err)
	}
}
