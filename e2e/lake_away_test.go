package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A lake that is away is told of by lake status, the command line and metrics. The server is ready, writes and hot reads
// go on, and nothing leaves the log meanwhile; reads of the lake say that it is away. When it is back, all goes on.
func TestLakeAway(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	tb := create(t, s, db, "orders_log", orderColumns, "", 2, inLake("1s", "table.log.ttl", "1s"))
	state := func() any { return tb.lake(t)["state"] }
	tb.write(t, ordersFrom(0, 100))
	require.Eventually(t, func() bool { return state() == "ok" && len(tb.numbers(t, "order_id", of("hot"))) == 0 }, patience, 50*time.Millisecond)

	// A file stands where the folder was.
	lake, away := filepath.Join(s.dir, "lake"), filepath.Join(s.dir, "away")
	require.NoError(t, os.Rename(lake, away))
	require.NoError(t, os.WriteFile(lake, nil, 0o600))
	tb.write(t, ordersFrom(100, 50))
	require.Eventually(t, func() bool { return state() == "failing" }, patience, 50*time.Millisecond)
	st := tb.lake(t)
	why := st["error"].(map[string]any)
	require.NotEmpty(t, why["detail"])
	require.NotEmpty(t, why["since"])
	require.Equal(t, json.Number("50"), st["pending_rows"])
	require.Equal(t, 1, s.cli(t, "", "lake", "status", tb.full()).code)
	require.Equal(t, 200, s.do(t, "GET", "/readyz", nil).status)
	require.Contains(t, string(s.do(t, "GET", "/metrics", nil).body), "\nmillrace_tier_failing_tables 1\n")
	tb.write(t, ordersFrom(150, 50))
	time.Sleep(2 * time.Second)
	require.Len(t, tb.numbers(t, "order_id", of("hot")), 100, "what is not in the lake stays in the log")
	a := s.do(t, "POST", tb.path()+"/scan", of("lake"), "Accept", mediaJSON)
	require.GreaterOrEqual(t, a.status, 500, "%s", a.body)
	require.NotContains(t, string(a.body), "internal", "%s", a.body)
	s.kill()
	s.restart(t)
	require.Equal(t, 200, s.do(t, "GET", "/readyz", nil).status)
	require.Len(t, tb.numbers(t, "order_id", of("hot")), 100)
	require.Eventually(t, func() bool { return state() == "failing" }, patience, 50*time.Millisecond)

	require.NoError(t, os.Remove(lake))
	require.NoError(t, os.Rename(away, lake))
	require.Eventually(t, func() bool { return state() == "ok" && len(tb.numbers(t, "order_id", of("lake"))) == 200 }, patience, 100*time.Millisecond)
	require.Len(t, tb.numbers(t, "order_id", obj{}), 200)
	require.Eventually(t, func() bool { return len(tb.numbers(t, "order_id", of("hot"))) == 0 }, patience, 50*time.Millisecond)
}
