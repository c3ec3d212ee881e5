package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// audited reads the lines of an audit log whose request id begins with a word, without what
// differs from run to run.
func audited(t *testing.T, path, prefix string) (out []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		var e map[string]string
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		if strings.HasPrefix(e["request_id"], prefix) {
			require.Regexp(t, `^127\.0\.0\.1:\d+$`, e["address"])
			out = append(out, strings.Join([]string{e["request_id"], e["principal"], e["door"], e["operation"], e["verb"], e["object"], e["decision"], e["outcome"]}, " "))
		}
	}
	return out
}

// What is done through each door is in the file and in the table: a line a call, in the order
// in which they ended, also of calls that failed; a file that is moved away is made anew, and a
// drain loses nothing.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	s := newServer(t, "--audit-log", path, "--audit-table", "ops.audit")
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v STRING", "id", 2)
	s.ok(t, "POST", tb.path()+"/records", recordsBody(`[{"id":1,"v":"a"}]`), "X-Request-Id", "e-1")
	s.ok(t, "POST", "/v1/sql", obj{"sql": "SELECT v FROM " + tb.full() + " WHERE id = 1"}, "X-Request-Id", "e-2")
	s.fails(t, 404, "row_not_found", "GET", tb.path()+"/rows/7", nil, "X-Request-Id", "e-3")
	s.fails(t, 404, "table_not_found", "GET", "/v1/databases/"+tb.db+"/tables/nix/scan", nil, "X-Request-Id", "e-4")
	s.fails(t, 422, "invalid_filter", "GET", tb.path()+"/scan?filter=v%20%3D", nil, "X-Request-Id", "e-5")
	want := []string{
		"e-1 anonymous http write_records write " + tb.full() + " allowed ok",
		"e-2 anonymous http execute_sql read " + tb.full() + " allowed ok",
		"e-3 anonymous http get_row_by_key read " + tb.full() + " allowed row_not_found",
		"e-4 anonymous http scan_get describe " + tb.db + " allowed table_not_found",
		"e-5 anonymous http scan_get describe " + tb.full() + " allowed invalid_filter",
	}
	require.Eventually(t, func() bool { return len(audited(t, path, "e-")) == len(want) }, patience, 10*time.Millisecond)
	require.Equal(t, want, audited(t, path, "e-"))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.Rename(path, path+".1"))
	_, err = s.dial(t).action(t, "millrace.count_rows", obj{"database": tb.db, "table": tb.name})
	require.NoError(t, err)
	s.ok(t, "GET", tb.path(), nil, "X-Request-Id", "f-1")
	table := table{s, "ops", "audit"}
	require.Eventually(t, func() bool { return table.count(t, "request_id = 'f-1'") == "1" }, patience, 50*time.Millisecond)
	require.Equal(t, "5", table.count(t, "request_id LIKE 'e-%'"))
	require.Eventually(t, func() bool { // a call ends after its answer
		return table.count(t, "door = 'flight' AND operation = 'millrace.count_rows' AND verb = 'read' AND outcome = 'ok'") == "1"
	}, patience, 50*time.Millisecond)
	require.Equal(t, "0", table.count(t, "principal = 'system'"), "its own writes are not in it")
	s.ok(t, "GET", tb.path(), nil, "X-Request-Id", "f-2")
	require.Equal(t, 0, s.drain(t))
	require.Len(t, audited(t, path+".1", "e-"), len(want))
	require.Len(t, audited(t, path, "f-"), 2)
}

// A disk without room for the audit log turns health red and says why; requests are served, and
// the server stops cleanly, saying what it lost.
func TestAuditDiskFull(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--audit-log", "/dev/full")
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v STRING", "id", 2)
	require.Eventually(t, func() bool {
		a := s.do(t, "GET", "/readyz", nil)
		return a.status == 503 && strings.Contains(string(a.body), "audit log: the file of the audit log: write /dev/full: no space left on device")
	}, patience, 10*time.Millisecond)
	tb.write(t, `[{"id":1,"v":"a"}]`)
	require.Equal(t, "1", tb.count(t, ""))
	require.Regexp(t, `millrace_audit_failures_total\{output="file"\} [1-9]`, string(s.do(t, "GET", "/metrics", nil).body))
	require.Equal(t, 0, s.drain(t))
	require.Contains(t, s.log.String(), "events of the audit log are lost")
}
