package rest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/errs"
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
	w.WriteHeader(kind.HTTP)
	_, _ = w.Write(body) // the client went away
}

// problemBody is the JSON of an error, and its row of the table.
func (h *Handler) problemBody(w http.ResponseWriter, r *http.Request, err error) ([]byte, errs.Kind) {
	e := h.classify(r, err)
	kind := errs.KindOf(e.Code)
	detail := e.Error()
	if e.Code == errs.Internal {
		h.o.Logger.ErrorContext(r.Context(), "request failed inside",
			slog.String("request_id", w.Header().Get(headerRequestID)), slog.String("path", r.URL.Path), slog.Any("err", err))
		detail = "the server met an error it did not foresee; its log tells more under this request id"
	}
	m := map[string]any{}
	maps.Copy(m, e.Extra)
	m["type"] = "/docs/errors#" + string(e.Code)
	m["title"] = kind.Title
	m["status"] = kind.HTTP
	m["detail"] = detail
	m["instance"] = r.URL.EscapedPath()
	m["code"] = e.Code
	m["request_id"] = w.Header().Get(headerRequestID)
	if len(e.Fields) > 0 {
		m["errors"] = e.Fields[:min(len(e.Fields), errs.MaxFieldErrors)]
	}
	b, jerr := json.Marshal(m)
	if jerr != nil {
		panic(jerr) // plain values always encode
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
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client went away
}
