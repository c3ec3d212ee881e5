package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/openapi"
)

// guarded is a server with authentication, whose administrator is user:root, and tables
// d.t (keyed: a, b, c) and d.u.
type guarded struct {
	*running

	t   *testing.T
	key *token.DevKey
	// Of the matrix: grants on a table that is dropped and made again, and the id of a grant
	// that is taken back.
	doomedGrants []func()
	someID       string
	fl           flight.Client
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

// Without a grant a table is not there, in the very words of what is absent, nor in any list;
// IF EXISTS and IF NOT EXISTS tell no more.
func TestWhatIsUnseenIsAbsent(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	fl := g.flightClient(t)
	const table = "/v1/databases/d/tables/t"
	type op struct{ method, path, body string }
	var ops []op
	for id, of := range samples() { // every operation on the table
		for _, o := range openapi.Operations() {
			for _, s := range of {
				if o.ID != id || s.need.on != theTable || s.unseen {
					continue
				}
				req, err := actionRequest(t.Context(), o, g.body(s))
				require.NoError(t, err)
				body, err := io.ReadAll(req.Body)
				require.NoError(t, err)
				ops = append(ops, op{o.Method, req.URL.RequestURI(), string(body)})
			}
		}
	}
	for _, text := range []string{"DESCRIBE d.t", "SELECT * FROM d.t", "INSERT INTO d.t VALUES (1, 'x', 'y')", "ALTER TABLE d.t SET ('owner' = 'x')"} {
		ops = append(ops, op{"POST", "/v1/sql", sqlOf(text)})
	}
	for _, method := range []string{"GET", "HEAD"} {
		ops = append(ops, op{method, "/iceberg/v1/namespaces/d/tables/t", ""})
	}
	require.Greater(t, len(ops), 40)
	absent := strings.NewReplacer("tables/t", "tables/nix", "d.t", "d.nix", "/t$", "/nix$")
	back := g.grant("user:pat", "d.u", "describe") // so that the database is
	for _, o := range ops {
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
		{"POST", "/v1/databases", `{"name":"x"}`},
		{"POST", "/v1/databases", `{"name":"e"}`},
		{"GET", "/v1/cluster", ""},
		{"POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"a","type":"INT"}]}`},
		{"POST", "/v1/databases/d/tables?if_not_exists=true", `{"name":"t","columns":[{"name":"a","type":"INT"}]}`},
		{"DELETE", "/v1/databases/d", ""},
		{"DELETE", "/v1/databases/d/tables/u", ""},
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

// Who may read some columns is not told by the name of a row's partition what those hold that
// he may not read.
func TestColumnGrantsAndPartitions(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.must("root", "POST", "/v1/databases/d/tables", `{"name":"sales","columns":[{"name":"v","type":"STRING"},{"name":"region","type":"STRING"}],"partition_by":["region"],"buckets":1}`)
	g.must("root", "POST", "/v1/databases/d/tables/sales/records", `{"rows":[{"v":"x","region":"secret"}]}`)
	g.grant("user:ann", "d.sales", "read", "v")
	asks := []struct{ method, path, body string }{
		{"POST", "/v1/sql", sqlOf("SELECT v, _partition FROM d.sales")},
		{"POST", "/v1/sql", sqlOf("SELECT v FROM d.sales WHERE _partition = 'region=secret'")},
		{"POST", "/v1/sql", sqlOf("SELECT _partition, COUNT(*) FROM d.sales GROUP BY _partition")},
		{"POST", "/v1/databases/d/tables/sales/scan", `{"columns":["v","_partition"]}`},
		{"GET", "/v1/databases/d/tables/sales/count?filter=_partition%20%3D%20%27region%3Dsecret%27", ""},
		{"GET", "/v1/databases/d/tables/sales/changelog?columns=v&from=earliest", ""},
	}
	for _, a := range asks {
		code, answer := g.as("ann", a.method, a.path, a.body)
		require.Contains(t, answer, "column_denied", "%d %s %s", code, a.path, a.body)
	}
	require.Contains(t, g.must("ann", "POST", "/v1/sql", sqlOf("SELECT v FROM d.sales")), `"x"`)
	g.grant("user:ann", "d.sales", "read", "region")
	for _, a := range asks {
		g.must("ann", a.method, a.path, a.body)
	}
}
