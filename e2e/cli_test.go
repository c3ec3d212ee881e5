package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// output is what a command of the binary left behind.
type output struct {
	stdout, stderr string
	code           int
}

// cli runs a client command of the binary against the server.
func (s *server) cli(t testing.TB, stdin string, args ...string) output {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binaryPath, args...)
	cmd.Env = append(bareEnviron(), "MILLRACE_SERVER="+s.base)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		require.NoError(t, err)
	}
	return output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// cliOK is cli for what must succeed; it returns the lines of its output.
func (s *server) cliOK(t testing.TB, args ...string) []string {
	t.Helper()
	o := s.cli(t, "", args...)
	require.Equalf(t, 0, o.code, "millrace %s: exit %d\n%s%s", strings.Join(args, " "), o.code, o.stdout, o.stderr)
	text := strings.TrimSpace(o.stdout)
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// tempFile writes a file for a command to load.
func tempFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}
