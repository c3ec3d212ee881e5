package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/auth/token/tokentest"
)

// ask makes a request with headers, pairs of name and value, and gives status, body, and the
// answer's headers but for the date.
func (r *running) ask(t *testing.T, method, path, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.addr.HTTP+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	resp.Header.Del("Date")
	return resp.StatusCode, string(b), resp.Header
}

func (r *running) flightClient(t *testing.T) flight.Client {
	t.Helper()
	c, err := flight.NewClientWithMiddleware(r.addr.Flight, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// act runs an action with authorizations.
func act(t *testing.T, c flight.Client, action string, authorization ...string) ([]byte, error) {
	t.Helper()
	md := metadata.Pairs("x-request-id", "fixed")
	md.Append("authorization", authorization...)
	ctx := metadata.NewOutgoingContext(t.Context(), md)
	s, err := c.DoAction(ctx, &flight.Action{Type: action})
	require.NoError(t, err)
	res, err := s.Recv()
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// sendable says whether gRPC's client sends a header at all.
func sendable(headers []string) bool {
	for _, h := range headers {
		if strings.ContainsFunc(h, func(r rune) bool { return r < ' ' || r > '~' }) {
			return false
		}
	}
	return true
}

// Through every door a good token is taken, and every broken one gets the same answer, which
// is the same as for none. Nothing of a token is in the log.
func TestTokensAtEveryDoor(t *testing.T) {
	ring := tokentest.NewRing()
	keys := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(keys, ring.Set(), 0o600))
	r := startServerWith(t, t.TempDir(), func(s *Settings) {
		s.AuthJWKS, s.AuthIssuer, s.AuthAudience, s.LogLevel = keys, tokentest.Issuer, tokentest.Audience, "debug"
	})
	defer r.stop(t)
	now := time.Now()
	fl := r.flightClient(t)
	good := "Bearer " + ring.PSS.Token(now, tokentest.Obj{"groups": []string{"ops"}})
	code, body, _ := r.ask(t, "GET", "/v1/whoami", "", "Authorization", good)
	require.Equal(t, 200, code, body)
	who := fmt.Sprintf(`{"expires_at":%q,"groups":["group:ops"],"principal":"user:ann"}`, now.Add(time.Hour).UTC().Format(time.RFC3339))
	require.JSONEq(t, who, body)
	answer, err := act(t, fl, "millrace.whoami", good)
	require.NoError(t, err)
	require.JSONEq(t, who, string(answer))
	code, _, _ = r.ask(t, "GET", "/iceberg/v1/config", "", "Authorization", good)
	require.Equal(t, 200, code)
	code, body, _ = r.ask(t, "GET", "/v1/info", "", "Authorization", good)
	require.Equal(t, 200, code)
	require.Contains(t, body, `"authentication":true`)

	type refusal struct {
		code    int
		body    string
		headers http.Header
	}
	same := map[string]refusal{}
	var sameStatus []byte
	broken := ring.Broken(now)
	for _, b := range broken {
		for _, path := range []string{"/v1/whoami", "/v1/databases/x/tables/y/rows", "/nowhere", "/metrics", "/iceberg/v1/config", "/iceberg/v1/nowhere"} {
			headers := []string{"X-Request-Id", "fixed"}
			for _, a := range b.Authorization {
				headers = append(headers, "Authorization", a)
			}
			var got refusal
			got.code, got.body, got.headers = r.ask(t, "GET", path, "", headers...)
			require.Equal(t, 401, got.code, "%s: %s", b.Name, path)
			require.Equal(t, `Bearer realm="millrace"`, got.headers.Get("Www-Authenticate"))
			if want, ok := same[path]; ok {
				require.Equal(t, want, got, "%s: %s", b.Name, path)
			}
			same[path] = got
		}
		if !sendable(b.Authorization) {
			continue
		}
		_, err := act(t, fl, "millrace.whoami", b.Authorization...)
		st := status.Convert(err)
		text, merr := proto.Marshal(st.Proto())
		require.NoError(t, merr)
		if sameStatus != nil {
			require.Equal(t, sameStatus, text, b.Name)
		}
		sameStatus = text
		require.Equal(t, "Unauthenticated", st.Code().String(), b.Name)
	}
	_, metrics, _ := r.ask(t, "GET", "/metrics", "", "Authorization", good)
	require.Contains(t, metrics, `millrace_auth_refused_total{reason="signature"}`)
	logs := r.log.String() + metrics
	for _, b := range append(broken, tokentest.Broken{Authorization: []string{good}}) {
		for _, h := range b.Authorization {
			if _, shown, ok := strings.Cut(h, "."); ok && len(shown) > 30 {
				require.NotContains(t, logs, shown[len(shown)-30:], b.Name)
			}
		}
	}
}

// What needs no caller needs none, and what tells of the server does.
func TestOpenPaths(t *testing.T) {
	r := startServerWith(t, t.TempDir(), func(s *Settings) { s.AuthJWKS, s.AdminPrincipal = devKeys, "user:ann" })
	defer r.stop(t)
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/openapi.json": 200, "/docs/": 200, "/docs/errors": 200,
		"/": 401, "/v1/info": 401, "/v1/databases": 401, "/metrics": 401, "/docs/../v1/info": 401, "/docs/%2e%2e/v1/info": 401, "/nowhere": 401, "/internal/v1/call/1": 401,
	} {
		code, body, _ := r.ask(t, "GET", path, "")
		if want == 200 {
			require.Equal(t, want, code, path)
			continue
		}
		require.Contains(t, []int{401, 404, 301}, code, "%s %s", path, body)
		require.NotContains(t, body, "cluster_id")
	}
	resp, err := http.Get("http://" + r.addr.Metrics + "/metrics")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode, "the second address asks for no token")
}

// With the development key a server is of use at once: its token opens it by any Host name,
// and what the server does unasked goes on.
func TestDevelopment(t *testing.T) {
	dir := t.TempDir()
	r := startServerWith(t, dir, func(s *Settings) { s.AuthJWKS, s.AdminPrincipal = devKeys, "user:ann" })
	defer r.stop(t)
	require.Contains(t, r.log.String(), `setting=auth-jwks`, "it is told to be unsafe")
	key, err := token.OpenDevKey(token.DevKeyPath(dir))
	require.NoError(t, err)
	text, err := key.Sign("ann", []string{"dev"}, time.Now(), time.Minute)
	require.NoError(t, err)
	do := func(method, path, body string) string {
		t.Helper()
		code, answer, _ := r.ask(t, method, path, body, "Authorization", "Bearer "+text)
		require.Less(t, code, 300, answer)
		return answer
	}
	do("POST", "/v1/databases", `{"name":"d"}`)
	do("POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"a","type":"BIGINT"}],"buckets":1,"properties":{"table.datalake.enabled":"true","table.datalake.freshness":"1s"}}`)
	do("POST", "/v1/databases/d/tables/t/records", `{"rows":[{"a":1},{"a":2}]}`)
	require.JSONEq(t, `{"columns":[{"name":"EXPR$0","type":"BIGINT"}],"rows":[[2]]}`, strings.ReplaceAll(do("POST", "/v1/sql", `{"sql":"SELECT COUNT(*) FROM d.t"}`), `"COUNT(*)"`, `"EXPR$0"`))
	require.Eventually(t, func() bool {
		return strings.Contains(do("GET", "/v1/databases/d/tables/t/lake", ""), `"snapshot_id"`)
	}, time.Minute, 50*time.Millisecond, "tiering goes on by itself")
}

// Streams that are open when the token expires end and say so.
func TestStreamsEndWithTheirToken(t *testing.T) {
	dir := t.TempDir()
	r := startServerWith(t, dir, func(s *Settings) { s.AuthJWKS, s.AdminPrincipal = devKeys, "user:ann" })
	defer r.stop(t)
	key, err := token.OpenDevKey(token.DevKeyPath(dir))
	require.NoError(t, err)
	long, err := key.Sign("ann", nil, time.Now(), time.Hour)
	require.NoError(t, err)
	for _, c := range [][2]string{{"/v1/databases", `{"name":"d"}`}, {"/v1/databases/d/tables", `{"name":"t","columns":[{"name":"a","type":"BIGINT"}],"buckets":1}`}} {
		code, answer, _ := r.ask(t, "POST", c[0], c[1], "Authorization", "Bearer "+long)
		require.Less(t, code, 300, answer)
	}
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		resp := r.open(t, key, http.MethodGet, accept, nil)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Contains(t, string(b), `"code":"unauthenticated"`, accept)
	}
	// A body that goes on is ended too, with what was taken before.
	pr, pw := io.Pipe()
	go func() {
		for { // as long as somebody takes it
			if _, err := fmt.Fprintln(pw, `{"a":1}`); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	resp := r.open(t, key, http.MethodPost, "application/json", pr)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, pr.Close())
	var p struct {
		Code     string
		Accepted *int
	}
	require.NoError(t, json.Unmarshal([]byte(line), &p))
	require.Equal(t, "unauthenticated", p.Code, line)
	require.NotNil(t, p.Accepted, line)
}

// open begins a stream with a token that is good until the next second but one.
func (r *running) open(t *testing.T, key *token.DevKey, method, accept string, body io.Reader) *http.Response {
	t.Helper()
	text, err := key.Sign("ann", nil, time.Now(), 3*time.Second)
	require.NoError(t, err)
	path := "/v1/databases/d/tables/t/changelog?from=earliest"
	if body != nil {
		path = "/v1/databases/d/tables/t/records"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.addr.HTTP+path, body)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Authorization", "Bearer "+text)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	return resp
}

// A key that others can read keeps a server that trusts it from starting, and is told of by
// one that does not.
func TestDevKeyThatOthersRead(t *testing.T) {
	dir := t.TempDir()
	startServer(t, dir).stop(t)
	require.NoError(t, os.Chmod(token.DevKeyPath(dir), 0o644))
	s := testSettings(t, dir)
	s.AuthJWKS = devKeys
	err := Run(t.Context(), Options{Settings: s, Log: io.Discard})
	require.ErrorContains(t, err, "setting auth-jwks")
	require.ErrorContains(t, err, "chmod 600")
	r := startServer(t, dir)
	defer r.stop(t)
	require.Contains(t, r.log.String(), "the development key is not safe")
}
