package server

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/millrace/millrace/shardrpc"
	"github.com/millrace/millrace/trace"
	"github.com/millrace/millrace/trace/otlp"
)

// flushSpans is how long a stop waits for the collector.
const flushSpans = 3 * time.Second

// openTracing begins to export spans, when it was told where to.
func (s *Server) openTracing(ctx context.Context) error {
	if s.settings.OTLPEndpoint == "" {
		return nil
	}
	instance := s.settings.WorkerName
	if instance == "" {
		instance, _ = os.Hostname() // which is for people to tell processes apart
	}
	e, err := otlp.New(ctx, otlp.Options{
		Endpoint: s.settings.OTLPEndpoint, Version: s.version, Instance: instance, Logger: s.log, Registerer: s.metrics.registry,
	})
	if err != nil {
		return err
	}
	s.tracer = e.Tracer()
	s.onStop("tracing", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, flushSpans)
		defer cancel()
		return e.Close(ctx)
	})
	return nil
}

// traced begins the span of a request of a client; other processes' are those of package
// shardrpc.
func (f *front) traced(ctx context.Context, r *http.Request) (context.Context, trace.Span) {
	if f.tracer == nil || !f.forClients(r.URL.Path) {
		return ctx, trace.Span{}
	}
	return f.tracer.Serve(trace.Join(ctx, r.Header.Get), r.Method)
}

// forClients says whether a path is one that clients ask: not those that are asked every
// few seconds, nor the other processes'.
func (f *front) forClients(path string) bool {
	return path != "/healthz" && path != "/readyz" && path != "/metrics" && !shardrpc.Serves(path)
}

// endSpan ends the span of a request.
func endSpan(span trace.Span, req *trace.Request, method, route string, status int) {
	if !span.On() {
		return
	}
	if route != "" {
		span.Name(method + " " + route)
	}
	span.Text("http.request.method", method).Text("http.route", route).Int("http.response.status_code", int64(status))
	span.Fail(req.Failure())
	span.End(nil)
}
