package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// browserRequest is what a browser sends for a page.
type browserRequest struct {
	method  string
	headers map[string]string
}

func (f *testFront) send(t *testing.T, b browserRequest) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), b.method, f.base+"/v1/things/1", strings.NewReader(""))
	require.NoError(t, err)
	for k, v := range b.headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// A page of another origin can make a browser send requests here: without being asked for
// those that are simple, after a preflight for the others. None that changes anything gets
// through, unless the origin is one that may; and only such a page may read answers.
func TestPagesOfOtherOrigins(t *testing.T) {
	f := newTestFront(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"ok":true}`) }))
	f.pages = newPages([]string{"https://app.example.com"})
	from := func(origin, site string) map[string]string {
		return map[string]string{"Origin": origin, "Sec-Fetch-Site": site}
	}
	for name, c := range map[string]struct {
		b    browserRequest
		want int
		read bool // the page may read the answer
	}{
		"simple post of a page":           {browserRequest{"POST", from("https://evil.example", "cross-site")}, 403, false},
		"the same of an old browser":      {browserRequest{"POST", map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"}}, 403, false},
		"of a file or a sandbox":          {browserRequest{"POST", from("null", "cross-site")}, 403, false},
		"of another port of this machine": {browserRequest{"POST", map[string]string{"Origin": "http://127.0.0.1:1"}}, 403, false},
		"of a sister site":                {browserRequest{"POST", from("https://other.example.com", "same-site")}, 403, false},
		"a form without origin":           {browserRequest{"POST", map[string]string{"Sec-Fetch-Site": "cross-site"}}, 403, false},
		"a get, which shows it nothing":   {browserRequest{"GET", from("https://evil.example", "cross-site")}, 200, false},
		"our own page":                    {browserRequest{"POST", from(f.base, "same-origin")}, 200, false},
		"our own page, old browser":       {browserRequest{"POST", map[string]string{"Origin": f.base}}, 200, false},
		"no browser":                      {browserRequest{"POST", nil}, 200, false},
		"a page that may":                 {browserRequest{"POST", from("https://app.example.com", "cross-site")}, 200, true},
		"a page that may, reading":        {browserRequest{"GET", from("https://app.example.com", "cross-site")}, 200, true},
		"another port of it":              {browserRequest{"POST", from("https://app.example.com:8443", "cross-site")}, 403, false},
		"a longer name":                   {browserRequest{"POST", from("https://app.example.com.evil.example", "cross-site")}, 403, false},
	} {
		status, h := f.send(t, c.b)
		require.Equal(t, c.want, status, name)
		require.Equal(t, c.read, h.Get("Access-Control-Allow-Origin") != "", name)
		require.Empty(t, h.Get("Access-Control-Allow-Credentials"), name)
		require.Equal(t, "Origin", h.Get("Vary"), name)
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), name)
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'", name)
		if c.read {
			require.Equal(t, "https://app.example.com", h.Get("Access-Control-Allow-Origin"))
			for _, one := range []string{"X-Request-Id", "X-Millrace-Stats", "ETag", "Retry-After"} {
				require.Contains(t, h.Get("Access-Control-Expose-Headers"), one)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A preflight is answered for origins that may, without a token, and refused to others.
func TestPreflight(t *testing.T) {
	f := newTestFront(t, okAPI())
	ask := func(origin string) (int, http.Header) {
		return f.send(t, browserRequest{"OPTIONS", map[string]string{
			"Origin": origin, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,content-type", "Access-Control-Request-Private-Network": "true",
		}})
	}
	status, h := ask("https://app.example.com")
	require.Equal(t, 403, status, "nobody may, unless it was said")
	require.Empty(t, h.Get("Access-Control-Allow-Origin"))
	f.pages = newPages([]string{"https://app.example.com"})
	f.callers = keyring{}
	status, h = ask("https://app.example.com")
	require.Equal(t, 204, status)
	require.Equal(t, "https://app.example.com", h.Get("Access-Control-Allow-Origin"))
	require.Contains(t, h.Get("Access-Control-Allow-Methods"), "PUT")
	require.Contains(t, h.Get("Access-Control-Allow-Headers"), "Authorization")
	require.Contains(t, h.Get("Access-Control-Allow-Headers"), "Idempotency-Key")
	require.Equal(t, "true", h.Get("Access-Control-Allow-Private-Network"))
	status, _ = ask("https://evil.example")
	require.Equal(t, 403, status)
	// The answer that says that a token is needed can be read by the page.
	status, h = f.send(t, browserRequest{"GET", map[string]string{"Origin": "https://app.example.com"}})
	require.Equal(t, 401, status)
	require.Equal(t, "https://app.example.com", h.Get("Access-Control-Allow-Origin"))
	http.DefaultClient.CloseIdleConnections()
}

// Where every origin may call, a page has to bring a token for what changes something: a
// client certificate is added by the browser, whosever page it is.
func TestEveryOrigin(t *testing.T) {
	f := newTestFront(t, okAPI())
	f.pages = newPages([]string{"*"})
	h := map[string]string{"Origin": "https://any.example", "Sec-Fetch-Site": "cross-site"}
	status, _ := f.send(t, browserRequest{"POST", h})
	require.Equal(t, 403, status)
	status, _ = f.send(t, browserRequest{"GET", h})
	require.Equal(t, 200, status)
	h["Authorization"] = "Bearer x"
	status, got := f.send(t, browserRequest{"POST", h})
	require.Equal(t, 405, status, "it came through to the API, which knows no POST there")
	require.Equal(t, "https://any.example", got.Get("Access-Control-Allow-Origin"))
	http.DefaultClient.CloseIdleConnections()
}
