package server

import (
	"bufio"
	"context"
	"encoding/json"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/auth/token"
)

// guarded is a server with authentication, whose administrator is user:root, and tables
// d.t (keyed: a, b, c) and d.u.
type guarded struct {
	*running

	t   *testing.T
	key *token.DevKey
}

func startGuarded(t *testing.T) *guarded {
	dir := t.TempDir()
	g := &guarded{running: startServerWith(t, dir, func(s *Settings) { s.AuthJWKS, s.AdminPrincipal = devKeys, "user:root" }), t: t}
	var err error
	g.key, err = token.OpenDevKey(token.DevKeyPath(dir))
	require.NoError(t, err)
	g.must("root", "POST", "/v1/databases", `{"name":"d"}`)
	g.must("root", "POST", "/v1/databases", `{"name":"e"}`)
	g.must("root", "POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"a","type":"BIGINT"},{"name":"b","type":"STRING"},{"name":"c","type":"STRING"}],"primary_key":["a"],"buckets":1,"properties":{"table.datalake.enabled":"true"}}`)
	g.must("root", "POST", "/v1/databases/d/tables", `{"name":"u","columns":[{"name":"a","type":"BIGINT"}],"buckets":1}`)
	g.must("root", "POST", "/v1/databases/d/tables/t/records", `{"rows":[{"a":1,"b":"x","c":"secret"}]}`)
	return g
}

// bearer is the authorization of a user, who is in the group of his name.
func (g *guarded) bearer(user string) string {
	text, err := g.key.Sign(user, []string{user + "s"}, time.Now(), time.Hour)
	require.NoError(g.t, err)
	return "Bearer " + text
}

func (g *guarded) as(user, method, path, body string) (int, string) {
	code, answer, _ := g.ask(g.t, method, path, body, "Authorization", g.bearer(user), "X-Request-Id", "fixed")
	return code, answer
}

func (g *guarded) must(user, method, path, body string) string {
	g.t.Helper()
	code, answer := g.as(user, method, path, body)
	require.Less(g.t, code, 300, "%s %s: %s", method, path, answer)
	return answer
}

// grant makes a grant, and gives what takes it back.
func (g *guarded) grant(principal, on, verbs string, columns ...string) func() {
	g.t.Helper()
	var made struct{ ID string }
	body, err := json.Marshal(map[string]any{"principal": principal, "on": on, "verbs": strings.Split(verbs, ","), "columns": columns})
	require.NoError(g.t, err)
	require.NoError(g.t, json.Unmarshal([]byte(g.must("root", "POST", "/v1/grants", string(body))), &made))
	return func() { g.must("root", "DELETE", "/v1/grants/"+made.ID, "") }
}

func sqlOf(text string) string {
	b, err := json.Marshal(map[string]string{"sql": text})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// What each verb lets do, through REST, SQL and the actions of Flight, with real tokens: a
// caller with one verb on a table, on its database or on everything.
func TestGrantsMatrix(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	fl := g.flightClient(t)
	const table = "/v1/databases/d/tables/t"
	type op struct{ method, path, body, needs string }
	ops := []op{
		{"GET", table, "", "describe"},
		{"GET", table + "/schemas", "", "describe"},
		{"GET", table + "/buckets", "", "describe"},
		{"GET", table + "/offsets?at=latest", "", "describe"},
		{"GET", table + "/lake", "", "describe"},
		{"HEAD", "/iceberg/v1/namespaces/d/tables/t", "", "describe"},
		{"POST", "/v1/sql", sqlOf("DESCRIBE d.t"), "describe"},
		{"POST", "/v1/sql", sqlOf("SHOW CREATE TABLE d.t"), "describe"},
		{"GET", "/v1/databases/d", "", "describe"},
		{"GET", table + "/scan", "", "read"},
		{"GET", table + "$changelog/scan", "", "read"},
		{"GET", table + "/changelog?from=earliest&wait=0s", "", "read"},
		{"GET", table + "/count", "", "read"},
		{"GET", table + "/rows/1", "", "read"},
		{"POST", table + "/lookup", `{"keys":[{"a":1}]}`, "read"},
		{"POST", table + "/prefix-lookup", `{"prefix":{"a":1}}`, "read"},
		{"POST", "/v1/sql", sqlOf("SELECT * FROM d.t"), "read"},
		{"POST", "/v1/sql", sqlOf("SELECT COUNT(*) FROM d.t"), "read"},
		{"POST", "/v1/sql", sqlOf("SELECT b FROM d.t WHERE a = 1"), "read"},
		{"GET", "/iceberg/v1/namespaces/d/tables/t", "", "read"},
		{"POST", table + "/records", `{"rows":[{"a":1,"b":"x","c":"secret"}]}`, "write"},
		{"PUT", table + "/rows/1", `{"a":1,"b":"x","c":"secret"}`, "write"},
		{"DELETE", table + "/rows/7", "", "write"},
		{"POST", "/v1/sql", sqlOf("INSERT INTO d.t VALUES (1, 'x', 'secret')"), "write"},
		{"PATCH", table, `{"ops":[{"op":"set_comment","comment":"x"}]}`, "alter"},
		{"POST", "/v1/sql", sqlOf("ALTER TABLE d.t SET ('owner' = 'x')"), "alter"},
		{"POST", table + "/lake/tier", "", "alter"},
		{"POST", "/v1/grants", `{"principal":"user:nobody","on":"d.t","verbs":["describe"]}`, "admin"},
	}
	absent := strings.NewReplacer("tables/t", "tables/nix", "d.t", "d.nix")
	for _, on := range []string{"d.t", "d", "*"} {
		for _, verb := range []string{"describe", "read", "write", "create", "alter", "drop", "admin"} {
			back := g.grant("group:pats", on, verb)
			for _, o := range ops {
				code, answer := g.as("pat", o.method, o.path, o.body)
				may := o.needs == verb || o.needs == "describe" || verb == "admin"
				if may {
					require.Less(t, code, 300, "%s on %s: %s %s %s: %s", verb, on, o.method, o.path, o.body, answer)
					continue
				}
				require.Equal(t, 403, code, "%s on %s: %s %s %s: %s", verb, on, o.method, o.path, o.body, answer)
				if !strings.HasPrefix(o.path, "/iceberg") {
					require.Contains(t, answer, fmt.Sprintf(`needs a grant of \"%s\"`, o.needs))
				}
			}
			_, err := act(t, fl, "millrace.list_databases", g.bearer("pat"))
			require.NoError(t, err)
			back()
		}
	}
	// Without a grant nothing is there, in the very words of what is absent.
	back := g.grant("user:pat", "d.u", "describe") // so that the database is
	for _, o := range ops {
		if o.path == "/v1/databases/d" {
			continue
		}
		code, answer := g.as("pat", o.method, o.path, o.body)
		code2, answer2 := g.as("pat", o.method, absent.Replace(o.path), absent.Replace(o.body))
		require.Equal(t, 404, code, "%s %s: %s", o.method, o.path, answer)
		require.Equal(t, code2, code)
		require.Equal(t, answer2, strings.ReplaceAll(absent.Replace(answer), `table \"t\"`, `table \"nix\"`))
	}
	require.Contains(t, g.must("pat", "GET", "/v1/databases/d/tables", ""), `"u"`)
	for _, path := range []string{"/v1/databases/d/tables", "/iceberg/v1/namespaces/d/tables"} {
		require.NotContains(t, g.must("pat", "GET", path, ""), `"t"`)
	}
	require.NotContains(t, g.must("pat", "POST", "/v1/sql", sqlOf("SHOW TABLES FROM d")), `"t"`)
	require.NotContains(t, g.must("pat", "GET", "/v1/databases", ""), `"e"`)
	for _, statement := range []string{"DROP TABLE IF EXISTS d.t", "DROP TABLE IF EXISTS d.nix"} {
		code, answer := g.as("pat", "POST", "/v1/sql", sqlOf(statement))
		require.Equal(t, 200, code, answer)
	}
	for _, o := range []op{
		{"POST", "/v1/databases", `{"name":"x"}`, ""},
		{"POST", "/v1/databases", `{"name":"e"}`, ""},
		{"GET", "/v1/cluster", "", ""},
		{"POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"a","type":"INT"}]}`, ""},
		{"POST", "/v1/databases/d/tables?if_not_exists=true", `{"name":"t","columns":[{"name":"a","type":"INT"}]}`, ""},
		{"DELETE", "/v1/databases/d", "", ""},
		{"DELETE", "/v1/databases/d/tables/u", "", ""},
	} {
		code, answer := g.as("pat", o.method, o.path, o.body)
		require.Equal(t, 403, code, "%s %s: %s", o.method, o.path, answer)
	}
	s, err := fl.ListFlights(metadata.AppendToOutgoingContext(t.Context(), "authorization", g.bearer("pat")), &flight.Criteria{})
	require.NoError(t, err)
	info, err := s.Recv()
	require.NoError(t, err)
	require.Equal(t, []string{"d", "u"}, info.FlightDescriptor.Path)
	_, err = s.Recv()
	require.ErrorIs(t, err, io.EOF)
	back()
	code, answer := g.as("pat", "GET", table, "")
	require.Equal(t, 404, code)
	require.Contains(t, answer, "database_not_found")
	require.JSONEq(t, `{"databases":[]}`, g.must("pat", "GET", "/v1/databases", ""))
	require.Contains(t, g.must("root", "GET", table+"/rows/1", ""), "secret", "nothing was dropped")
}

// Column grants bind what is shown, filtered and looked up by, through every door.
func TestGrantsOfColumns(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	defer g.grant("user:pat", "d.t", "read", "a", "b")()
	for path, want := range map[string]int{
		"GET /scan?columns=a,b": 200, "GET /scan?columns=c": 403, "GET /scan": 403, "GET /scan?columns=a&filter=c='x'": 403, "GET /rows/1?columns=b": 200, "GET /rows/1": 403,
		"GET /count": 200, "GET /count?filter=c='x'": 403, "GET /changelog?from=earliest&wait=0s&columns=b": 200, "GET /changelog?from=earliest&wait=0s": 403,
		"SQL SELECT a, b FROM d.t": 200, "SQL SELECT c FROM d.t": 403, "SQL SELECT a FROM d.t WHERE c = 'x'": 403, "SQL SELECT COUNT(*) FROM d.t": 200, "SQL SELECT MAX(c) FROM d.t": 403, "SQL SELECT * FROM d.t": 403,
		"SQL SELECT a FROM d.t$changelog": 200, "SQL SELECT c FROM d.t$changelog": 403,
		"ICE /iceberg/v1/namespaces/d/tables/t": 403,
	} {
		method, rest, _ := strings.Cut(path, " ")
		var code int
		var answer string
		switch method {
		case "SQL":
			code, answer = g.as("pat", "POST", "/v1/sql", sqlOf(rest))
		case "ICE":
			code, answer = g.as("pat", "GET", rest, "")
		default:
			code, answer = g.as("pat", method, "/v1/databases/d/tables/t"+strings.ReplaceAll(rest, "'", "%27"), "")
		}
		require.Equal(t, want, code, "%s: %s", path, answer)
		require.NotContains(t, answer, "secret", path)
	}
}

// What is open when a grant is taken back ends within 5 s: events, a tail of Flight, and a
// DoPut, while nothing comes.
func TestGrantsTakenBack(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	back := g.grant("user:pat", "d.u", "read,write")
	fl := g.flightClient(t)
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", g.bearer("pat")), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr.HTTP+"/v1/databases/d/tables/u/changelog?from=earliest", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", g.bearer("pat"))
	req.Header.Set("Accept", "text/event-stream")
	events, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer events.Body.Close()
	require.Equal(t, 200, events.StatusCode)
	tail, err := fl.DoGet(ctx, &flight.Ticket{Ticket: []byte(`{"op":"scan","table":"d.u$changelog","from":"earliest","until":"never"}`)})
	require.NoError(t, err)
	_, err = tail.Recv()
	require.NoError(t, err)
	put, err := fl.DoPut(ctx)
	require.NoError(t, err)
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	w := flight.NewRecordWriter(put, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"d", "u"}})
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.Int64Builder).Append(1)
	require.NoError(t, w.Write(b.NewRecordBatch()))
	require.Eventually(t, func() bool { // it is open
		return strings.Contains(g.must("root", "GET", "/v1/databases/d/tables/u/count", ""), "1")
	}, 30*time.Second, 10*time.Millisecond)

	back()
	taken := time.Now()
	text, err := io.ReadAll(bufio.NewReader(events.Body))
	require.NoError(t, err)
	require.Contains(t, string(text), "event: problem")
	require.Contains(t, string(text), "database_not_found")
	for {
		if _, err = tail.Recv(); err != nil {
			break
		}
	}
	require.Equal(t, "NotFound", status.Code(err).String(), "%v", err)
	for {
		if _, err = put.Recv(); err != nil {
			break
		}
	}
	require.Equal(t, "NotFound", status.Code(err).String(), "%v", err)
	require.Less(t, time.Since(taken), 30*time.Second) // 5 s on a machine that does nothing else
	t.Logf("ended after %v", time.Since(taken))
}

// An idempotency key, and a writer's number, are of who uses them: what one caller has sent
// is not taken for what another one sends.
func TestKeysAreOfTheirCaller(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.grant("group:anns", "d", "read,write")
	g.grant("group:bobs", "d", "read,write")
	send := func(user, path, body string, header ...string) (int, string) {
		code, answer, _ := g.ask(t, "POST", path, body, append([]string{"Authorization", g.bearer(user)}, header...)...)
		return code, answer
	}
	const records = "/v1/databases/d/tables/u/records"
	rows := 0
	for _, form := range []struct {
		path, body string
		header     []string
	}{
		{records, `{"rows":[{"a":1}]}`, []string{"Idempotency-Key", "k1"}},
		{records, `{"rows":[{"a":2}]}`, []string{"X-Writer-Id", "w", "X-Writer-Seq", "1"}},
		{"/v1/sql", sqlOf("INSERT INTO d.u VALUES (3)"), []string{"Idempotency-Key", "k3"}},
	} {
		for _, user := range []string{"ann", "bob", "ann", "bob"} {
			code, answer := send(user, form.path, form.body, form.header...)
			require.Equal(t, http.StatusOK, code, answer)
		}
		rows += 2
		require.Contains(t, g.must("root", "GET", "/v1/databases/d/tables/u/count", ""), fmt.Sprintf(`"count":%d`, rows), "%v", form)
	}
}
