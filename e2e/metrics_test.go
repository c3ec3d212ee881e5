package e2e

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every metric that the server shows, after requests through both doors, is in docs/metrics.md with its kind and its text.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "id", 1)
	tb.write(t, `[{"id":1}]`)
	_, rows := s.dial(t).scan(t, pathOf(tb))
	require.Len(t, rows, 1)

	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	a := s.do(t, "GET", "/metrics", nil)
	require.Equal(t, 200, a.status)
	shown := regexp.MustCompile(`(?m)^# HELP (millrace_\S+) (.*)\n# TYPE \S+ (\S+)$`).FindAllStringSubmatch(string(a.body), -1)
	require.Greater(t, len(shown), 30)
	for _, m := range shown {
		row := regexp.MustCompile("(?m)^" + regexp.QuoteMeta("| `"+m[1]+"` | "+m[3]+" | ") + "[a-z, ]*" + regexp.QuoteMeta(" | "+m[2]+" |") + "$")
		require.True(t, row.Match(page), "docs/metrics.md has no row | `%s` | %s | (labels) | %s |", m[1], m[3], m[2])
	}
}
