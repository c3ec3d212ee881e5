package e2e

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/millrace/millrace/objstore/objstoretest"
)

// Secrets that callers and the operator use. What callers send has the same word in it however
// it is written.
const (
	canaryValue    = "canaryvalue7f3a91"  // in rows
	canaryFilter   = "canaryfilter7f3a91" // what is looked for
	canaryKey      = "canarykey7f3a91"    // the key of a row
	canaryToken    = "canarytoken7f3a91"  // a token that is none
	canaryS3       = "canaryobjectstore7f3a91"
	canaryCatalog  = "canarycatalog7f3a91"
	canaryPassword = "canarypassword7f3a91"
)

// bearer is a token that goes with every call of a connection of Flight.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}
func (bearer) RequireTransportSecurity() bool { return false }

// canary is a server with authentication, whose secrets are looked for.
type canary struct {
	*server

	t       *testing.T
	tokens  map[string]string // by user
	needles map[string]string // what must not be found, by what it is
}

// ask makes a request as a user; what is answered is the caller's own.
func (c *canary) ask(user, method, path string, body any, headers ...string) answer {
	c.t.Helper()
	token, ok := c.tokens[user]
	if !ok {
		token = user
	}
	a, err := c.send(method, path, body, append([]string{"Authorization", "Bearer " + token}, headers...)...)
	require.NoError(c.t, err)
	return a
}

// clean checks that a text has none of the secrets, as they are, in base64 or in hex.
func (c *canary) clean(where, text string) {
	c.t.Helper()
	lower := strings.ToLower(text)
	for what, secret := range c.needles {
		forms := []string{strings.ToLower(secret), hex.EncodeToString([]byte(secret))}
		for skip := range 3 { // wherever it begins in what was encoded
			coded := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x", skip) + secret))
			forms = append(forms, strings.ToLower(coded[4:len(coded)-2]))
		}
		for _, form := range forms {
			if i := strings.Index(lower, form); i >= 0 {
				require.Failf(c.t, "a secret is in "+where, "the %s: …%s…", what, text[max(0, i-400):min(len(text), i+len(form)+200)])
			}
		}
	}
}

// everyDoor uses the secrets over every door, as a user who may do all of it or nothing: in
// requests that are good, and in ones that are not.
func (c *canary) everyDoor(user string) {
	const table = "/v1/databases/d/tables/t"
	condition := "v = '" + canaryFilter + "'"
	broken := []string{condition + " AND (", "v = " + canaryFilter, "n = '" + canaryFilter + "'", canaryFilter + "(v)"}
	row := fmt.Sprintf(`{"id":"%s","v":"%s","n":1}`, canaryKey, canaryValue)
	wrong := fmt.Sprintf(`{"id":"%s","v":"%s","n":"%s"}`, canaryKey, canaryValue, canaryValue)
	keyed := url.Values{"pk.id": {canaryKey}}.Encode()
	for _, of := range []struct {
		method, path string
		body         any
		headers      []string
	}{
		{"POST", table + "/records", `{"rows":[` + row + `]}`, nil},
		{"POST", table + "/records", `{"rows":[` + wrong + `]}`, nil},
		{"POST", table + "/records", `{"rows":[` + row + `,"` + canaryValue + `"`, nil},
		{"POST", table + "/records", `{"rows":[{"id":"` + canaryKey + `","` + canaryValue + `":1}]}`, nil},
		{"POST", table + "/records", row + "\n" + row, []string{"Content-Type", mediaNDJSON}},
		{"POST", table + "/records", row + "\n" + wrong + "\n" + canaryValue, []string{"Content-Type", mediaNDJSON}},
		{"POST", table + "/records", strings.Repeat(canaryValue, 100), []string{"Content-Type", mediaArrow}},
		{"POST", table + "/records", row, []string{"Content-Type", "text/" + canaryValue}},
		{"PUT", table + "/rows/" + canaryKey, `{"v":"` + canaryValue + `","n":1}`, nil},
		{"PATCH", table + "/rows/" + canaryKey, `{"v":"` + canaryValue + `"}`, nil},
		{"PATCH", table + "/rows/" + canaryKey, `{"n":"` + canaryValue + `"}`, nil},
		{"GET", table + "/rows/" + canaryKey, nil, nil},
		{"GET", table + "/rows/" + canaryKey + "nix", nil, nil},
		{"GET", table + "/row/" + canaryKey, nil, nil},
		{"GET", table + "/rows?" + keyed, nil, nil},
		{"GET", table + "/rows?pk.nix=" + canaryKey, nil, nil},
		{"DELETE", table + "/rows/" + canaryKey + "nix", nil, nil},
		{"POST", table + "/rows/" + canaryKey, nil, nil},
		{"POST", table + "/lookup", `{"keys":[{"id":"` + canaryKey + `"}]}`, nil},
		{"POST", table + "/lookup", `{"keys":[{"id":["` + canaryKey + `"]}]}`, nil},
		{"POST", table + "/prefix-lookup", `{"prefix":{"id":"` + canaryKey + `"}}`, nil},
		{"GET", table + "/count?filter=" + url.QueryEscape(condition), nil, nil},
		{"GET", table + "/changelog?from=earliest&wait=0s&filter=" + url.QueryEscape(condition), nil, nil},
		{"GET", table + "/changelog?from=" + canaryFilter, nil, nil},
		{"GET", table + "/scan?page_token=" + canaryFilter, nil, nil},
		{"POST", "/v1/sql", obj{"sql": "INSERT INTO d.t VALUES ('" + canaryKey + "', '" + canaryValue + "', 1)"}, nil},
		{"POST", "/v1/sql", obj{"sql": "INSERT INTO d.t VALUES ('" + canaryKey + "', '" + canaryValue + "', '" + canaryValue + "')"}, nil},
		{"POST", "/v1/sql", obj{"sql": "SELECT * FROM d.t WHERE " + condition}, nil},
		{"POST", "/v1/sql", obj{"sql": "SELECT * FROM d.t WHERE id = ?", "params": []string{canaryKey}}, nil},
		{"POST", "/v1/sql", obj{"sql": "DELETE FROM d.t WHERE id = '" + canaryKey + "nix'"}, nil},
		{"POST", "/v1/sql", obj{"sql": "SELEC '" + canaryFilter + "'"}, nil},
		{"POST", "/v1/" + canaryKey, nil, nil},
		{"GET", "/iceberg/v1/namespaces/d/tables/t", nil, []string{"X-Iceberg-Access-Delegation", canaryToken}},
		{"POST", "/iceberg/v1/oauth/tokens", "grant_type=client_credentials&client_secret=" + canaryToken, []string{"Content-Type", "application/x-www-form-urlencoded"}},
	} {
		c.ask(user, of.method, of.path, of.body, of.headers...)
	}
	for _, f := range append(broken, condition) {
		for _, accept := range []string{mediaJSON, mediaNDJSON, mediaArrow} {
			c.ask(user, "POST", table+"/scan", obj{"filter": f}, "Accept", accept)
		}
		c.ask(user, "GET", table+"/scan?filter="+url.QueryEscape(f), nil)
	}
	c.flight(user, row, append(broken, condition))
}

func (c *canary) flight(user, row string, filters []string) {
	token, ok := c.tokens[user]
	if !ok {
		token = user
	}
	raw, err := flight.NewClientWithMiddleware(c.server.flight, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(bearer(token)))
	require.NoError(c.t, err)
	fc := &flightConn{raw}
	defer fc.close()
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.BinaryTypes.String}, {Name: "v", Type: arrow.BinaryTypes.String}, {Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	key := arrow.NewSchema(schema.Fields()[:1], nil)
	ctx := within(c.t, 2*time.Minute)
	to := command(c.t, obj{"op": "put", "table": "d.t"})
	// What comes of it is the caller's; some are refused.
	_, _ = fc.putAll(c.t, to, batch(c.t, schema, "["+row+"]"))
	text := arrow.NewSchema([]arrow.Field{schema.Field(0), schema.Field(1), {Name: "n", Type: arrow.BinaryTypes.String}}, nil)
	_, _ = fc.putAll(c.t, to, batch(c.t, text, fmt.Sprintf(`[{"id":"%s","v":"%s","n":"%s"}]`, canaryKey, canaryValue, canaryValue)))
	_, _ = fc.exchange(c.t, obj{"op": "lookup", "table": "d.t"}, batch(c.t, key, `[{"id":"`+canaryKey+`"}]`))
	_, _ = fc.exchange(c.t, obj{"op": "lookup", "table": "d.t"}, batch(c.t, text, fmt.Sprintf(`[{"id":"%s","v":"%s"}]`, canaryKey, canaryValue)))
	_, _ = fc.action(c.t, "millrace.get_row_by_key", obj{"database": "d", "table": "t", "key": canaryKey})
	_, _ = fc.action(c.t, "millrace.execute_sql", obj{"sql": "SELECT v FROM d.t WHERE v = '" + canaryFilter + "'"})
	_, _ = fc.action(c.t, "millrace."+canaryKey, obj{})
	for _, f := range filters {
		if info, err := fc.GetFlightInfo(ctx, command(c.t, obj{"op": "scan", "table": "d.t", "filter": f})); err == nil {
			for _, e := range info.Endpoint {
				_, _ = fc.get(ctx, e.Ticket.Ticket)
			}
		}
		b, err := json.Marshal(obj{"op": "scan", "table": "d.t", "filter": f})
		require.NoError(c.t, err)
		_, _ = fc.get(ctx, b)
	}
	_, _ = fc.get(ctx, []byte(canaryFilter))
	if s, err := fc.Handshake(ctx); err == nil {
		_ = s.Send(&flight.HandshakeRequest{Payload: []byte(canaryToken)})
		_ = s.CloseSend()
		_, _ = s.Recv()
	}
}

// What callers and operators keep to themselves, tokens, values, filters, keys and passwords,
// is used over every door, in requests that are good and in ones that are not, while everything
// is logged and traced. It is then in no log, metric, span, profile, crash dump, audit log, nor
// in what others are answered.
func TestCanary(t *testing.T) {
	t.Parallel()
	spans, endpoint, _ := newSpanTaker(t)
	store := objstoretest.StartFake(t)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	c := &canary{t: t, tokens: map[string]string{}, server: &server{dir: t.TempDir(), log: &tailBuffer{all: true}}}
	c.flags = []string{
		"--auth-jwks", "dev", "--admin-principal", "user:root", "--log-level", "debug", "--log-format", "json", "--otlp-endpoint", endpoint,
		"--debug-addr", "127.0.0.1:0", "--audit-log", path, "--audit-table", "ops.audit",
		"--lake-uri", store.URI("lakes"), "--remote-uri", store.URI("remote"), "--s3-endpoint", store.Endpoint, "--s3-region", objstoretest.Region, "--s3-path-style",
		"--lake-catalog", "rest", "--lake-catalog-uri", "http://127.0.0.1:1/catalog",
	}
	c.env = []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=" + canaryS3, "MILLRACE_LAKE_CATALOG_PROPERTIES=token=" + canaryCatalog}
	require.NoError(t, c.launchAlone())
	t.Cleanup(func() {
		c.showLog(t)
		c.kill()
	})
	c.needles = map[string]string{
		"value of a row": canaryValue, "filter": canaryFilter, "key of a row": canaryKey, "token that is none": canaryToken,
		"password of the object store": canaryS3, "token for a catalog": canaryCatalog,
	}
	for _, user := range []string{"root", "pat", "bob"} {
		c.tokens[user] = c.cliOK(t, "token", "--user", user, "--data-dir", c.dir)[0]
		c.needles["signature of "+user+"'s token"] = c.tokens[user][strings.LastIndex(c.tokens[user], ".")+1:]
		c.needles["payload of "+user+"'s token"] = strings.Split(c.tokens[user], ".")[1]
	}
	var key struct{ D string }
	b, err := os.ReadFile(filepath.Join(c.dir, "auth", "dev-key.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &key))
	require.Greater(t, len(key.D), 40)
	c.needles["development key"] = key.D

	must := func(method, path string, body any) {
		t.Helper()
		a := c.ask("root", method, path, body)
		require.Less(t, a.status, 300, "%s %s: %s", method, path, a.body)
	}
	must("POST", "/v1/databases", obj{"name": "d"})
	must("POST", "/v1/databases/d/tables", obj{
		"name": "t", "columns": columnList("id STRING, v STRING, n BIGINT"), "primary_key": []string{"id"}, "buckets": 2,
		"properties": obj{"table.datalake.enabled": "true", "table.datalake.freshness": "1s"},
	})
	must("POST", "/v1/grants", obj{"principal": "user:bob", "on": "d", "verbs": []string{"describe"}})
	for _, user := range []string{"root", "pat", canaryToken, canaryToken + ".x.y", c.tokens["root"] + "x"} {
		c.everyDoor(user)
	}
	for _, header := range []string{canaryToken, "Basic " + base64.StdEncoding.EncodeToString([]byte("token:"+canaryToken)), "Bearer " + canaryToken + " " + canaryToken} {
		a, err := c.send("GET", "/v1/info?access_token="+canaryToken, nil, "Authorization", header)
		require.NoError(t, err)
		require.Equal(t, 401, a.status)
		c.clean("the answer to a bad token", string(a.body))
	}
	// What is written is there, so the secrets were used.
	found := c.ask("root", "GET", "/v1/databases/d/tables/t/rows/"+canaryKey, nil)
	require.Contains(t, string(found.body), canaryValue)
	must("GET", "/v1/databases/d/tables/t/lake", nil)
	c.ask("root", "POST", "/v1/databases/d/tables/t/lake/tier", nil) // to a catalog that is away

	for _, path := range []string{
		"/v1/databases/d/tables/t", "/v1/databases/d/tables/t/scan", "/v1/databases/d/tables/t/rows/other", "/v1/databases/d/tables/t/lake", "/v1/databases/d/tables/t/buckets",
		"/v1/databases/d/tables/t/scan?filter=v", "/v1/cluster", "/v1/info", "/v1/grants", "/iceberg/v1/namespaces/d/tables/t", "/nix", "/metrics",
	} {
		c.clean("what another is answered at "+path, string(c.ask("bob", "GET", path, nil).body))
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		c.clean(path, string(c.do(t, "GET", path, nil).body))
	}
	var at struct{ Debug string }
	b, err = os.ReadFile(filepath.Join(c.dir, "addresses.json"))
	require.NoError(t, err)
	c.clean("addresses.json", string(b))
	require.NoError(t, json.Unmarshal(b, &at))
	for _, path := range []string{"/debug/vars", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/allocs?debug=1", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1", "/debug/pprof/symbol"} {
		resp, err := http.Get("http://" + at.Debug + path)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		c.clean(path, string(text))
	}
	count := c.ask("root", "POST", "/v1/sql", obj{"sql": "SELECT * FROM ops.audit"})
	require.Equal(t, 200, count.status)
	require.Contains(t, string(count.body), "execute_sql")
	c.clean("the table of the audit log", string(count.body))

	c.ask("root", "GET", "/v1/info", nil, "X-Request-Id", "canary-last")
	require.Eventually(t, func() bool {
		spans.mu.Lock()
		defer spans.mu.Unlock()
		return strings.Contains(spans.raw.String(), "canary-last")
	}, patience, 50*time.Millisecond)
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGQUIT))
	<-c.done
	require.Contains(t, c.log.String(), "goroutine ", "a dump")
	require.Contains(t, c.log.String(), `"msg":"request"`)
	c.clean("the log", c.log.String())
	b, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(b), "unauthenticated")
	c.clean("the audit log", string(b))
	spans.mu.Lock()
	defer spans.mu.Unlock()
	for _, traced := range []string{"POST /v1/sql", "flight DoExchange", "shard write"} {
		require.Contains(t, spans.raw.String(), traced)
	}
	c.clean("the traces", spans.raw.String())
}

// A start that fails tells of no password: not that of NATS, which cannot be reached, nor what
// stands in a setting that is wrong.
func TestCanaryOfStart(t *testing.T) {
	t.Parallel()
	files := []string{"--remote-uri", "file://" + t.TempDir(), "--lake-uri", "file://" + t.TempDir()}
	for name, args := range map[string][]string{
		"nats":     append([]string{"--nats-url", "nats://mr:" + canaryPassword + "@127.0.0.1:1"}, files...),
		"no nats":  append([]string{"--nats-url", "nats://mr:" + canaryPassword + "@127.0.0.1:1::x"}, files...),
		"system":   {"--nats-system-url", "nats://mr:" + canaryPassword + "@127.0.0.1:1"},
		"catalog":  {"--lake-catalog", "rest", "--lake-catalog-uri", "http://u:" + canaryPassword + "@127.0.0.1:1"},
		"property": {"--lake-catalog", "rest", "--lake-catalog-uri", "http://127.0.0.1:1", "--lake-catalog-properties", "token=" + canaryPassword + ",nix"},
		"keys":     {"--auth-jwks", "https://u:" + canaryPassword + "@127.0.0.1:1/jwks"},
		"spans":    {"--otlp-endpoint", "http://u:" + canaryPassword + "@127.0.0.1:1/x"},
		"lake":     {"--lake-uri", "s3://u:" + canaryPassword + "@bucket/p"},
		"remote":   {"--remote-uri", "s3://u:" + canaryPassword + "@bucket/p"},
		"store":    {"--s3-endpoint", "http://u:" + canaryPassword + "@127.0.0.1:1", "--lake-uri", "s3://bucket/p"},
	} {
		out, ended := &tailBuffer{all: true}, make(chan struct{})
		cmd := exec.Command(binaryPath, append([]string{"serve", "--data-dir", filepath.Join(t.TempDir(), "data"), "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0", "--log-level", "debug"}, args...)...)
		cmd.Env, cmd.Stdout, cmd.Stderr = bareEnviron(), out, out
		require.NoError(t, cmd.Start())
		go func() {
			_ = cmd.Wait() // what it says counts
			close(ended)
		}()
		isEnded := func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}
		require.Eventually(t, func() bool { return isEnded() || strings.Contains(out.String(), "nats cannot be reached") }, patience, 10*time.Millisecond, "%s: %s", name, out)
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
		require.Contains(t, out.String(), "millrace: ", name)
		require.NotContains(t, out.String(), canaryPassword, name)
	}
}
