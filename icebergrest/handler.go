package icebergrest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

// Root is the path below which this door is. Readers are given the server's address
// with it.
const Root = "/iceberg"

// answerTime bounds a request.
const answerTime = 30 * time.Second

// Catalog is what this door needs of the catalog.
type Catalog interface {
	Database(ctx context.Context, name string) (catalog.Database, error)
	Databases(ctx context.Context, limit int, token string) (page []catalog.Database, next string, err error)
	Table(ctx context.Context, path millrace.TablePath) (*millrace.Table, error)
	Tables(ctx context.Context, db string, limit int, token string) (page []*millrace.Table, next string, err error)
}

// Access decides what callers may do.
type Access interface {
	// Allow asks whether the caller may do something to a table.
	Allow(ctx context.Context, verb millrace.Verb, t *millrace.Table) error
}

// Lake is what it needs of the lake.
type Lake interface {
	// Metadata is the newest metadata of a table's lake table, and the address of the
	// file that holds it. A lake table that is not there yet is made.
	Metadata(ctx context.Context, t *millrace.Table) (location string, metadata []byte, err error)
}

// Options are the handler's settings and components.
type Options struct {
	Catalog Catalog
	Access  Access // nil: everybody may do everything
	Lake    Lake
	// FileIO is what readers need to know to reach the files, such as "s3.endpoint";
	// never credentials.
	FileIO map[string]string
	Logger *slog.Logger
}

// Handler serves the catalog.
type Handler struct {
	o   Options
	mux chi.Router
}

// Serves says whether a path is one of this door's.
func Serves(path string) bool { return path == Root || strings.HasPrefix(path, Root+"/") }

// New makes the handler of everything below Root.
func New(o Options) *Handler {
	h := &Handler{o: o, mux: chi.NewRouter()}
	if h.o.FileIO == nil {
		h.o.FileIO = map[string]string{} // answers have an object
	}
	h.mux.NotFound(h.unknown)
	h.mux.MethodNotAllowed(h.unknown)
	for _, op := range operations() {
		h.mux.MethodFunc(op.method, op.route(), op.serve(h))
	}
	return h
}

// ServeHTTP serves a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // the sentinel itself is thrown
				panic(p)
			}
			h.fail(w, r, fmt.Errorf("request panicked: %s\n%s", trace.PanicText(p), debug.Stack()))
		}
	}()
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	h.mux.ServeHTTP(w, r.WithContext(ctx))
}

// operation is one of the specification.
type operation struct {
	method, path string
	// rule is what a caller needs on what the path names; lists leave out the rest.
	rule  millrace.Rule
	serve func(*Handler) http.HandlerFunc
	// quiet operations are there, and not listed: for clients that call them unasked.
	quiet bool
}

// route is the path here: there is no prefix.
func (o *operation) route() string { return Root + strings.Replace(o.path, "/{prefix}", "", 1) }

const (
	namespaces = "/v1/{prefix}/namespaces"
	namespace  = namespaces + "/{namespace}"
	tables     = namespace + "/tables"
	table      = tables + "/{table}"
	views      = namespace + "/views"
	view       = views + "/{view}"
)

// operations are those that are there.
func operations() []operation {
	handle := func(f func(*Handler, http.ResponseWriter, *http.Request) error) func(*Handler) http.HandlerFunc {
		return func(h *Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if err := f(h, w, r); err != nil {
					h.fail(w, r, err)
				}
			}
		}
	}
	const known = millrace.RuleKnown
	describe, read := millrace.RuleOf(millrace.VerbDescribe), millrace.RuleOf(millrace.VerbRead)
	return []operation{
		{method: http.MethodGet, path: "/v1/config", rule: known, serve: handle((*Handler).config), quiet: true}, // needs no listing
		{method: http.MethodGet, path: namespaces, rule: describe, serve: handle((*Handler).listNamespaces)},
		{method: http.MethodGet, path: namespace, rule: describe, serve: handle((*Handler).getNamespace)},
		{method: http.MethodHead, path: namespace, rule: describe, serve: handle((*Handler).namespaceExists)},
		{method: http.MethodGet, path: tables, rule: describe, serve: handle((*Handler).listTables)},
		{method: http.MethodGet, path: table, rule: read, serve: handle((*Handler).loadTable)},
		{method: http.MethodHead, path: table, rule: describe, serve: handle((*Handler).tableExists)},
		// Reports of scans go nowhere: whoever reads the list above spares them.
		{method: http.MethodPost, path: table + "/metrics", rule: describe, serve: handle((*Handler).reportMetrics), quiet: true},
		// Trino asks for views whatever the list says.
		{method: http.MethodGet, path: views, rule: describe, serve: handle((*Handler).listViews), quiet: true},
		{method: http.MethodGet, path: view, rule: known, serve: handle((*Handler).loadView), quiet: true},
		{method: http.MethodHead, path: view, rule: known, serve: handle((*Handler).loadView), quiet: true},
	}
}

// Route is an operation that is there, and what its caller needs.
type Route struct {
	Method, Path string // the path from the root of the server
	Rule         millrace.Rule
}

// Routes are those that the handler serves.
func (h *Handler) Routes() []Route {
	rules := map[string]millrace.Rule{}
	for _, op := range operations() {
		rules[op.method+" "+op.route()] = op.rule
	}
	var out []Route
	// Walk returns what the function does.
	_ = chi.Walk(h.mux, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		out = append(out, Route{Method: method, Path: path, Rule: rules[method+" "+path]})
		return nil
	})
	return out
}

// unknown refuses what is not there.
func (h *Handler) unknown(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, Root+"/v1/") {
		h.fail(w, r, errs.New(errs.RouteNotFound, "there is nothing at this path; the catalog's address ends in %s", Root))
		return
	}
	h.fail(w, r, errs.New(errs.NotAcceptable, "this catalog is read-only and does not do %s %s: what it does is listed by GET %s/v1/config; rows are written, and tables made, through Millrace", r.Method, clip(r.URL.Path), Root))
}

// config is what a client asks first.
func (h *Handler) config(w http.ResponseWriter, _ *http.Request) error {
	// Whatever warehouse is asked for, there is one.
	answer := struct {
		Defaults  map[string]string `json:"defaults"`
		Overrides map[string]string `json:"overrides"`
		Endpoints []string          `json:"endpoints"`
	}{Defaults: map[string]string{}, Overrides: map[string]string{}}
	for _, op := range operations() {
		if !op.quiet {
			answer.Endpoints = append(answer.Endpoints, op.method+" "+op.path)
		}
	}
	return answerJSON(w, answer)
}

// param is a part of the path, decoded once.
func param(r *http.Request, name string) string {
	p := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return p // chi went by the decoded path
	}
	if decoded, err := url.PathUnescape(p); err == nil {
		return decoded
	}
	return p
}

func clip(s string) string {
	if len(s) > 128 {
		return s[:128] + "…"
	}
	return s
}
