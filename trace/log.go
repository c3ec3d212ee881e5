package trace

import (
	"context"
	"log/slog"
)

// Handler writes what a request is known by into the lines that are logged for it (Q1).
type Handler struct{ slog.Handler }

// NewHandler makes a handler of another.
func NewHandler(h slog.Handler) Handler { return Handler{h} }

// Handle is part of slog.Handler.
func (h Handler) Handle(ctx context.Context, r slog.Record) error {
	if id := ID(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	if id := traceID(ctx); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is part of slog.Handler.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup is part of slog.Handler.
func (h Handler) WithGroup(name string) slog.Handler { return Handler{h.Handler.WithGroup(name)} }
