package server

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Profiles are served at an address of their own, to loopback names only, and nowhere
// else; without the setting there is none.
func TestDebugAddr(t *testing.T) {
	get := func(url, host string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		if host != "" {
			req.Host = host
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	r := startServerWith(t, t.TempDir(), func(s *Settings) { s.DebugAddr = "127.0.0.1:0" })
	defer r.stop(t)
	code, body := get("http://"+r.addr.Debug+"/debug/pprof/goroutine?debug=1", "")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "goroutine profile:")
	code, body = get("http://"+r.addr.Debug+"/debug/vars", "")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "memstats")
	require.NotContains(t, body, "cmdline")
	code, _ = get("http://"+r.addr.Debug+"/debug/vars", "evil.example")
	require.Equal(t, http.StatusForbidden, code)
	for _, other := range []string{r.addr.HTTP, r.addr.Metrics} {
		code, _ = get("http://"+other+"/debug/pprof/", "")
		require.Equal(t, http.StatusNotFound, code)
	}

	s := testSettings(t, t.TempDir())
	require.Empty(t, s.DebugAddr)
	for _, bad := range []string{"0.0.0.0:6060", ":6060", "192.0.2.1:6060", "6060"} {
		s.DebugAddr = bad
		s.Insecure = true // which is of clients, not of profiles
		require.ErrorContains(t, s.Validate(), "debug-addr", bad)
	}
}
