package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A table that is dropped with purge is gone from the lake in the end: also when the lake was away then, or the server
// was killed before or after the files went. A table that is made anew under its name is not touched.
func TestPurge(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	left := func() []any {
		out, _ := s.ok(t, "GET", "/v1/cluster", nil)["lake_purges"].([]any)
		return out
	}
	gone := func(location string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(left()) == 0 }, patience, 50*time.Millisecond)
		require.Empty(t, filesBelow(t, location))
	}
	filled := func() (table, string) {
		t.Helper()
		tb := create(t, s, db, "t", "id BIGINT", "", 1, inLake("1s"))
		tb.write(t, `[{"id":1}]`)
		location := strings.TrimPrefix(tb.tier(t)["location"].(string), "file://")
		require.NotEmpty(t, filesBelow(t, location))
		return tb, location
	}

	// A file stands where the folder was.
	tb, location := filled()
	lake, away := filepath.Join(s.dir, "lake"), filepath.Join(s.dir, "away")
	require.NoError(t, os.Rename(lake, away))
	require.NoError(t, os.WriteFile(lake, nil, 0o600))
	s.ok(t, "DELETE", tb.path()+"?purge=true", nil)
	require.Len(t, left(), 1)
	purge := left()[0].(obj)
	require.Equal(t, tb.full(), purge["table"])
	require.NotEmpty(t, purge["error"])
	require.Equal(t, 1, s.cli(t, "", "status").code)
	require.Contains(t, string(s.do(t, "GET", "/metrics", nil).body), "\nmillrace_tier_pending_purges 1\n")
	s.kill()
	s.restart(t)
	require.Len(t, left(), 1)
	require.NoError(t, os.Remove(lake))
	require.NoError(t, os.Rename(away, lake))
	again, kept := filled()
	gone(location)
	require.Equal(t, 0, s.cli(t, "", "status").code)
	require.NotEmpty(t, filesBelow(t, kept))
	require.Len(t, again.scan(t, of("lake")), 1)

	for _, step := range []string{"purge", "purged"} {
		s.kill()
		s.env = []string{"MILLRACE_FAILPOINT=tier." + step + ":kill"}
		s.restart(t)
		_, err := s.send("DELETE", again.path()+"?purge=true", nil)
		require.Error(t, err)
		<-s.done
		s.disconnect()
		s.env = nil
		s.restart(t)
		location = kept
		again, kept = filled()
		gone(location)
		require.NotEmpty(t, filesBelow(t, kept))
	}
}
