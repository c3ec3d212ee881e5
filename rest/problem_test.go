package rest

// These tests show that every code is rendered as problem+json with its status,
// that routes are those of the document, and how media types and durations are read.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/guard"
	"github.com/millrace/millrace/openapi"
)

func bareHandler() *Handler {
	return New(Options{Logger: slog.New(slog.DiscardHandler), Draining: make(chan struct{})})
}

// Every code comes out with its status, its page and its name, and the inside of
// an unforeseen error stays inside.
func TestProblemOfEveryCode(t *testing.T) {
	h := bareHandler()
	for _, k := range errs.Kinds() {
		w := httptest.NewRecorder()
		w.Header().Set(headerRequestID, "r1")
		h.problem(w, httptest.NewRequest(http.MethodGet, "/v1/x?y=1", nil), fmt.Errorf("doing: %w", errs.New(k.Code, "the secret reason").With("accepted", 3)))
		require.Equal(t, k.HTTP, w.Code, k.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Equal(t, k.RetryAfterSeconds > 0, w.Header().Get("Retry-After") != "", k.Code)
		var p map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Equal(t, string(k.Code), p["code"])
		require.Equal(t, "/docs/errors#"+string(k.Code), p["type"])
		require.InDelta(t, k.HTTP, p["status"], 0)
		require.Equal(t, "/v1/x", p["instance"])
		require.Equal(t, "r1", p["request_id"])
		require.InDelta(t, 3, p["accepted"], 0)
		require.Equal(t, k.Code != errs.Internal, strings.Contains(w.Body.String(), "secret reason"), k.Code)
	}
}

// An error without a code is internal, and a broken body is the client's.
func TestClassify(t *testing.T) {
	h := bareHandler()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	require.Equal(t, errs.Internal, h.classify(r, fmt.Errorf("disk on fire")).Code)
	require.Equal(t, errs.TooLarge, h.classify(r, &http.MaxBytesError{Limit: 7}).Code)
	require.Equal(t, errs.InvalidRequest, errs.CodeOf(bodyError(fmt.Errorf("unexpected EOF"))))
}

// The router serves the operations of the document and no others.
func TestRoutesAreTheDocuments(t *testing.T) {
	h := bareHandler()
	elsewhere := map[string]bool{"healthz": true, "readyz": true, "metrics": true, "docs": true, "docs_errors": true} // the server's, and mounted pages
	documented := map[string]bool{}
	for _, op := range openapi.Operations() {
		documented[op.Method+" "+op.Path] = true
		if elsewhere[op.ID] || slices.Contains(op.Tags, "Iceberg") { // package icebergrest
			continue
		}
		path := regexp.MustCompile(`\{[^}]+\}`).ReplaceAllString(op.Path, "1")
		require.True(t, h.mux.Match(chi.NewRouteContext(), op.Method, path), op.ID)
	}
	require.NoError(t, chi.Walk(h.mux, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !strings.HasPrefix(route, "/docs") {
			require.True(t, documented[method+" "+route], "%s %s is not in the document", method, route)
		}
		return nil
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/nothing", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), "route_not_found")
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/v1/info", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Contains(t, w.Body.String(), "method_not_allowed")
}

// A handler that panics answers internal, and the server lives.
func TestPanicIsInternal(t *testing.T) {
	h := bareHandler() // without a catalog
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/databases", nil))
	require.Equal(t, http.StatusInternalServerError, w.Code)
}

// buggy panics with what it was given.
type buggy struct{ Access }

func (buggy) Allow(context.Context, millrace.Verb, *millrace.Table) error { return nil }

func (buggy) CreateGrant(_ context.Context, spec guard.Grant) (guard.Grant, bool, error) {
	panic(fmt.Sprintf("what is to be done with %+v?", spec))
}

// What a request that meets a bug brought is in neither its answer nor the log, which says
// where the bug is.
func TestPanicTellsNothing(t *testing.T) {
	var log bytes.Buffer
	h := New(Options{Access: buggy{}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Draining: make(chan struct{})})
	const secret = "canary7f3a91"
	r := httptest.NewRequest(http.MethodPost, "/v1/grants", strings.NewReader(`{"principal":"user:`+secret+`","on":"*","verbs":["read"]}`))
	for _, name := range []string{"Authorization", "Idempotency-Key", "Cookie"} {
		r.Header.Set(name, secret)
	}
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(auth.With(t.Context(), auth.Anyone)))
	require.Equal(t, http.StatusInternalServerError, w.Code, w.Body)
	require.NotContains(t, w.Body.String(), secret)
	require.NotContains(t, log.String(), secret)
	require.Contains(t, log.String(), "a value of type string")
	require.Contains(t, log.String(), "problem_test.go:")
}

func TestAccepts(t *testing.T) {
	for accept, want := range map[string]string{
		"":                     typeJSON,
		"*/*":                  typeJSON,
		"application/x-ndjson": typeNDJSON,
		"application/json;q=0.1, application/x-ndjson;q=0.9":    typeNDJSON,
		"application/*;q=0.5, application/json;q=0, text/plain": typeNDJSON,
		"text/event-stream":                   typeSSE,
		"text/html, */*;q=0.1":                typeJSON,
		"application/vnd.apache.arrow.stream": typeArrow,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		got, err := accepts(r, typeJSON, typeNDJSON, typeArrow, typeSSE)
		require.NoError(t, err, accept)
		require.Equal(t, want, got, accept)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "text/html")
	_, err := accepts(r, typeJSON)
	require.Equal(t, errs.NotAcceptable, errs.CodeOf(err))
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"500ms": 500 * time.Millisecond, "20s": 20 * time.Second, "2min": 2 * time.Minute, "2m": 2 * time.Minute, "1h": time.Hour, "1d": 24 * time.Hour, "0s": 0} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "5", "s", "-1s", "1.5s", "1 s", "01s", "1week", "99999999999999999999s", "1s1s"} {
		_, err := ParseDuration(text)
		require.Error(t, err, text)
	}
}
