package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/icebergrest"
	"github.com/millrace/millrace/shardrpc"
	"github.com/millrace/millrace/trace"
)

const (
	headerTime     = 10 * time.Second
	idleTime       = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// maxStreams bounds the requests under way of one connection of HTTP/2.
	maxStreams = 250
)

// front is what stands before the handlers of the API: request ids, the Host
// check, who calls, health and metrics, and the refusal of work before and after serving.
type front struct {
	health  *health
	metrics *metrics
	log     *slog.Logger
	clock   func() time.Time
	// callers finds out who calls.
	callers auth.Authenticator
	// anyHost turns the Host check off.
	anyHost bool
	// pages says which pages in browsers may call.
	pages *pages

	// audit writes down who did what; nil: nobody does.
	audit *audit.Log
	// tracer begins spans; nil: there are none.
	tracer *trace.Tracer

	// api serves what is not health or metrics; nil until the server is ready.
	api atomic.Pointer[http.Handler]
	// internal serves other processes of the cluster; nil where none comes.
	internal atomic.Pointer[http.Handler]
	// working counts the requests that api serves now.
	working atomic.Int64
	// idle is sent to when working falls to 0.
	idle chan struct{}
}

func newFront(h *health, m *metrics, log *slog.Logger, clock func() time.Time, callers auth.Authenticator, anyHost bool) *front {
	f := &front{health: h, metrics: m, log: log, clock: clock, callers: callers, anyHost: anyHost, pages: newPages(nil), idle: make(chan struct{}, 1)}
	h.known = func(r *http.Request) bool {
		_, err := f.callers.Authenticate(r.Context(), shown(r))
		return err == nil
	}
	return f
}

// serveAPI lets h answer from now on.
func (f *front) serveAPI(h http.Handler) { f.api.Store(&h) }

// serveInternal lets h answer other processes of the cluster.
func (f *front) serveInternal(h http.Handler) { f.internal.Store(&h) }

// handler is the whole HTTP side.
func (f *front) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, req := trace.With(r.Context(), trace.RequestID(r.Header.Get(trace.HeaderRequestID)))
		w.Header().Set(trace.HeaderRequestID, req.ID)
		ctx, span := f.traced(ctx, r)
		record := f.record(r, req.ID)
		ctx = audit.With(ctx, record)
		rctx := chi.NewRouteContext()
		r = r.WithContext(context.WithValue(ctx, chi.RouteCtxKey, rctx))
		rec := newRecorder(w, r, f.clock)
		began := f.clock()
		defer func() {
			took := f.clock().Sub(began)
			rec.end()
			f.metrics.request(rctx.RoutePattern(), r.Method, rec.status, took)
			f.metrics.failed(req.Failure())
			if record == nil {
				record = f.stranger(r, req)
			}
			record.End(outcome(req, rec.status))
			endSpan(span, req, r.Method, rctx.RoutePattern(), rec.status)
			// The path itself may hold a key, or a secret that was put there by mistake.
			f.log.DebugContext(r.Context(), "request", slog.String("method", r.Method),
				slog.String("route", rctx.RoutePattern()), slog.Int("status", rec.status), slog.Duration("took", took))
		}()
		if f.pages.admit(rec, r) {
			f.route(rec, r)
		}
	})
}

func (f *front) route(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" || open(r.URL.Path) {
		bodiless(w, r)
	}
	switch r.URL.Path {
	case "/healthz":
		f.health.live(w, r)
		return
	case "/readyz":
		f.health.ready(w, r)
		return
	}
	if h := f.internal.Load(); h != nil && shardrpc.Serves(r.URL.Path) { // which wants a token of the cluster
		(*h).ServeHTTP(w, r.WithContext(auth.With(r.Context(), auth.System))) // who asked has checked his caller
		return
	}
	if !f.anyHost && !loopbackHost(r.Host) {
		refuse(w, r, errs.New(errs.PermissionDenied,
			"this server has no authentication and answers to loopback names only, such as localhost and 127.0.0.1; %q is none", clip(r.Host)))
		return
	}
	if !open(r.URL.Path) {
		p, err := f.callers.Authenticate(r.Context(), shown(r))
		if err != nil {
			f.unknown(w, r, err)
			return
		}
		audit.Of(r.Context()).Caller(p.Name)
		r = r.WithContext(auth.With(r.Context(), p))
	}
	if r.URL.Path == "/metrics" {
		f.metrics.handler.ServeHTTP(w, r)
		return
	}
	f.work(w, r)
}

// open says whether a path needs no caller: it tells what is in every copy of the program.
func open(path string) bool {
	return path == "/openapi.json" || path == "/docs" || strings.HasPrefix(path, "/docs/")
}

// shown is what a request shows of its caller.
func shown(r *http.Request) auth.Shown {
	s := auth.Shown{Authorization: r.Header.Values("Authorization")}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		s.Certificate = r.TLS.PeerCertificates[0]
	}
	return s
}

// unknown refuses a request whose caller is not known.
func (f *front) unknown(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		f.log.ErrorContext(r.Context(), "a caller could not be authenticated", slog.Any("err", err))
		e = errs.New(errs.Unavailable, "the server could not find out who calls; try again in a while")
	}
	if e.Code == errs.Unauthenticated {
		w.Header().Set("WWW-Authenticate", auth.Challenge)
	}
	refuse(w, r, e)
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := newRecorder(w, r, f.clock)
		defer rec.end()
		bodiless(rec, r)
		mux.ServeHTTP(rec, r)
	})
}

// newHTTPServer is an http.Server with limits on what a client may hold.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderBytes, ConnState: httpState,
		// A peer that is gone is noticed by a ping, one that takes nothing by what waits for it.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: stallTime, PingTimeout: stallTime / 2, WriteByteTimeout: stallTime},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // broken connections
	}
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
		icebergrest.Refuse(w, r, e)
		return
	}
	trace.Of(r.Context()).Fail(e.Code)
	kind := errs.KindOf(e.Code)
	if wait := e.Wait(); wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(wait))
	}
	answerJSON(w, "application/problem+json", kind.HTTP, map[string]any{
		"type": "/docs/errors#" + string(e.Code), "title": kind.Title, "status": kind.HTTP, "detail": e.Message,
		"instance": r.URL.EscapedPath(), "code": e.Code, "request_id": w.Header().Get(trace.HeaderRequestID),
	})
}

func clip(s string) string { return s[:min(len(s), 128)] }
