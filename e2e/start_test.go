package e2e

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refusedStart runs serve, which must end by itself, and gives its exit code and what it says.
func refusedStart(t *testing.T, dir string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(within(t, patience), binaryPath, append([]string{"serve", "--data-dir", dir, "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0"}, args...)...)
	cmd.Env = bareEnviron()
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	return cmd.ProcessState.ExitCode(), string(out)
}

// alone starts a single node as somebody would who has read nothing, also where the others are
// clusters.
func alone(t *testing.T, dir string, env []string, flags ...string) *server {
	t.Helper()
	s := &server{dir: dir, flags: flags, env: env, log: &tailBuffer{all: true}}
	require.NoError(t, s.launchAlone())
	t.Cleanup(func() {
		s.showLog(t)
		s.kill()
	})
	return s
}

// A server that was told nothing is safe: it is on loopback, answers to no other name, says
// that it asks nobody who he is, and what it keeps is its owner's alone.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := alone(t, dir, nil)
	for _, address := range []string{strings.TrimPrefix(s.base, "http://"), s.flight} {
		host, _, err := net.SplitHostPort(address)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", host)
	}
	s.says(t, "ready ", `authentication="off: this machine alone is served, and everybody on it may do everything"`)
	require.NotContains(t, s.log.String(), "WRN", "a new user has done nothing wrong")
	for path, mode := range map[string]os.FileMode{"": 0o700, "auth": 0o700, "catalog": 0o700, "auth/dev-key.json": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	req, err := http.NewRequestWithContext(within(t, patience), "GET", s.base+"/v1/info", nil)
	require.NoError(t, err)
	req.Host = "evil.example.com"
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 403, resp.StatusCode)

	code, out := refusedStart(t, dir)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, dir, "whose directory it is")
}

// To be reached from other machines takes a decision, for each port; what one gives up by
// --insecure is said at each start, and what authentication lacks, too.
func TestStartOnANetwork(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--http-addr", "--flight-addr", "--metrics-addr"} {
		for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
			code, out := refusedStart(t, t.TempDir(), flag, address)
			require.Equal(t, 2, code, out)
			for _, says := range []string{"setting " + strings.TrimPrefix(flag, "--"), "can be reached from other machines", "there is no authentication", "--auth-jwks", "--insecure"} {
				require.Contains(t, out, says)
			}
		}
	}
	s := alone(t, t.TempDir(), []string{"MILLRACE_INSECURE=true", "MILLRACE_METRICS_ADDR=0.0.0.0:0"})
	s.says(t, "WRN unsafe setting setting=insecure", "other machines are served", `authentication="off: whoever can reach it may do everything"`)
	s = alone(t, t.TempDir(), nil, "--auth-jwks", "dev", "--metrics-addr", "0.0.0.0:0", "--admin-principal", "user:root")
	s.says(t, `WRN unsafe setting setting=auth-jwks why="the development key is trusted: whoever can read`, "authentication=tokens")
}

// A key that others on the machine can read is not used: the server says whose file it is and
// what to do. While it is trusted nowhere, it is said all the same.
func TestStartWithAKeyThatOthersRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alone(t, dir, nil).drain(t)
	key := filepath.Join(dir, "auth", "dev-key.json")
	for _, mode := range []os.FileMode{0o644, 0o640, 0o602} {
		require.NoError(t, os.Chmod(key, mode))
		code, out := refusedStart(t, dir, "--auth-jwks", "dev")
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "chmod 600 "+key)
	}
	s := alone(t, dir, nil)
	s.says(t, "WRN the development key is not safe")
	require.Equal(t, 0, s.drain(t))
	require.NoError(t, os.Chmod(key, 0o600))
	s = alone(t, dir, nil, "--auth-jwks", "dev")
	require.Equal(t, 401, s.do(t, "GET", "/v1/info", nil).status)

	a := newAuthority(t)
	a.issue(t, "server")
	require.NoError(t, os.Chmod(a.path("server.key"), 0o644))
	code, out := refusedStart(t, t.TempDir(), "--tls-cert", a.path("server.pem"), "--tls-key", a.path("server.key"))
	require.NotZero(t, code)
	require.Contains(t, out, a.path("server.key"))
	require.Contains(t, out, "chmod 600")
}

// A server whose clock is behind takes no tokens of others, which for it are of the future; it
// says so where an operator looks, once, and not to who asks. It serves without tokens, whatever
// its clock is.
func TestStartWithAClockThatIsOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := alone(t, dir, []string{"MILLRACE_CLOCK_AHEAD=-1h"}, "--auth-jwks", "dev", "--admin-principal", "user:root")
	token := s.cliOK(t, "token", "--user", "root", "--data-dir", dir)[0]
	for range 3 {
		a := s.do(t, "GET", "/v1/info", nil, "Authorization", "Bearer "+token)
		require.Equal(t, 401, a.status)
		require.NotContains(t, string(a.body), "clock")
	}
	require.Equal(t, 0, s.drain(t))
	require.Equal(t, 1, strings.Count(s.log.String(), "WRN a good token is of the future"), s.log.String())
	require.Contains(t, s.log.String(), "the clock of this machine")
	for _, ahead := range []string{"-1h", "2h"} {
		s = alone(t, dir, []string{"MILLRACE_CLOCK_AHEAD=" + ahead})
		db := "d" + strings.TrimLeft(ahead, "-")
		s.ok(t, "POST", "/v1/databases", obj{"name": db})
		tb := create(t, s, db, "t", "id BIGINT", "id", 1)
		tb.write(t, `[{"id":1}]`)
		require.Equal(t, "1", tb.count(t, ""))
		require.Equal(t, 0, s.drain(t))
	}
}
