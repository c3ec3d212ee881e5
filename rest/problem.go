package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

// headerRequestID is set by the server before a handler runs.
const headerRequestID = "X-Request-Id"

// problem answers with an error, as RFC 9457 has it.
func (h *Handler) problem(w http.ResponseWriter, r *http.Request, err error) {
	body, kind := h.problemBody(w, r, err)
	w.Header().Set("Content-Type", "application/problem+json")
	if kind.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(kind.RetryAfterSeconds))
	}
	if kind.HTTP == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", auth.Challenge)
	}
	w.WriteHeader(kind.HTTP)
	_, _ = w.Write(body) // the client went away
}

// problemBody is the JSON of an error, and its row of the table.
func (h *Handler) problemBody(w http.ResponseWriter, r *http.Request, err error) ([]byte, errs.Kind) {
	e := h.classify(r, err)
	trace.Of(r.Context()).Fail(e.Code)
	kind := errs.KindOf(e.Code)
	kind.RetryAfterSeconds = e.Wait()
	detail := e.Error()
	if e.Code == errs.Internal {
		h.o.Logger.ErrorContext(r.Context(), "request failed inside", route(r), slog.Any("err", err))
		detail = "the server met an error it did not foresee; its log tells more under this request id"
	}
	// What people look for first stands first.
	p := struct {
		Type      string            `json:"type"`
		Title     string            `json:"title"`
		Status    int               `json:"status"`
		Detail    string            `json:"detail"`
		Code      errs.Code         `json:"code"`
		Instance  string            `json:"instance"`
		RequestID string            `json:"request_id"`
		Errors    []errs.FieldError `json:"errors,omitempty"`
	}{
		Type: "/docs/errors#" + string(e.Code), Title: kind.Title, Status: kind.HTTP, Detail: detail, Code: e.Code,
		Instance: r.URL.EscapedPath(), RequestID: w.Header().Get(headerRequestID), Errors: e.Fields[:min(len(e.Fields), errs.MaxFieldErrors)],
	}
	b := jsonText(p)
	if len(e.Extra) > 0 {
		b = append(b[:len(b)-1], ',')
		b = append(b, jsonText(e.Extra)[1:]...)
	}
	return append(b, '\n'), kind
}

// classify gives an error its code.
func (h *Handler) classify(r *http.Request, err error) *errs.Error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errs.New(errs.TooLarge, "the body has more than %d bytes", e.Limit)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return errs.New(errs.Unavailable, "the request was not done in time; ask for more with ?timeout=")
	}
	return &errs.Error{Code: errs.Internal, Err: err}
}

// answer writes a JSON answer.
func (h *Handler) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(status)
	_, _ = w.Write(append(jsonText(v), '\n')) // the client went away
}
