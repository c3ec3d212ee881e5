package icebergrest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

// exception is how the specification names an error, with its status.
type exception struct {
	status int
	name   string
}

// exceptions are by our code; what is not here has the status of its code, and the
// specification's name for that.
var exceptions = map[errs.Code]exception{
	errs.DatabaseNotFound: {http.StatusNotFound, "NoSuchNamespaceException"},
	errs.TableNotFound:    {http.StatusNotFound, "NoSuchTableException"},
	errs.RouteNotFound:    {http.StatusNotFound, "NoSuchRouteException"},
	errs.NotAcceptable:    {http.StatusNotAcceptable, "UnsupportedOperationException"},
	errs.InvalidValue:     {http.StatusBadRequest, "BadRequestException"},
	errs.InvalidName:      {http.StatusBadRequest, "BadRequestException"},
	errs.TooLarge:         {http.StatusBadRequest, "BadRequestException"},
	errs.Unauthenticated:  {http.StatusUnauthorized, "NotAuthorizedException"},
	errs.PermissionDenied: {http.StatusForbidden, "ForbiddenException"},
	errs.Unavailable:      {http.StatusServiceUnavailable, "ServiceUnavailableException"},
	errs.Overloaded:       {http.StatusServiceUnavailable, "SlowDownException"},
	errs.Draining:         {http.StatusServiceUnavailable, "ServiceUnavailableException"},
}

func exceptionOf(code errs.Code) exception {
	if e, ok := exceptions[code]; ok {
		return e
	}
	e := exception{status: errs.KindOf(code).HTTP, name: "InternalServerError"}
	if e.status < http.StatusInternalServerError {
		e.name = "BadRequestException"
	}
	return e
}

// noSuchView is the answer to whoever looks for a view.
type noSuchView struct{ name string }

func (e noSuchView) Error() string {
	return "there is no view " + strconv.Quote(clip(e.name)) + ": this catalog has none"
}

// fail answers with an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if v, ok := errors.AsType[noSuchView](err); ok {
		writeError(w, exception{http.StatusNotFound, "NoSuchViewException"}, v.Error())
		return
	}
	e, ok := errors.AsType[*errs.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		e = errs.New(errs.Unavailable, "the request was not done in time; try again in a while")
	default:
		e = &errs.Error{Code: errs.Internal, Err: err}
	}
	if e.Code == errs.Internal {
		h.o.Logger.ErrorContext(r.Context(), "catalog request failed inside", slog.String("route", chi.RouteContext(r.Context()).RoutePattern()), slog.Any("err", err))
		e = errs.New(errs.Internal, "the server met an error it did not foresee; its log tells more")
	}
	Refuse(w, r, e)
}

// Refuse answers with an error as this door does; the server's own refusals use it.
func Refuse(w http.ResponseWriter, r *http.Request, e *errs.Error) {
	trace.Of(r.Context()).Fail(e.Code)
	if s := e.Wait(); s > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(s))
	}
	writeError(w, exceptionOf(e.Code), e.Error())
}

func writeError(w http.ResponseWriter, e exception, message string) {
	type model struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    int    `json:"code"`
	}
	b, err := json.Marshal(struct {
		Error model `json:"error"`
	}{model{Message: message, Type: e.name, Code: e.status}})
	if err != nil {
		panic(err) // plain values always encode
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(e.status)
	_, _ = w.Write(b) // the client went away
}

// answerJSON writes an answer.
func answerJSON(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // the client went away
	return nil
}
