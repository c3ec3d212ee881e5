package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/trace"
)

// What a shard does unasked is a trace each: opened, flushed, checkpointed, published with
// the calls to the object store below. Nothing hangs below the span of the opening, which
// is long over.
func TestTraces(t *testing.T) {
	got := tracetest.NewInMemoryExporter()
	w := newWorld(t, 7)
	w.Opts.Tracer = trace.NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSyncer(got)))
	w.Opts.TailBytes, w.Opts.BucketTailBytes = 1<<10, 1<<10
	w.MustOpen()
	w.Add(storagetest.NewTable(1, 2, w.Opts.Shards, 2, storagetest.KeyedColumns...))
	w.write(300)
	w.publish()
	w.Close()
	above := map[string]map[string]bool{} // by name: the names above it
	spans := got.GetSpans()
	for _, s := range spans {
		if above[s.Name] == nil {
			above[s.Name] = map[string]bool{}
		}
		parent := ""
		for _, p := range spans {
			if p.SpanContext.SpanID() == s.Parent.SpanID() {
				parent = p.Name
			}
		}
		above[s.Name][parent] = true
		require.NotEqual(t, s.Parent.SpanID().IsValid(), parent == "", "%s hangs below what was not recorded", s.Name)
	}
	root := map[string]bool{"": true}
	for _, name := range []string{"shard open", "shard flush", "shard checkpoint", "shard upload"} {
		require.Equal(t, root, above[name], name)
	}
	require.Contains(t, above["objstore create"], "shard upload")
	require.NotContains(t, above["objstore create"], "")
	require.Contains(t, above["objstore write"], "shard upload")
}
