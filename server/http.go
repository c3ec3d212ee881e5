package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/icebergrest"
	"github.com/millrace/millrace/shardrpc"
)

const (
	headerTime     = 10 * time.Second
	idleTime       = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// maxRequestID is the longest request id that is taken from a caller.
	maxRequestID = 128
)

const headerRequestID = "X-Request-Id"

// front is what stands before the handlers of the API: request ids, the Host
// check, health and metrics, and the refusal of work before and after serving.
type front struct {
	health  *health
	metrics *metrics
	log     *slog.Logger
	clock   func() time.Time
	// anyHost turns the Host check off.
	anyHost bool

	// api serves what is not health or metrics; nil until the server is ready.
	api atomic.Pointer[http.Handler]
	// internal serves other processes of the cluster; nil where none comes.
	internal atomic.Pointer[http.Handler]
	// working counts the requests that api serves now.
	working atomic.Int64
	// idle is sent to when working falls to 0.
	idle chan struct{}
}

func newFront(h *health, m *metrics, log *slog.Logger, clock func() time.Time, anyHost bool) *front {
	return &front{health: h, metrics: m, log: log, clock: clock, anyHost: anyHost, idle: make(chan struct{}, 1)}
}

// serveAPI lets h answer from now on.
func (f *front) serveAPI(h http.Handler) { f.api.Store(&h) }

// serveInternal lets h answer other processes of the cluster.
func (f *front) serveInternal(h http.Handler) { f.internal.Store(&h) }

// handler is the whole HTTP side.
func (f *front) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := requestID(r.Header.Get(headerRequestID))
		w.Header().Set(headerRequestID, id)
		rctx := chi.NewRouteContext()
		r = r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, rctx))
		rec := newRecorder(w, r, f.clock)
		began := f.clock()
		defer func() {
			took := f.clock().Sub(began)
			rec.end()
			f.metrics.request(rctx.RoutePattern(), r.Method, rec.status, took)
			f.log.DebugContext(r.Context(), "request", slog.String("request_id", id), slog.String("method", r.Method),
				slog.String("path", r.URL.Path), slog.Int("status", rec.status), slog.Duration("took", took))
		}()
		f.route(rec, r)
	})
}

func (f *front) route(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		f.health.live(w, r)
		return
	case "/readyz":
		f.health.ready(w, r)
		return
	}
	if h := f.internal.Load(); h != nil && shardrpc.Serves(r.URL.Path) { // which wants a token of the cluster
		(*h).ServeHTTP(w, r)
		return
	}
	if !f.anyHost && !loopbackHost(r.Host) {
		refuse(w, r, errs.New(errs.PermissionDenied,
			"this server has no authentication and answers to loopback names only, such as localhost and 127.0.0.1; %q is none", clip(r.Host)))
		return
	}
	if r.URL.Path == "/metrics" {
		f.metrics.handler.ServeHTTP(w, r)
		return
	}
	f.work(w, r)
}

// work hands a request to the API, when it takes any.
func (f *front) work(w http.ResponseWriter, r *http.Request) {
	f.working.Add(1)
	defer func() {
		if f.working.Add(-1) == 0 {
			select {
			case f.idle <- struct{}{}:
			default:
			}
		}
	}()
	api := f.api.Load()
	switch {
	case f.health.now() == draining:
		w.Header().Set("Connection", "close")
		refuse(w, r, errs.New(errs.Draining, "the server is shutting down; try again, here or elsewhere, in a while"))
	case api == nil:
		refuse(w, r, errs.New(errs.Unavailable, "the server is starting; try again in a while"))
	default:
		(*api).ServeHTTP(w, r)
	}
}

// drained waits until no request is being worked on, or ctx ends.
// REQUIRES: the phase is draining, so that working falls.
func (f *front) drained(ctx context.Context) error {
	for f.working.Load() > 0 {
		select {
		case <-f.idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// observing is what the second address, --metrics-addr, serves.
func (f *front) observing() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", f.health.live)
	mux.HandleFunc("/readyz", f.health.ready)
	mux.Handle("/metrics", f.metrics.handler)
	return mux
}

// newHTTPServer is an http.Server with limits on what a client may hold.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // broken connections
	}
}

// requestID is the caller's id when it is one that can stand in logs and headers,
// and else a new one.
func requestID(given string) string {
	if given == "" || len(given) > maxRequestID {
		return uuid.NewString()
	}
	for i := range len(given) {
		if c := given[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return uuid.NewString()
		}
	}
	return given
}

// loopbackHost says whether a Host header names this machine to itself, so that a
// page of another site cannot reach us by a name that it made point here.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if name := strings.ToLower(strings.TrimSuffix(host, ".")); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// refuse answers with an error before any handler has seen the request.
func refuse(w http.ResponseWriter, r *http.Request, e *errs.Error) {
	if icebergrest.Serves(r.URL.Path) {
		icebergrest.Refuse(w, e)
		return
	}
	kind := errs.KindOf(e.Code)
	if kind.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(kind.RetryAfterSeconds))
	}
	answerJSON(w, "application/problem+json", kind.HTTP, map[string]any{
		"type": "/docs/errors#" + string(e.Code), "title": kind.Title, "status": kind.HTTP, "detail": e.Message,
		"instance": r.URL.EscapedPath(), "code": e.Code, "request_id": w.Header().Get(headerRequestID),
	})
}

func clip(s string) string { return s[:min(len(s), 128)] }
