package trace

import (
	"context"
	"sync/atomic"

	"github.com/google/uuid"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/errs"
)

// HeaderRequestID is the header by which ids of requests come and go.
const HeaderRequestID = "X-Request-Id"

// maxID is the longest id that is taken from a caller.
const maxID = 128

// Request is one request to this process, or to another on whose behalf this one works.
type Request struct {
	// ID is what callers and logs call it.
	ID string

	failure atomic.Pointer[errs.Code]
}

type requestKey struct{}

// With makes a request known to everything that works on it.
func With(ctx context.Context, id string) (context.Context, *Request) {
	r := &Request{ID: id}
	return context.WithValue(ctx, requestKey{}, r), r
}

// Of is the request that a context belongs to; nil when it is of none. A nil Request
// may be used.
func Of(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// ID is the id of the request that a context belongs to; "" when it is of none.
func ID(ctx context.Context) string {
	if r := Of(ctx); r != nil {
		return r.ID
	}
	return ""
}

// Fail notes the code that the request's caller was told; the last one stays.
func (r *Request) Fail(code errs.Code) {
	if r != nil {
		r.failure.Store(&code)
	}
}

// Failure is the code that was noted; "" when the request did not fail.
func (r *Request) Failure() errs.Code {
	if r != nil {
		if p := r.failure.Load(); p != nil {
			return *p
		}
	}
	return ""
}

// RequestID is the caller's id when it can stand in logs and headers, and else a new one
// (Q2).
func RequestID(given string) string {
	if !goodID(given) {
		return uuid.NewString()
	}
	return given
}

func goodID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// Inject gives what another process is told of the request of a context, as headers.
func Inject(ctx context.Context, set func(header, value string)) {
	if id := ID(ctx); id != "" {
		set(HeaderRequestID, id)
	}
	if oteltrace.SpanContextFromContext(ctx).IsValid() {
		w3c.Inject(ctx, headers{set: set})
	}
}

// Extract makes the request known that another process told of by Inject.
func Extract(ctx context.Context, get func(header string) string) context.Context {
	if id := get(HeaderRequestID); goodID(id) {
		ctx, _ = With(ctx, id)
	}
	return Join(ctx, get)
}

// Join makes known which trace a request belongs to, as its caller says; a Tracer goes on
// in it.
func Join(ctx context.Context, get func(header string) string) context.Context {
	if get("traceparent") == "" {
		return ctx
	}
	return w3c.Extract(ctx, headers{get: get}) // which takes what is well-formed only
}

// Carried is what a context is known by, for work that goes on in a context of its own.
type Carried struct {
	request *Request
	span    oteltrace.Span
}

// Carry takes it from a context.
func Carry(ctx context.Context) Carried {
	c := Carried{request: Of(ctx)}
	if s := oteltrace.SpanFromContext(ctx); s.SpanContext().IsValid() {
		c.span = s
	}
	return c
}

// In puts it into another context.
func (c Carried) In(ctx context.Context) context.Context {
	if c.request != nil {
		ctx = context.WithValue(ctx, requestKey{}, c.request)
	}
	if c.span != nil {
		ctx = oteltrace.ContextWithSpan(ctx, c.span)
	}
	return ctx
}
