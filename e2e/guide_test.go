package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// block is a fenced block of a guide.
type block struct {
	lang, text string
	line       int
}

func blocksOf(t *testing.T, path string) []block {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []block
	open := false
	for i, line := range strings.Split(string(b), "\n") {
		switch {
		case strings.HasPrefix(line, "```") && !open:
			out = append(out, block{lang: line[3:], line: i + 1})
			open = true
		case line == "```":
			open = false
		case open:
			out[len(out)-1].text += line + "\n"
		}
	}
	require.False(t, open, "a block without an end in %s", path)
	return out
}

// The guides are true: their bash blocks are run in order against a fresh server, and what each prints is what the
// json or text block after it says, where … stands for anything.
func TestGuides(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	require.NoError(t, os.Symlink(binaryPath, bin+"/millrace"))
	for path, least := range map[string]int{
		"docs/guides/curl.md": 15, "docs/guides/command-line.md": 10, "docs/guides/retries.md": 9, "docs/guides/lookups.md": 6, "README.md": 1,
		"docs/guides/virtual-tables.md": 4, "docs/guides/schema-changes.md": 3, "docs/guides/merge-engines.md": 3, "docs/guides/partitions.md": 5, "docs/guides/from-kafka-and-redis.md": 2, "docs/guides/retention.md": 3,
		"docs/guides/sql.md": 10, "docs/guides/lake.md": 11, "docs/guides/lake-readers.md": 1, "docs/guides/doctor.md": 2,
	} {
		t.Run(path, func(t *testing.T) {
			s := newServer(t)
			require.GreaterOrEqual(t, runGuide(t, s, "../"+path, bin), least)
		})
	}
}

// The guide to tokens is run against a server that wants them.
func TestGuideToTokens(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	require.NoError(t, os.Symlink(binaryPath, bin+"/millrace"))
	s := newServer(t, "--auth-jwks", "dev", "--admin-principal", "user:ann")
	require.Equal(t, 2, runGuide(t, s, "../docs/guides/tokens.md", bin, "MILLRACE_DATA_DIR="+s.dir))
}

// The guide from a laptop to a company starts its own server and identity provider.
func TestGuideToCompany(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	require.NoError(t, os.Symlink(binaryPath, bin+"/millrace"))
	port := func() string {
		_, p, err := net.SplitHostPort(freeDoor(t, "127.0.0.1"))
		require.NoError(t, err)
		return p
	}
	require.Equal(t, 10, runGuide(t, newServer(t), "../docs/guides/company.md", bin, "HTTP_PORT="+port(), "FLIGHT_PORT="+port(), "METRICS_PORT="+port()))
}

// runGuide returns how many blocks it ran; bin is a folder with the binary.
func runGuide(t *testing.T, s *server, path, bin string, env ...string) int {
	t.Helper()
	dir := t.TempDir()
	blocks := blocksOf(t, path)
	ran := 0
	for i, b := range blocks {
		if b.lang != "bash" {
			continue
		}
		ran++
		cmd := exec.CommandContext(within(t, patience), "bash", "-eu", "-c", b.text)
		cmd.WaitDelay = time.Second // what a killed shell has started may hold its output
		cmd.Dir = dir
		cmd.Env = append(append(bareEnviron(), "MILLRACE_SERVER="+s.base, "PATH="+bin+":"+os.Getenv("PATH")), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it leaves running ends with the test
		t.Cleanup(func() {
			if cmd.Process != nil {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			}
		})
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		got, err := cmd.Output()
		require.NoError(t, err, "line %d: %s\n%s%s", b.line, b.text, got, stderr.String())
		require.Less(t, i+1, len(blocks), "line %d: a command without its output", b.line)
		requireOutput(t, b, blocks[i+1], got)
	}
	return ran
}

func requireOutput(t *testing.T, b, want block, got []byte) {
	t.Helper()
	switch want.lang {
	case "json":
		var w, g any
		require.NoError(t, json.Unmarshal([]byte(want.text), &w), "line %d", want.line)
		require.NoError(t, json.Unmarshal(got, &g), "line %d: %s", b.line, got)
		require.NoError(t, matches(w, g, "$"), "line %d: %s\nprinted\n%s", b.line, b.text, got)
	case "text":
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want.text)), "…", ".*?")
		require.Regexp(t, "^"+pattern+"$", strings.TrimSpace(string(got)), "line %d: %s", b.line, b.text)
	default:
		t.Fatalf("line %d: a command is followed by a block of %q", b.line, want.lang)
	}
}

// matches compares JSON with a pattern: "…" is anything, "c1.…" anything that begins so, a member "…" any name.
func matches(want, got any, at string) error {
	switch w := want.(type) {
	case string:
		if head, ok := strings.CutSuffix(w, "…"); ok {
			if g, isText := got.(string); head == "" || isText && strings.HasPrefix(g, head) {
				return nil
			}
			return fmt.Errorf("%s is %v, want %s", at, got, w)
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s is %v, want %d entries", at, got, len(w))
		}
		for i := range w {
			if err := matches(w[i], g[i], fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		return matchesObject(w, got, at)
	}
	if want != got {
		return fmt.Errorf("%s is %v, want %v", at, got, want)
	}
	return nil
}

func matchesObject(want map[string]any, got any, at string) error {
	g, ok := got.(map[string]any)
	if !ok || len(g) != len(want) {
		return fmt.Errorf("%s is %v, want %d members", at, got, len(want))
	}
	for name, w := range want {
		value, ok := g[name]
		if name == "…" && len(g) == 1 {
			for _, value = range g {
				ok = true
			}
		}
		if !ok {
			return fmt.Errorf("%s has no %s: %v", at, name, got)
		}
		if err := matches(w, value, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}
