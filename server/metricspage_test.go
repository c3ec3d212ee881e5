package server

// These tests make docs/metrics.md of what a single node and a process of a cluster
// register: go test ./server -run MetricsPage -update.

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/cluster/natstest"
)

var update = flag.Bool("update", false, "write the pages that tests make")

// described is a metric as the page has it.
type described struct{ name, kind, labels, help string }

var (
	descText = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{([^}]*)\}\}$`)
	sections = []struct{ prefix, title string }{
		{"server", "The server and its HTTP door"},
		{"flight", "The Flight door"},
		{"trace", "Traces"},
		{"auth", "Who calls"},
		{"quota", "Quotas"},
		{"audit", "The audit log"},
		{"admit", "Memory for what is being received and sent"},
		{"router", "Reads, writes and lookups"},
		{"storage", "What shards have in hand"},
		{"shard", "What shards do"},
		{"wal", "The log on disk"},
		{"remote", "The object store's share of checkpoints"},
		{"objstore", "The object store"},
		{"tier", "Tiering"},
		{"cluster", "The cluster's NATS"},
		{"stream", "The log on JetStream (in a cluster)"},
		{"keyvalue", "The catalog in NATS (in a cluster)"},
		{"catalog", "Exports of the catalog (in a cluster)"},
		{"owner", "Who owns the shards (in a cluster)"},
		{"shardrpc", "Calls between processes (in a cluster)"},
	}
)

// kindOf is what a collector collects.
func kindOf(t *testing.T, c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Gauge: // before the counters, which have some of its methods
		return "gauge"
	case prometheus.Counter:
		return "counter"
	}
	// Functions: their value tells.
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(c))
	all, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, all, 1, "%T", c)
	return strings.ToLower(all[0].GetType().String())
}

// describe lists the metrics that were registered with a server's registry.
func describe(t *testing.T, r *registry) []described {
	t.Helper()
	var out []described
	for _, c := range r.all() {
		descs := make(chan *prometheus.Desc, 1000)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			m := descText.FindStringSubmatch(d.String())
			require.NotNil(t, m, d)
			if !strings.HasPrefix(m[1], "millrace_") {
				continue // of Go and of the process
			}
			var help string
			_, err := fmt.Sscanf(m[2], "%q", &help)
			require.NoError(t, err)
			labels := slices.AppendSeq(strings.Split(m[3], ","), maps.Keys(c.labels))
			slices.Sort(labels)
			labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
			out = append(out, described{m[1], kindOf(t, c.Collector), strings.Join(labels, ", "), help})
		}
	}
	return out
}

// registered starts a server and lists what it registers.
func registered(t *testing.T, set func(*Settings)) []described {
	t.Helper()
	settings := testSettings(t, t.TempDir())
	set(settings)
	require.NoError(t, settings.Validate())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newServer(auth.With(ctx, auth.System), Options{Settings: settings, Version: "test", Log: &logBuffer{}})
	defer func() { require.NoError(t, s.stop(context.WithoutCancel(ctx))) }()
	require.NoError(t, s.start(auth.With(ctx, auth.System)))
	return describe(t, s.metrics.registry)
}

// The page lists every metric that there is, with its kind, its labels and its text, and
// no others.
func TestMetricsPage(t *testing.T) {
	// Settings that bring metrics of their own are on.
	certs := t.TempDir()
	newPair(t, "one").write(t, certs)
	all := registered(t, func(s *Settings) {
		s.RemoteURI, s.OTLPEndpoint = "file://"+t.TempDir(), "grpc://127.0.0.1:1"
		s.TLSCert, s.TLSKey = filepath.Join(certs, "cert.pem"), filepath.Join(certs, "key.pem")
		s.AuthJWKS, s.AuditLog = devKeys, filepath.Join(t.TempDir(), "audit.jsonl")
	})
	nats := natstest.StartT(t, 1)
	all = append(all, registered(t, func(s *Settings) {
		s.NATSURL, s.InsecureNATS, s.Shards = nats.URLs(), true, 4
		s.RemoteURI, s.LakeURI = "file://"+t.TempDir(), "file://"+t.TempDir()
	})...)
	slices.SortFunc(all, func(a, b described) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.kind+a.labels+a.help, b.kind+b.labels+b.help))
	})
	all = slices.Compact(all)
	const path = "../docs/metrics.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	head, _, ok := strings.Cut(string(page), "\n## ")
	require.True(t, ok)
	var b strings.Builder
	b.WriteString(head)
	for _, sec := range sections {
		var rows strings.Builder
		for _, d := range all {
			if strings.HasPrefix(d.name, "millrace_"+sec.prefix+"_") {
				fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", d.name, d.kind, d.labels, d.help)
			}
		}
		if rows.Len() > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n| name | kind | labels | what |\n|---|---|---|---|\n%s", sec.title, &rows)
		}
	}
	for i, d := range all {
		require.Contains(t, b.String(), "| `"+d.name+"` |", "give its package a section")
		if i > 0 {
			require.NotEqual(t, all[i-1].name, d.name, "registered in two ways: %v and %v", all[i-1], d)
		}
		require.True(t, (d.kind == "counter") == strings.HasSuffix(d.name, "_total"), "%s is a %s", d.name, d.kind)
		require.NotEmpty(t, d.help, d.name)
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
		return
	}
	require.Equal(t, b.String(), string(page), "renew it: go test ./server -run MetricsPage -update")
}
