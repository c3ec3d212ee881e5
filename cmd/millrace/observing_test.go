package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// metricsPage is docs/metrics.md: labels by the name of a metric. A test of the server
// makes it of what a server registers.
func metricsPage(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(root + "/docs/metrics.md")
	require.NoError(t, err)
	page := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(millrace_[a-z_]+)` \\| [a-z]+ \\| ([a-z_, ]*) \\|").FindAllStringSubmatch(string(b), -1) {
		page[m[1]] = strings.Split(m[2], ", ")
	}
	require.Greater(t, len(page), 150)
	return page
}

var (
	ofOurs    = regexp.MustCompile(`\b(millrace_[a-z_]+)(\{[^}]*\})?`)
	ofGo      = regexp.MustCompile(`\b((?:go|process)_[a-z_]+)`)
	matchers  = regexp.MustCompile(`([a-z_]+)(?:=~|!=|!~|=)"`)
	groupedBy = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// named checks that an expression names metrics that are there, and labels that they have.
func named(t *testing.T, where, expr string, page map[string][]string) {
	t.Helper()
	found := ofOurs.FindAllStringSubmatch(expr, -1)
	require.True(t, len(found) > 0 || ofGo.MatchString(expr) || strings.HasPrefix(expr, "up{"), "%s names no metric: %s", where, expr)
	labels := map[string]bool{"instance": true, "job": true, "le": true}
	for _, m := range found {
		name := strings.TrimSuffix(m[1], "_bucket")
		require.Contains(t, page, name, "%s: there is no such metric", where)
		own := append([]string{"instance", "job"}, page[name]...)
		for _, l := range matchers.FindAllStringSubmatch(m[2], -1) {
			require.Contains(t, own, l[1], "%s: %s has no such label", where, name)
		}
		for _, l := range own {
			labels[l] = true
		}
	}
	for _, m := range groupedBy.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			require.True(t, labels[strings.TrimSpace(l)], "%s groups by %s, which none of its metrics has", where, l)
		}
	}
	require.Equal(t, strings.Count(expr, "("), strings.Count(expr, ")"), where)
}

// Each alert is on metrics and labels that a server has, and says how bad it is, what is
// the matter, and where it is written what to do.
func TestAlerts(t *testing.T) {
	b, err := os.ReadFile(root + "/deploy/prometheus/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(b, &file))
	guide, err := os.ReadFile(root + "/docs/guides/observing.md")
	require.NoError(t, err)
	page, seen := metricsPage(t), map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			require.False(t, seen[r.Alert], "%s stands twice", r.Alert)
			seen[r.Alert] = true
			named(t, r.Alert, r.Expr, page)
			require.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.Equal(t, "docs/guides/observing.md#"+strings.ToLower(r.Alert), r.Annotations["runbook"])
			require.Contains(t, string(guide), "\n### "+r.Alert+"\n\n", "the guide says what to do")
		}
	}
	require.Len(t, seen, strings.Count(string(guide), "\n### Millrace"), "the guide tells of alerts that are none")
}

// The dashboard asks for metrics and labels that a server has, and no panel lies on another.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile(root + "/deploy/grafana/millrace.json")
	require.NoError(t, err)
	var dash struct {
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(b, &dash))
	page, ids, taken := metricsPage(t), map[int]bool{}, map[[2]int]string{}
	for _, p := range dash.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		require.True(t, p.Type == "row" || len(p.Targets) > 0, p.Title)
		for _, q := range p.Targets {
			named(t, p.Title, q.Expr, page)
		}
	}
	require.Greater(t, len(ids), 30)
}
