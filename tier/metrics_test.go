package tier_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/router"
)

// What tiering tells has names that stay, which are in docs/metrics.md, and no labels;
// it counts what was done.
func TestMetrics(t *testing.T) {
	n := newNode(t)
	lt := n.table("t", "k BIGINT, v STRING", nil)
	n.must(lt, router.Append, kv(0, 10, "a"))
	n.tier(lt)
	all, err := n.reg.Gather()
	require.NoError(t, err)
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	var names []string
	values := map[string]float64{}
	for _, f := range all {
		name, ours := strings.CutPrefix(f.GetName(), "millrace_tier_")
		if !ours {
			continue
		}
		names = append(names, name)
		row := regexp.MustCompile("(?m)^" + regexp.QuoteMeta("| `"+f.GetName()+"` | "+strings.ToLower(f.GetType().String())+" |  | "+f.GetHelp()+" |") + "$")
		require.True(t, row.Match(page), "docs/metrics.md: %s", f.GetName())
		require.Len(t, f.GetMetric(), 1)
		require.Empty(t, f.GetMetric()[0].GetLabel())
		values[name] = f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
	}
	require.Equal(t, []string{
		"conflicts_total", "deleted_rows_total", "expired_snapshots_total", "failing_purges", "failing_tables", "failures_total", "files_total", "lag_seconds",
		"maintenance_commits_total", "maintenance_duration_seconds", "maintenance_failures_total", "merged_files_total", "pending_purges", "pending_rows", "purge_failures_total", "purges_total",
		"removed_files_total", "round_duration_seconds", "rounds_total", "rows_total", "running_jobs", "tables", "written_bytes_total",
	}, names)
	require.EqualValues(t, 10, values["rows_total"])
	require.EqualValues(t, 1, values["rounds_total"])
	require.EqualValues(t, 1, values["files_total"])
	require.EqualValues(t, 1, values["tables"])
	require.Positive(t, values["written_bytes_total"])
}
