package trace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/errs"
)

// scope is the name under which our spans are exported.
const scope = "github.com/millrace/millrace"

// Tracer begins spans that have none above them in this process: of requests, and of
// what the process does by itself. A nil Tracer begins none, and then nothing below a
// request does either.
type Tracer struct{ t oteltrace.Tracer }

// NewTracer makes a tracer of whoever takes the spans.
func NewTracer(p oteltrace.TracerProvider) *Tracer { return &Tracer{p.Tracer(scope)} }

// Span is a piece of work whose time is measured. The zero Span is none, and may be used.
type Span struct{ s oteltrace.Span }

// Serve begins the span of a request from outside the process. It goes on in the trace
// that the context was told of by Extract, if it was.
func (t *Tracer) Serve(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.t.Start(ctx, name, oteltrace.WithSpanKind(oteltrace.SpanKindServer))
	if id := ID(ctx); id != "" {
		s.SetAttributes(attribute.String("millrace.request_id", id))
	}
	return ctx, Span{s}
}

// Begin begins the span of what the process does by itself.
func (t *Tracer) Begin(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.t.Start(ctx, name)
	return ctx, Span{s}
}

// Apart is a context for what goes on when the span of ctx has ended.
func Apart(ctx context.Context) context.Context {
	return oteltrace.ContextWithSpanContext(ctx, oteltrace.SpanContext{})
}

// Start begins a span below the one of the context, if there is one that is recorded.
func Start(ctx context.Context, name string) (context.Context, Span) {
	return start(ctx, name, oteltrace.SpanKindInternal)
}

// Call begins the span of a call to another process, as Start does.
func Call(ctx context.Context, name string) (context.Context, Span) {
	return start(ctx, name, oteltrace.SpanKindClient)
}

func start(ctx context.Context, name string, kind oteltrace.SpanKind) (context.Context, Span) {
	above := oteltrace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return ctx, Span{}
	}
	ctx, s := above.TracerProvider().Tracer(scope).Start(ctx, name, oteltrace.WithSpanKind(kind))
	return ctx, Span{s}
}

// On says whether there is a span; what costs something to find out for it is for then.
func (s Span) On() bool { return s.s != nil }

// Name gives the span another name.
func (s Span) Name(name string) {
	if s.s != nil {
		s.s.SetName(name)
	}
}

// Int notes a number: a count or an id, never a value of a row (Q3).
func (s Span) Int(key string, v int64) Span {
	if s.s != nil {
		s.s.SetAttributes(attribute.Int64(key, v))
	}
	return s
}

// Text notes a word of ours, or a name; never a value, a filter or a token (Q3).
func (s Span) Text(key, v string) Span {
	if s.s != nil {
		s.s.SetAttributes(attribute.String(key, v))
	}
	return s
}

// Past notes a piece of work within the span that is over.
func (s Span) Past(name string, began, ended time.Time) {
	if s.s != nil && !began.IsZero() {
		_, past := s.s.TracerProvider().Tracer(scope).Start(oteltrace.ContextWithSpan(context.Background(), s.s), name, oteltrace.WithTimestamp(began))
		past.End(oteltrace.WithTimestamp(ended))
	}
}

// Fail notes the code of an error; its text may hold values and is for the log.
func (s Span) Fail(code errs.Code) {
	if s.s != nil && code != "" {
		s.s.SetAttributes(attribute.String("error.type", string(code)))
		s.s.SetStatus(codes.Error, string(code))
	}
}

// End ends the span, of which an error is noted.
func (s Span) End(err error) {
	if s.s == nil {
		return
	}
	if err != nil {
		s.Fail(errs.CodeOf(err))
	}
	s.s.End()
}

// headers are what Inject and Extract set and get, as propagation has it.
type headers struct {
	get func(string) string
	set func(header, value string)
}

func (h headers) Get(key string) string { return h.get(key) }
func (h headers) Set(key, value string) { h.set(key, value) }
func (h headers) Keys() []string        { return []string{"traceparent", "tracestate"} }

// w3c is how the context of traces goes along.
var w3c propagation.TraceContext

// traceID is the trace that a context belongs to; "" when it is of none.
func traceID(ctx context.Context) string {
	if sc := oteltrace.SpanContextFromContext(ctx); sc.HasTraceID() {
		return sc.TraceID().String()
	}
	return ""
}
