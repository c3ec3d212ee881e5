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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/shardrpc"
)

// audited is a guarded server with an audit log: user:root is its administrator, user:low may
// describe d.t alone, user:pat nothing.
type audited struct {
	guarded

	path string
	fl   flight.Client
}

func startAudited(t *testing.T, set func(*Settings)) *audited {
	t.Helper()
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "audit.jsonl")
	a := &audited{path: path, guarded: guarded{t: t, running: startServerWith(t, dir, func(s *Settings) {
		s.AuthJWKS, s.AdminPrincipal, s.AuditLog = devKeys, "user:root", path
		set(s)
	})}}
	var err error
	a.key, err = token.OpenDevKey(token.DevKeyPath(dir))
	require.NoError(t, err)
	a.fl = a.flightClient(t)
	a.must("root", "POST", "/v1/databases", `{"name":"d"}`)
	a.must("root", "POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"a","type":"BIGINT"},{"name":"b","type":"STRING"}],"primary_key":["a"],"buckets":1,"properties":{"table.datalake.enabled":"true"}}`)
	a.must("root", "POST", "/v1/databases/d/tables/t/records", `{"rows":[{"a":1,"b":"x"}]}`)
	a.grant("user:low", "d.t", "describe")
	return a
}

// events reads an audit log, of requests whose id begins with a word.
func auditEvents(t *testing.T, path, prefix string) (out []audit.Event) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var e audit.Event
		require.NoError(t, json.Unmarshal(s.Bytes(), &e), s.Text())
		if strings.HasPrefix(e.RequestID, prefix) {
			out = append(out, e)
		}
	}
	return out
}

// flightCalls are calls of Flight, by name.
func (a *audited) flightCalls() map[string]func(context.Context) error {
	drain := func(recv func() error) error {
		for {
			if err := recv(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	batch := func() arrow.RecordBatch {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil))
		b.Field(0).(*array.Int64Builder).Append(1)
		return b.NewRecordBatch()
	}
	do := func(action, body string) func(context.Context) error {
		return func(ctx context.Context) error {
			s, err := a.fl.DoAction(ctx, &flight.Action{Type: action, Body: []byte(body)})
			if err != nil {
				return err
			}
			return drain(func() error { _, err := s.Recv(); return err })
		}
	}
	return map[string]func(context.Context) error{
		"info": func(ctx context.Context) error {
			_, err := a.fl.GetFlightInfo(ctx, &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"d", "t"}})
			return err
		},
		"get": func(ctx context.Context) error {
			s, err := a.fl.DoGet(ctx, &flight.Ticket{Ticket: []byte(`{"op":"scan","table":"d.t"}`)})
			if err != nil {
				return err
			}
			return drain(func() error { _, err := s.Recv(); return err })
		},
		"put": func(ctx context.Context) error {
			s, err := a.fl.DoPut(ctx)
			if err != nil {
				return err
			}
			w := flight.NewRecordWriter(s, ipc.WithSchema(batch().Schema()))
			w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte(`{"op":"put","table":"d.t","partial":true}`)})
			_ = w.Write(batch()) // what came of it the answer says
			_ = w.Close()
			_ = s.CloseSend()
			return drain(func() error { _, err := s.Recv(); return err })
		},
		"exchange": func(ctx context.Context) error {
			s, err := a.fl.DoExchange(ctx)
			if err != nil {
				return err
			}
			w := flight.NewRecordWriter(s, ipc.WithSchema(batch().Schema()))
			w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte(`{"op":"lookup","table":"d.t"}`)})
			_ = w.Write(batch()) // as above
			_ = w.Close()
			_ = s.CloseSend()
			return drain(func() error { _, err := s.Recv(); return err })
		},
		"act":   do("millrace.count_rows", `{"database":"d","table":"t"}`),
		"alter": do("millrace.alter_table", `{"database":"d","table":"t","ops":[{"op":"set_comment","comment":"x"}]}`),
	}
}

// Where processes of a cluster ask each other, who shows no token of it leaves a line each time,
// and they themselves leave none.
func TestAuditOfStrangers(t *testing.T) {
	f := newTestFront(t, echoCaller())
	f.callers = keyring{"ann"}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := audit.Open(audit.Options{Path: path, Verbs: []string{}, Clock: wallClock{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	f.audit = l
	f.serveInternal(shardrpc.NewServer(shardrpc.ServerOptions{
		Verify: func(token string) error {
			if token != "ours" {
				return errs.New(errs.Unauthenticated, "no")
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}))
	for i, h := range [][]string{nil, {"Authorization", "Bearer ann"}, {"Authorization", "ours"}} {
		status, _, _ := f.get(t, "/internal/v1/call/secret", append(h, "X-Request-Id", fmt.Sprint("no", i))...)
		require.Equal(t, http.StatusUnauthorized, status)
	}
	status, _, _ := f.get(t, "/internal/v1/call/1", "Authorization", "Bearer ours", "X-Request-Id", "yes")
	require.Equal(t, http.StatusMethodNotAllowed, status)
	require.NoError(t, l.Close())
	events := auditEvents(t, path, "")
	require.Len(t, events, 3)
	for i, e := range events {
		require.NotZero(t, e.Time)
		host, _, err := net.SplitHostPort(e.Address)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", host)
		e.Time, e.Address = time.Time{}, ""
		require.Equal(t, audit.Event{RequestID: fmt.Sprint("no", i), Door: "internal", Outcome: "unauthenticated"}, e)
	}
}

// Through every door a call leaves exactly one line: what was allowed, what was denied because
// its caller may not know of it or may not do it, and what came without a good token; with who
// it was, from where, what was asked for, and how it ended.
func TestAuditDoors(t *testing.T) {
	a := startAudited(t, func(*Settings) {})
	calls := []struct {
		door, operation        string
		method, path, body     string // of HTTP; path is the name of a call of Flight
		verb, object           string // as what it needs is asked for
		named                  string // what an unknown caller's path names
		hidden                 string // the verb that a caller is denied who may not know of the table
		hiddenOutcome, refusal string
	}{
		{"http", "get_table", "GET", "/v1/databases/d/tables/t", "", "describe", "d.t", "d.t", "describe", "database_not_found", ""},
		{"http", "scan_get", "GET", "/v1/databases/d/tables/t/scan", "", "read", "d.t", "d.t", "describe", "database_not_found", "permission_denied"},
		{"http", "get_row_by_key", "GET", "/v1/databases/d/tables/t/rows/1", "", "read", "d.t", "d.t", "describe", "database_not_found", "permission_denied"},
		{"http", "lookup_rows", "POST", "/v1/databases/d/tables/t/lookup", `{"keys":[{"a":1}]}`, "read", "d.t", "d.t", "describe", "database_not_found", "permission_denied"},
		{"http", "write_records", "POST", "/v1/databases/d/tables/t/records", `{"rows":[{"a":1,"b":"x"}]}`, "write", "d.t", "d.t", "describe", "database_not_found", "permission_denied"},
		{"http", "alter_table", "PATCH", "/v1/databases/d/tables/t", `{"ops":[{"op":"set_comment","comment":"x"}]}`, "alter", "d.t", "d.t", "describe", "database_not_found", "permission_denied"},
		{"http", "execute_sql", "POST", "/v1/sql", sqlOf("SELECT b FROM d.t WHERE a = 1"), "read", "d.t", "", "describe", "database_not_found", "permission_denied"},
		{"http", "execute_sql", "POST", "/v1/sql", sqlOf("INSERT INTO d.t VALUES (1, 'x')"), "write", "d.t", "", "describe", "database_not_found", "permission_denied"},
		{"http", "create_grant", "POST", "/v1/grants", `{"principal":"user:z","on":"d.t","verbs":["describe"]}`, "admin", "d.t", "", "admin", "database_not_found", "permission_denied"},
		{"iceberg", "iceberg_load_table", "GET", "/iceberg/v1/namespaces/d/tables/t", "", "read", "d.t", "d.t", "describe", "table_not_found", "permission_denied"},
		{"flight", "GetFlightInfo", "", "info", "", "read", "d.t", "", "describe", "database_not_found", "permission_denied"},
		{"flight", "DoGet", "", "get", "", "read", "d.t", "", "describe", "database_not_found", "permission_denied"},
		{"flight", "DoPut", "", "put", "", "write", "d.t", "", "describe", "database_not_found", "permission_denied"},
		{"flight", "DoExchange", "", "exchange", "", "read", "d.t", "", "describe", "database_not_found", "permission_denied"},
		{"flight", "millrace.count_rows", "", "act", "", "read", "d.t", "", "describe", "database_not_found", "permission_denied"},
		{"flight", "millrace.alter_table", "", "alter", "", "alter", "d.t", "", "describe", "database_not_found", "permission_denied"},
	}
	flightCalls := a.flightCalls()
	want := map[string]audit.Event{}
	for i, c := range calls {
		for _, user := range []string{"root", "low", "pat", ""} {
			id := fmt.Sprintf("case-%d-%s", i, user)
			e := audit.Event{RequestID: id, Principal: "user:" + user, Door: c.door, Operation: c.operation, Verb: c.verb, Object: c.object, Decision: "allowed", Outcome: "ok"}
			switch {
			case user == "low" && c.refusal != "":
				e.Decision, e.Outcome = "denied", c.refusal
			case user == "pat":
				e.Verb, e.Decision, e.Outcome = c.hidden, "denied", c.hiddenOutcome
			case user == "":
				e.Principal, e.Verb, e.Object, e.Decision, e.Outcome = "", "", c.named, "", "unauthenticated"
				if c.door == "flight" && strings.HasPrefix(c.operation, "millrace.") {
					e.Operation = "DoAction"
				}
			}
			want[id] = e
			bearer := "Bearer nonsense"
			if user != "" {
				bearer = a.bearer(user)
			}
			if c.door != "flight" {
				code, _, _ := a.ask(t, c.method, c.path, c.body, "Authorization", bearer, "X-Request-Id", id)
				require.Equal(t, e.Outcome == "ok", code < 300, "%s: %d", id, code)
				continue
			}
			ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", bearer, "x-request-id", id), time.Minute)
			err := flightCalls[c.path](ctx)
			require.Equal(t, e.Outcome == "ok", err == nil, "%s: %v", id, err)
			cancel()
		}
	}
	a.stop(t)
	events := auditEvents(t, a.path, "case-")
	for _, e := range events {
		require.True(t, strings.HasPrefix(e.Address, "127.0.0.1:"), e.Address)
		require.WithinDuration(t, time.Now(), e.Time, time.Hour)
		w, ok := want[e.RequestID]
		require.True(t, ok, "a second line: %+v", e)
		delete(want, e.RequestID)
		e.Address, e.Time = "", time.Time{}
		require.Equal(t, w, e)
	}
	require.Empty(t, want)
}

// What is open when its grant is taken back is written down as denied, with how it ended.
func TestAuditTakenBack(t *testing.T) {
	a := startAudited(t, func(*Settings) {})
	back := a.grant("user:pat", "d.t", "read")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(accept, id string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+a.addr.HTTP+"/v1/databases/d/tables/t/changelog?from=earliest", nil)
		require.NoError(t, err)
		req.Header = http.Header{"Authorization": {a.bearer("pat")}, "Accept": {accept}, "X-Request-Id": {id}}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		require.Equal(t, 200, resp.StatusCode)
		return resp
	}
	events := open("text/event-stream", "open-events")               //nolint:bodyclose // by open
	cut := open("application/vnd.apache.arrow.stream", "open-arrow") //nolint:bodyclose // by open
	tail, err := a.fl.DoGet(metadata.AppendToOutgoingContext(ctx, "authorization", a.bearer("pat"), "x-request-id", "open-tail"), &flight.Ticket{Ticket: []byte(`{"op":"scan","table":"d.t$changelog","from":"earliest","until":"never"}`)})
	require.NoError(t, err)
	_, err = tail.Recv()
	require.NoError(t, err)
	back()
	_, err = io.ReadAll(events.Body)
	require.NoError(t, err)
	_, err = io.ReadAll(cut.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	for err = nil; err == nil; {
		_, err = tail.Recv()
	}
	a.stop(t)
	got := map[string]string{}
	for _, e := range auditEvents(t, a.path, "open-") {
		if e.Outcome != audit.Begun { // which it is, when this takes ten seconds
			got[e.RequestID] += strings.Join([]string{e.Principal, e.Verb, e.Object, e.Decision, e.Outcome}, " ")
		}
	}
	require.Equal(t, map[string]string{
		"open-events": "user:pat read d.t denied database_not_found",
		"open-arrow":  "user:pat read d.t denied database_not_found",
		"open-tail":   "user:pat read d.t denied database_not_found",
	}, got)
}

// A file that cannot be written turns health red, with what is wrong; requests are served, and
// what they did is written when it can be.
func TestAuditFileFails(t *testing.T) {
	a := startAudited(t, func(*Settings) {})
	require.NoError(t, os.Rename(a.path, a.path+".1"))
	require.NoError(t, os.Mkdir(a.path, 0o700))
	code, _, _ := a.ask(t, "GET", "/v1/databases/d/tables/t", "", "Authorization", a.bearer("root"), "X-Request-Id", "while-red")
	require.Equal(t, 200, code)
	health := func(want int, text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			code, answer, _ := a.ask(t, "GET", "/healthz", "", "Authorization", a.bearer("root"))
			return code == want && strings.Contains(answer, text)
		}, time.Minute, 10*time.Millisecond)
	}
	health(503, "audit log: the file of the audit log")
	for _, path := range []string{"/healthz", "/readyz"} {
		_, answer, _ := a.ask(t, "GET", path, "")
		require.Contains(t, answer, `"detail":"audit log: internal"`, "who is not known gets no names")
	}
	_, metrics, _ := a.ask(t, "GET", "/metrics", "", "Authorization", a.bearer("root"))
	require.Regexp(t, `millrace_audit_failures_total\{output="file"\} [1-9]`, metrics)
	require.NoError(t, os.Remove(a.path))
	health(200, `"ok"`)
	a.stop(t)
	require.Len(t, auditEvents(t, a.path, "while-red"), 1)
	require.Contains(t, a.log.String(), "the audit log cannot be written")
	require.Contains(t, a.log.String(), "the audit log is written again")
}

// The table has the same events, is made where it is not there, also while the server runs,
// and has none of its own writes. A table of other columns is refused at the start.
func TestAuditTable(t *testing.T) {
	a := startAudited(t, func(s *Settings) { s.AuditTable, s.AuditVerbs = "ops.audit", []string{"read"} })
	rows := func(id string) (out [][]any) {
		var answer struct{ Rows [][]any }
		text := a.must("root", "POST", "/v1/sql", sqlOf("SELECT principal, door, operation, verb, object, decision, outcome FROM ops.audit WHERE request_id = '"+id+"'"))
		require.NoError(t, json.Unmarshal([]byte(text), &answer))
		return answer.Rows
	}
	ask := func(id, user, path string) {
		a.ask(t, "GET", path, "", "Authorization", a.bearer(user), "X-Request-Id", id)
	}
	ask("one", "root", "/v1/databases/d/tables/t/scan")
	ask("two", "pat", "/v1/databases/d/tables/t/scan")
	ask("none", "root", "/v1/databases/d/tables/t") // describe is not wanted
	ask("three", "root", "/v1/databases/d/tables/t/scan")
	require.Eventually(t, func() bool { return len(rows("three")) == 1 }, time.Minute, 50*time.Millisecond)
	require.Equal(t, [][]any{{"user:root", "http", "scan_get", "read", "d.t", "allowed", "ok"}}, rows("one"))
	require.Equal(t, [][]any{{"user:pat", "http", "scan_get", "describe", "d.t", "denied", "database_not_found"}}, rows("two"))
	require.Empty(t, rows("none"))
	require.Contains(t, a.must("root", "POST", "/v1/sql", sqlOf("SELECT COUNT(*) FROM ops.audit WHERE principal = 'system' OR verb = 'write' AND object = 'ops.audit'")), "[[0]]")
	require.Contains(t, a.must("root", "GET", "/v1/databases/ops/tables/audit", ""), `"table.log.ttl":"0"`)

	a.must("root", "DELETE", "/v1/databases/ops?cascade=true", "")
	ask("four", "root", "/v1/databases/d/tables/t/scan")
	require.Eventually(t, func() bool {
		code, _ := a.as("root", "GET", "/v1/databases/ops/tables/audit", "")
		return code == 200 && len(rows("four")) == 1
	}, time.Minute, 50*time.Millisecond)
	a.must("root", "PATCH", "/v1/databases/ops/tables/audit", `{"ops":[{"op":"add_column","column":{"name":"seen","type":"BOOLEAN"}}]}`)
	ask("five", "root", "/v1/databases/d/tables/t/scan")
	require.Eventually(t, func() bool { return len(rows("five")) == 1 }, time.Minute, 50*time.Millisecond)
	a.must("root", "PATCH", "/v1/databases/ops/tables/audit", `{"ops":[{"op":"drop_column","name":"door"}]}`)
	ask("six", "root", "/v1/databases/d/tables/t/scan")
	require.Eventually(t, func() bool {
		_, answer, _ := a.ask(t, "GET", "/healthz", "", "Authorization", a.bearer("root"))
		return strings.Contains(answer, `no column \"door\"`)
	}, time.Minute, 10*time.Millisecond)
	a.stop(t)
	for table, want := range map[string]string{"ops.audit": `no column "door" of type STRING`, "d.t": "plain log table"} {
		s := testSettings(t, a.dir)
		s.AuditTable = table
		err := Run(t.Context(), Options{Settings: s, Log: io.Discard})
		require.ErrorContains(t, err, "setting audit-table")
		require.ErrorContains(t, err, want)
	}
}

// Settings that make no sense are refused, with what to do.
func TestAuditSettings(t *testing.T) {
	for want, set := range map[string]func(*Settings){
		"setting audit-table":                              func(s *Settings) { s.AuditTable = "nix" },
		`"drop" is not one of describe, read, write`:       func(s *Settings) { s.AuditLog, s.AuditVerbs = "x", []string{"drop"} },
		"neither audit-log nor audit-table is set":         func(s *Settings) { s.AuditVerbs = nil },
		"setting audit-log: open /nowhere/at/all/x: no su": func(s *Settings) { s.AuditLog = "/nowhere/at/all/x" },
	} {
		s := testSettings(t, t.TempDir())
		set(s)
		err := s.Validate()
		if err == nil {
			err = Run(t.Context(), Options{Settings: s, Log: io.Discard})
		}
		require.ErrorContains(t, err, want)
	}
}
