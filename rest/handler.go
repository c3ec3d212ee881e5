package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/openapi/adminapi"
	"github.com/millrace/millrace/openapi/dataapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/sql"
	"github.com/millrace/millrace/trace"
)

// Catalog is what this door needs of the catalog.
type Catalog interface {
	ClusterID() [16]byte
	CreateDatabase(ctx context.Context, name, comment string) (catalog.Database, error)
	Database(ctx context.Context, name string) (catalog.Database, error)
	Databases(ctx context.Context, limit int, token string) ([]catalog.Database, string, error)
	DropDatabase(ctx context.Context, name string, cascade bool) ([]*millrace.Table, error)
	CreateTable(ctx context.Context, db string, spec catalog.Spec, ifNotExists bool) (*millrace.Table, bool, error)
	Table(ctx context.Context, path millrace.TablePath) (*millrace.Table, error)
	Tables(ctx context.Context, db string, limit int, token string) ([]*millrace.Table, string, error)
	Schemas(ctx context.Context, id millrace.TableID) ([]*millrace.Schema, error)
	AlterTable(ctx context.Context, path millrace.TablePath, steps []catalog.AlterStep, ifVersion *int64) (*millrace.Table, error)
	DropTable(ctx context.Context, path millrace.TablePath, ifExists, purge bool) (*millrace.Table, error)
	Partitions(ctx context.Context, table millrace.TableID) ([]*millrace.Partition, error)
	Partition(ctx context.Context, table millrace.TableID, name string) (*millrace.Partition, error)
	EnsurePartition(ctx context.Context, table millrace.TableID, values []string) (p *millrace.Partition, created bool, err error)
}

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Options are the handler's settings and components.
type Options struct {
	Version        string
	Authentication bool           // whether callers have to show who they are
	FlightAddress  string         // as clients reach it
	Members        func() Members // who is there, and who owns what, now
	Catalog        Catalog
	Access         Access      // nil: everybody may do everything, and there are no grants
	Room           *admit.Room // for bodies; nil: they take what they need
	Quotas         Quotas      // nil: everybody may write as much as he likes
	Router         *router.Router
	Lake           Lake   // nil: nobody tiers here
	LakeLocation   string // where lake tables lie; "" without a lake
	// IcebergAddress is the path of the catalog of stock readers; "" without a lake.
	IcebergAddress string
	Clock          Clock
	Logger         *slog.Logger
	// Draining is closed when streams have to end.
	Draining <-chan struct{}
}

// Handler serves the operations.
type Handler struct {
	o   Options
	sql *sql.Engine
	mux chi.Router
}

var (
	_ adminapi.ServerInterface = (*Handler)(nil)
	_ dataapi.ServerInterface  = (*Handler)(nil)
)

const (
	defaultTimeout = 30 * time.Second
	maxTimeout     = 120 * time.Second
	// streamStall is how long a stream may go without the client taking anything.
	streamStall = 30 * time.Second
)

// New makes the handler of everything below /v1, the document, its page and the
// page of errors.
func New(o Options) *Handler {
	h := &Handler{o: o, sql: sql.New(sql.Options{Catalog: o.Catalog, Router: o.Router, Clock: o.Clock}), mux: chi.NewRouter()}
	h.mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		h.problem(w, r, errs.New(errs.RouteNotFound, "there is no operation %s %s; /openapi.json lists them", r.Method, clip(r.URL.Path)))
	})
	h.mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if m == http.MethodHead && h.mux.Match(chi.NewRouteContext(), http.MethodGet, r.URL.Path) || h.mux.Match(chi.NewRouteContext(), m, r.URL.Path) {
				w.Header().Add("Allow", m)
			}
		}
		h.problem(w, r, errs.New(errs.MethodNotAllowed, "%s does not take %s", clip(r.URL.Path), r.Method))
	})
	h.mux.Use(h.head, h.deadline)
	badParam := func(w http.ResponseWriter, r *http.Request, err error) {
		name := ""
		if e, ok := errors.AsType[*adminapi.InvalidParamFormatError](err); ok {
			name = e.ParamName
		} else if e, ok := errors.AsType[*dataapi.InvalidParamFormatError](err); ok {
			name = e.ParamName
		}
		h.problem(w, r, errs.New(errs.InvalidValue, "parameter %q has a value that cannot be read", name))
	}
	routes := h.mux.With(h.allowed)
	adminapi.HandlerWithOptions(h, adminapi.ChiServerOptions{BaseRouter: routes, ErrorHandlerFunc: badParam})
	dataapi.HandlerWithOptions(h, dataapi.ChiServerOptions{BaseRouter: routes, ErrorHandlerFunc: badParam})
	h.mux.Get("/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openapi.JSON()) // the client went away
	})
	h.mux.Mount("/docs", openapi.DocsHandler())
	return h
}

// ServeHTTP serves a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // the sentinel itself is thrown
				panic(p)
			}
			h.o.Logger.ErrorContext(r.Context(), "request panicked", route(r), slog.String("panic", trace.PanicText(p)), slog.String("stack", string(debug.Stack())))
			h.problem(w, r, errs.New(errs.Internal, "the request met a bug"))
		}
	}()
	if h.o.Room != nil && r.Body != nil && r.Body != http.NoBody {
		hold := h.o.Room.Hold()
		defer hold.Done()
		r = r.WithContext(context.WithValue(r.Context(), holdKey{}, hold))
	}
	h.mux.ServeHTTP(w, r)
}

// route is what a line of the log says of a request: its path may hold a key.
func route(r *http.Request) slog.Attr {
	return slog.String("route", chi.RouteContext(r.Context()).RoutePattern())
}

type holdKey struct{}

// holdOf is what the body of a request takes of the room for bodies; nil: of none.
func holdOf(r *http.Request) *admit.Hold {
	hold, _ := r.Context().Value(holdKey{}).(*admit.Hold)
	return hold
}

// doneWith gives back what a part of a stream has taken, which was written.
func doneWith(r *http.Request) {
	if hold := holdOf(r); hold != nil {
		hold.Done()
	}
}

// head answers HEAD as GET where there is no operation of its own; the body is
// left out by net/http.
func (h *Handler) head(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && !h.mux.Match(chi.NewRouteContext(), http.MethodHead, r.URL.Path) {
			chi.RouteContext(r.Context()).RouteMethod = http.MethodGet
		}
		next.ServeHTTP(w, r)
	})
}

// deadline bounds unary calls; streams bound themselves.
func (h *Handler) deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := defaultTimeout
		if t := r.URL.Query().Get("timeout"); t != "" {
			var err error
			if d, err = ParseDuration(t); err != nil || d <= 0 || d > maxTimeout {
				h.problem(w, r, errs.New(errs.InvalidValue, "timeout %q is not a duration up to %s, such as 500ms, 20s or 2min", clip(t), maxTimeout))
				return
			}
		}
		ctx := r.Context()
		if !streams(r) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d)
			defer cancel()
			if r.Body != nil {
				r.Body = &timelyBody{r.Body, ctx}
			}
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// timelyBody is the body of a request with a deadline, after which none of it is read.
type timelyBody struct {
	io.ReadCloser

	ctx context.Context //nolint:containedctx // the request's own
}

// Read implements io.Reader.
func (b *timelyBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// streams says whether the request's body or answer is a stream, which has no
// deadline as a whole.
func streams(r *http.Request) bool {
	accept, content := r.Header.Get("Accept"), r.Header.Get("Content-Type")
	for _, t := range []string{typeNDJSON, typeArrow, typeSSE} {
		if strings.Contains(accept, t) || strings.HasPrefix(content, t) {
			return true
		}
	}
	return false
}

// ParseDuration reads an integer and a unit: ms, s, min, m (minutes), h, d.
func ParseDuration(s string) (time.Duration, error) {
	n, unit := 0, ""
	if _, err := fmt.Sscanf(s, "%d%s", &n, &unit); err != nil || n < 0 || n > 1<<31 {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	units := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "min": time.Minute, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	u, ok := units[unit]
	if !ok || fmt.Sprintf("%d%s", n, unit) != s {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	return time.Duration(n) * u, nil
}

func clip(s string) string {
	if len(s) > 128 {
		return s[:128] + "…"
	}
	return s
}
