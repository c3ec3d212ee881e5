package e2e

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The demo runs to its end, every one of its own checks holds, and it leaves nothing running when it is told so.
// Its part in Python is run with the other Python tests.
func TestDemo(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "../demo/run", "--check")
	cmd.Env = append(bareEnviron(), "E2E_MILLRACE="+binaryPath, "DEMO_DATA="+t.TempDir()+"/demo", "DEMO_PYTHON=none")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, string(said), "checks hold")
	require.Contains(t, string(said), "The server has stopped.")
}
