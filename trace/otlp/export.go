package otlp

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

const (
	queueSpans = 2048
	batchSpans = 512
	batchEvery = 2 * time.Second
	exportTime = 10 * time.Second
)

// Options say where spans go, and of whom they are.
type Options struct {
	// Endpoint is grpc://host:4317, grpcs://…, http://host:4318 or https://…, the latter
	// with a path or not.
	Endpoint string
	Version  string
	Instance string // of this process

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// CheckEndpoint says what is wrong with an endpoint.
func CheckEndpoint(endpoint string) error {
	_, err := client(endpoint)
	return err
}

// client is who speaks to an endpoint.
func client(endpoint string) (otlptrace.Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errs.New(errs.InvalidRequest, "%q is not of the form grpc://host:4317, grpcs://host:4317, http://host:4318 or https://host:4318", endpoint)
	}
	switch u.Scheme {
	case "grpc":
		return otlptracegrpc.NewClient(otlptracegrpc.WithEndpoint(u.Host), otlptracegrpc.WithInsecure()), nil
	case "grpcs":
		return otlptracegrpc.NewClient(otlptracegrpc.WithEndpoint(u.Host)), nil
	case "http", "https":
		o := []otlptracehttp.Option{otlptracehttp.WithEndpoint(u.Host)}
		if u.Scheme == "http" {
			o = append(o, otlptracehttp.WithInsecure())
		}
		if u.Path != "" && u.Path != "/" {
			o = append(o, otlptracehttp.WithURLPath(u.Path))
		}
		return otlptracehttp.NewClient(o...), nil
	}
	return nil, errs.New(errs.InvalidRequest, "%q begins with none of grpc, grpcs, http and https", endpoint)
}

// Exporter takes the spans of a process to a collector.
type Exporter struct {
	provider *sdktrace.TracerProvider
}

// New begins to export. It does not wait for the collector.
func New(ctx context.Context, o Options) (*Exporter, error) {
	c, err := client(o.Endpoint)
	if err != nil {
		return nil, err
	}
	to, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, errs.New(errs.InvalidRequest, "spans cannot be exported: %v", err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "millrace"), attribute.String("service.version", o.Version), attribute.String("service.instance.id", o.Instance))
	p := promauto.With(o.Registerer)
	counted := &counting{
		SpanExporter: to, log: o.Logger,
		spans:  p.NewCounter(prometheus.CounterOpts{Name: "millrace_trace_exported_spans_total", Help: "Spans that the collector took."}),
		failed: p.NewCounter(prometheus.CounterOpts{Name: "millrace_trace_lost_spans_total", Help: "Spans that it did not take in time; those that found no room to wait are not among them."}),
	}
	return &Exporter{sdktrace.NewTracerProvider(
		sdktrace.WithResource(about),
		sdktrace.WithBatcher(counted, sdktrace.WithMaxQueueSize(queueSpans), sdktrace.WithMaxExportBatchSize(batchSpans),
			sdktrace.WithBatchTimeout(batchEvery), sdktrace.WithExportTimeout(exportTime)),
	)}, nil
}

// Tracer is the tracer whose spans are exported.
func (e *Exporter) Tracer() *trace.Tracer { return trace.NewTracer(e.provider) }

// Close exports what waits, until ctx ends.
func (e *Exporter) Close(ctx context.Context) error {
	_ = e.provider.Shutdown(ctx) // what the collector does not take is lost, and counted
	return nil
}

// counting counts what is exported, and tells of what is not.
type counting struct {
	sdktrace.SpanExporter

	log           *slog.Logger
	spans, failed prometheus.Counter
}

// ExportSpans is part of sdktrace.SpanExporter.
func (c *counting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.failed.Add(float64(len(spans)))
		c.log.WarnContext(ctx, "spans not exported", slog.Int("spans", len(spans)), slog.Any("err", err))
		return nil // it is told and counted here
	}
	c.spans.Add(float64(len(spans)))
	return nil
}
