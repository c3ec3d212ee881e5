package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/natstest"
)

// A NATS server that does not sync what it writes is refused when its system account can tell, and taken by who insists.
func TestNATSThatDoesNotSync(t *testing.T) {
	for _, sync := range []string{"2m", "always"} {
		nats, err := natstest.Start(t.Context(), natstest.Options{Dir: t.TempDir(), Sync: sync})
		require.NoError(t, err)
		t.Cleanup(nats.Close)
		place := "file://" + t.TempDir()
		flags := []string{"--nats-url", nats.URLs(), "--nats-system-url", nats.SystemURLs(), "--shards", "1", "--lake-uri", place + "/lake", "--remote-uri", place + "/remote"}
		if sync != "always" {
			args := append([]string{"serve", "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0", "--data-dir", t.TempDir()}, flags...)
			cmd := exec.CommandContext(within(t, patience), binaryPath, args...)
			cmd.Env = bareEnviron()
			said, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(said), "sync_interval")
			flags = append(flags, "--insecure-nats")
		}
		s := &server{dir: t.TempDir(), flags: flags, log: &tailBuffer{}}
		t.Cleanup(s.kill)
		require.NoError(t, s.launch())
		require.Zero(t, s.drain(t))
		require.Equal(t, sync != "always", containsAny(s.log.String(), "sync_interval", "does not sync"), s.log.String())
	}
}

func containsAny(s string, of ...string) bool {
	return slices.ContainsFunc(of, func(part string) bool { return strings.Contains(s, part) })
}
