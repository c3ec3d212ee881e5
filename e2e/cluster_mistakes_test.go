package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/natstest"
)

// member is a process of a cluster of one shard with all roles.
func member(t *testing.T, nats *natstest.Servers, place string, flags ...string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), log: &tailBuffer{}}
	s.flags = append([]string{"--nats-url", nats.URLs(), "--shards", "1", "--lake-uri", "file://" + place + "/lake", "--remote-uri", "file://" + place + "/remote"}, flags...)
	t.Cleanup(func() { s.showLog(t); s.kill() })
	return s
}

// A cluster that is pointed at the place of another one is refused at its start, and the other one goes on (cluster.json).
func TestClusterMistakeOnePlace(t *testing.T) {
	place := t.TempDir()
	first := member(t, natstest.StartT(t, 1), place)
	require.NoError(t, first.launch())
	tb := create(t, first, newDB(t, first), "t", "id BIGINT, v BIGINT", "id", 2)
	tb.write(t, `[{"id":1,"v":1}]`)

	second := member(t, natstest.StartT(t, 1), place)
	args := append([]string{"serve", "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0", "--data-dir", second.dir}, second.flags...)
	cmd := exec.CommandContext(within(t, patience), binaryPath, args...)
	cmd.Env = bareEnviron()
	said, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "belongs to a cluster")
	require.Contains(t, string(said), "it needs a place of its own")

	tb.write(t, `[{"id":1,"v":2}]`)
	first.kill()
	require.NoError(t, first.launch())
	require.Equal(t, []string{`{"id":1,"v":2}`}, tb.lookup(t, `[{"id":1}]`))
}

// A process is refused while another one has its name. When that one hangs, it is waited for until it answers nothing
// any more; when it comes to again it says so in its health, and never answers what was true before.
func TestClusterMistakeOneName(t *testing.T) {
	place, nats := t.TempDir(), natstest.StartT(t, 1)
	first, second := member(t, nats, place, "--worker-name", "one"), member(t, nats, place, "--worker-name", "one")
	require.NoError(t, first.launch())
	tb := create(t, first, newDB(t, first), "t", "id BIGINT, v BIGINT", "id", 2)
	tb.write(t, `[{"id":1,"v":1}]`)
	require.ErrorContains(t, second.launch(), "another process runs as worker one")
	require.Equal(t, []string{`{"id":1,"v":1}`}, tb.lookup(t, `[{"id":1}]`))

	require.NoError(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, second.launch())
	there := table{second, tb.db, tb.name}
	require.Eventually(t, func() bool { return there.tryWrite(`[{"id":1,"v":2}]`) == nil }, patience, 50*time.Millisecond)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGCONT))
	c := &http.Client{Timeout: 5 * time.Second}
	for v := 2; v < 12; v++ {
		require.Eventually(t, func() bool { return there.tryWrite(fmt.Sprintf(`[{"id":1,"v":%d}]`, v)) == nil }, patience, 50*time.Millisecond)
		a, err := ask(c, "POST", first.base+tb.path()+"/lookup", `{"keys":[{"id":1}]}`)
		if err == nil && a.status == http.StatusOK { // by way of the other one
			require.Equal(t, []string{fmt.Sprintf(`{"id":1,"v":%d}`, v)}, rowsOf(t, a.body, "rows"))
		}
		require.Equal(t, []string{fmt.Sprintf(`{"id":1,"v":%d}`, v)}, there.lookup(t, `[{"id":1}]`))
	}
	require.Eventually(t, func() bool {
		a, err := ask(c, "GET", first.base+"/healthz", nil)
		return err == nil && a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), "another process runs as worker one")
	}, patience, 50*time.Millisecond)
}

// A cluster whose logs would not have room in NATS is refused at its start, which says what to set.
func TestClusterMistakeStore(t *testing.T) {
	nats, err := natstest.Start(t.Context(), natstest.Options{Dir: t.TempDir(), AccountStore: 4 << 30})
	require.NoError(t, err)
	t.Cleanup(nats.Close)
	place := t.TempDir()
	require.ErrorContains(t, member(t, nats, place).launch(), "make the logs smaller (--log-max-size, for each shard)")
	require.NoError(t, member(t, nats, place, "--log-max-size", "1GiB").launch())
}
