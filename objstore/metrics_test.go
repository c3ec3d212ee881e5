package objstore_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/trace"
)

// Calls, bytes and failures are counted by operation, under names that stay and stand
// in docs/metrics.md.
func TestMetrics(t *testing.T) {
	reg, ctx := prometheus.NewRegistry(), t.Context()
	s, err := objstore.Open(ctx, "file://"+t.TempDir(), objstore.Options{Registerer: reg})
	require.NoError(t, err)
	require.NoError(t, s.Put(ctx, "a", make([]byte, 100)))
	require.NoError(t, s.Create(ctx, "b", make([]byte, 10)))
	require.ErrorIs(t, s.Create(ctx, "b", nil), objstore.ErrExists)
	w, err := s.Writer(ctx, "c")
	require.NoError(t, err)
	_, err = w.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Error(t, s.Put(ctx, "a/b", nil))
	_, err = s.Get(ctx, "a")
	require.NoError(t, err)
	_, err = s.Get(ctx, "none")
	require.ErrorIs(t, err, objstore.ErrNotExist)
	require.NoError(t, s.ReadAt(ctx, "a", make([]byte, 7), 0))
	_, err = s.Stat(ctx, "a")
	require.NoError(t, err)
	require.Error(t, s.List(ctx, "", func(objstore.Info) error { return errors.New("enough") }))
	require.NoError(t, s.Remove(ctx, "a"))

	require.Equal(t, []string{
		"millrace_objstore_call_duration_seconds",
		"millrace_objstore_failures_total",
		"millrace_objstore_inflight_calls",
		"millrace_objstore_read_bytes_total",
		"millrace_objstore_written_bytes_total",
	}, documented(t, reg))
	calls := map[string]uint64{}
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				calls[m.GetLabel()[0].GetValue()] = h.GetSampleCount()
			}
		}
	}
	require.Equal(t, map[string]uint64{"put": 2, "create": 2, "write": 1, "get": 2, "read_at": 1, "stat": 1, "list": 1, "remove": 1}, calls)
	require.Equal(t, map[string]float64{"failures_total put": 1, "read_bytes_total": 107, "written_bytes_total": 111}, counted(t, reg))
}

// documented are the names of a registry's metrics, each of which is in docs/metrics.md.
func documented(t *testing.T, reg *prometheus.Registry) (names []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		names = append(names, f.GetName())
		row := regexp.MustCompile("(?m)^" + regexp.QuoteMeta("| `"+f.GetName()+"` | "+strings.ToLower(f.GetType().String())+" | ") + "[a-z, ]*" + regexp.QuoteMeta(" | "+f.GetHelp()+" |") + "$")
		require.True(t, row.Match(page), "docs/metrics.md: %s", f.GetName())
	}
	return names
}

// counted are the counters of a registry, by name and labels.
func counted(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if m.GetCounter() == nil {
				continue
			}
			name := strings.TrimPrefix(f.GetName(), "millrace_objstore_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue()
		}
	}
	return out
}

// Calls below a request or a task that is traced are spans of it, without the key, which
// may hold values; what is not there is no failure. Without a trace there is none.
func TestTraces(t *testing.T) {
	got := tracetest.NewInMemoryExporter()
	tracer := trace.NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSyncer(got)))
	s, err := objstore.Open(t.Context(), "file://"+t.TempDir(), objstore.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Put(t.Context(), "untraced", nil))
	ctx, span := tracer.Begin(t.Context(), "task")
	require.NoError(t, s.Put(ctx, "secret=1", nil))
	require.NoError(t, s.Create(ctx, "b", nil))
	require.ErrorIs(t, s.Create(ctx, "b", nil), objstore.ErrExists)
	_, err = s.Get(ctx, "none")
	require.ErrorIs(t, err, objstore.ErrNotExist)
	require.Error(t, s.Put(ctx, "b/c", nil))
	for _, end := range []func(objstore.Writer){func(w objstore.Writer) { require.NoError(t, w.Close()) }, objstore.Writer.Abort} {
		w, err := s.Writer(ctx, "w")
		require.NoError(t, err)
		end(w)
	}
	span.End(nil)
	var names []string
	for _, one := range got.GetSpans() {
		name := one.Name
		if one.Status.Code != 0 {
			name += " " + one.Status.Description
		}
		names = append(names, name)
		require.NotContains(t, fmt.Sprint(one.Attributes), "secret")
	}
	require.Equal(t, []string{
		"objstore put", "objstore create", "objstore create", "objstore get", "objstore put unavailable", "objstore write", "objstore write", "task",
	}, names)
}
