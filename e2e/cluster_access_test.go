package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/cluster/natstest"
)

// issuer signs tokens, and has its public key in a file.
type issuer struct {
	key  ed25519.PrivateKey
	file string
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	i := &issuer{key, filepath.Join(t.TempDir(), "keys.json")}
	set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"k1","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	require.NoError(t, os.WriteFile(i.file, []byte(set), 0o600))
	return i
}

// bearer is the authorization of a user for the next hour.
func (i *issuer) bearer(t testing.TB, user string) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"sub": user, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()})
	token.Header["kid"] = "k1"
	text, err := token.SignedString(i.key)
	require.NoError(t, err)
	return "Bearer " + text
}

// accessCluster is two workers and two fronts that know callers by their tokens.
type accessCluster struct {
	keys            *issuer
	workers, fronts []*server
	client          *http.Client
}

func newAccessCluster(t *testing.T, flags ...string) *accessCluster {
	t.Helper()
	c := &accessCluster{keys: newIssuer(t), client: &http.Client{Timeout: time.Minute}}
	t.Cleanup(c.client.CloseIdleConnections)
	nats, err := natstest.Start(t.Context(), natstest.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(nats.Close)
	place := "file://" + t.TempDir()
	process := func(name, roles string) *server {
		s := &server{dir: t.TempDir(), log: &tailBuffer{}}
		s.flags = append([]string{
			"--roles", roles, "--worker-name", name, "--nats-url", nats.URLs(), "--shards", "4", "--lake-uri", place + "/lake", "--remote-uri", place + "/remote",
			"--auth-jwks", c.keys.file, "--admin-principal", "user:root",
		}, flags...)
		require.NoError(t, s.launchAlone())
		t.Cleanup(func() { s.showLog(t); s.kill() })
		return s
	}
	c.workers = []*server{process("worker1", "worker"), process("worker2", "worker")}
	c.fronts = []*server{process("front1", "front,tier"), process("front2", "front")}
	return c
}

// as makes a request of a user, who may be nobody.
func (c *accessCluster) as(t *testing.T, user string, front int, method, path string, body any, headers ...string) answer {
	t.Helper()
	if user != "" {
		headers = append(headers, "Authorization", c.keys.bearer(t, user))
	}
	a, err := ask(c.client, method, c.fronts[front].base+path, body, headers...)
	require.NoError(t, err)
	return a
}

// ok is as for a request that must succeed.
func (c *accessCluster) ok(t *testing.T, user string, front int, method, path string, body any, headers ...string) string {
	t.Helper()
	a := c.as(t, user, front, method, path, body, headers...)
	require.Less(t, a.status, 300, "%s %s as %s: %s", method, path, user, a.body)
	return string(a.body)
}

// soon waits for what has to hold at a front within 5 s of the answer of another one.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	require.Eventually(t, holds, 30*time.Second, 5*time.Millisecond, what) // 5 s on a machine that does nothing else
	t.Logf("%s after %v", what, time.Since(began))
}

// A cluster of two workers and two fronts knows callers by their tokens. What is granted at
// one front holds at the other soon after, for reads and writes that go over several
// processes, small and large; what is taken back ends there too, also what is open; and no
// process refuses another, also while shards move.
func TestClusterWithGrants(t *testing.T) {
	c := newAccessCluster(t)
	as := func(user string, front int, method, path string, body any) answer {
		t.Helper()
		return c.as(t, user, front, method, path, body)
	}
	ok := func(user string, front int, method, path string, body any) string {
		t.Helper()
		return c.ok(t, user, front, method, path, body)
	}
	const table = "/v1/databases/d/tables/t"
	ok("root", 0, "POST", "/v1/databases", obj{"name": "d"})
	ok("root", 0, "POST", "/v1/databases/d/tables", obj{"name": "t", "columns": columnList("id BIGINT, v STRING, s STRING"), "primary_key": []string{"id"}, "buckets": 8})
	write := func(user string, front, from int, v string) {
		t.Helper()
		var rows []obj
		for id := from; id < from+20; id++ {
			rows = append(rows, obj{"id": id, "v": v, "s": "secret"})
		}
		ok(user, front, "POST", table+"/records", obj{"rows": rows})
	}
	long := strings.Repeat("x", 50_000) // long ones go by HTTP between processes, short ones by NATS
	write("root", 0, 0, "short")
	write("root", 1, 20, long)

	require.Equal(t, 401, as("", 1, "GET", table, nil).status)
	require.Equal(t, 404, as("pat", 1, "GET", table+"/count", nil).status, "without a grant there is nothing")
	grant := func(columns ...string) (back func()) {
		spec := obj{"principal": "user:pat", "on": "d.t", "verbs": []string{"read", "write"}}
		if columns != nil {
			spec["verbs"], spec["columns"] = []string{"read"}, columns
		}
		a := as("root", 0, "POST", "/v1/grants", spec)
		require.Equal(t, 201, a.status, "%s", a.body)
		id := a.object(t)["id"].(string)
		return func() { ok("root", 0, "DELETE", "/v1/grants/"+id, nil) }
	}
	back := grant("id", "v")
	soon(t, "a grant of columns holds at the other front", func() bool { return as("pat", 1, "GET", table+"/scan?columns=id,v", nil).status == 200 })
	denied := as("pat", 1, "GET", table+"/scan", nil)
	require.Equal(t, 403, denied.status)
	require.Contains(t, string(denied.body), "column_denied")
	require.NotContains(t, string(denied.body), "secret")
	back()
	back = grant()
	soon(t, "a grant holds at the other front", func() bool { return as("pat", 1, "GET", table+"/scan", nil).status == 200 })

	all := func(user string, front, rows int) {
		t.Helper()
		require.Contains(t, ok(user, front, "GET", table+"/count", nil), fmt.Sprintf(`"count":%d`, rows))
		require.Equal(t, rows, strings.Count(ok(user, front, "POST", "/v1/sql", obj{"sql": "SELECT s FROM d.t"}), "secret"))
		for id := range rows {
			ok(user, front, "GET", table+fmt.Sprintf("/rows/%d", id), nil)
		}
	}
	write("pat", 1, 40, "short")
	write("pat", 1, 60, long)
	all("pat", 1, 80)
	all("root", 0, 80)

	// What is open at one front when the grant is taken back at the other ends.
	ctx := within(t, 2*time.Minute)
	req, err := http.NewRequestWithContext(ctx, "GET", c.fronts[1].base+table+"/changelog?from=latest", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", c.keys.bearer(t, "pat"))
	req.Header.Set("Accept", "text/event-stream")
	events, err := (&http.Client{}).Do(req)
	require.NoError(t, err)
	defer events.Body.Close()
	require.Equal(t, 200, events.StatusCode)
	flights, err := flight.NewClientWithMiddleware(c.fronts[1].flight, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer flights.Close()
	tail, err := flights.DoGet(metadata.AppendToOutgoingContext(ctx, "authorization", c.keys.bearer(t, "pat")),
		&flight.Ticket{Ticket: []byte(`{"op":"scan","table":"d.t$changelog","from":"latest","until":"never"}`)})
	require.NoError(t, err)
	_, err = tail.Recv()
	require.NoError(t, err)
	back()
	taken := time.Now()
	text, err := io.ReadAll(events.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "database_not_found")
	for err == nil {
		_, err = tail.Recv()
	}
	require.Contains(t, err.Error(), "d", "the tail says what is not there")
	require.NotContains(t, err.Error(), "deadline")
	t.Logf("streams ended after %v", time.Since(taken))
	require.Less(t, time.Since(taken), 30*time.Second)
	require.Equal(t, 404, as("pat", 1, "GET", table+"/count", nil).status)

	// A worker leaves: its shards go to the other one, and the caller's requests with them.
	grant()
	soon(t, "a grant holds anew", func() bool { return as("pat", 1, "GET", table+"/count", nil).status == 200 })
	require.Zero(t, c.workers[0].drain(t))
	write("pat", 1, 80, long)
	all("pat", 1, 100)
	for _, s := range append(c.fronts, c.workers...) {
		for _, word := range []string{"nobody said who calls", "a token of the cluster", c.keys.bearer(t, "pat")[:40]} {
			require.NotContains(t, s.log.String(), word)
		}
	}
}
