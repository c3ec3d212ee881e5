package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/icebergrest"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/shardrpc"
	"github.com/millrace/millrace/trace"
)

func (s *Settings) audits() bool { return s.AuditLog != "" || s.AuditTable != "" }

func (s *Settings) checkAudit() error {
	if s.AuditTable != "" {
		if _, err := millrace.ParseTablePath(s.AuditTable); err != nil {
			return wrong("audit-table", "%v", err)
		}
	}
	for _, v := range s.AuditVerbs {
		if !slices.Contains(audit.Optional(), v) {
			return wrong("audit-verbs", "%q is not one of %s; every other verb is written down whatever is set here", v, strings.Join(audit.Optional(), ", "))
		}
	}
	if !s.audits() && !slices.Equal(s.AuditVerbs, audit.Optional()) {
		return wrong("audit-verbs", "is of the audit log, and neither audit-log nor audit-table is set")
	}
	return nil
}

// openAudit opens the audit log, when there is to be one. Its table comes later; events wait
// for it.
func (s *Server) openAudit() error {
	if !s.settings.audits() {
		return nil
	}
	l, err := audit.Open(audit.Options{
		Path: s.settings.AuditLog, Table: s.settings.AuditTable != "", Verbs: append([]string{}, s.settings.AuditVerbs...),
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	})
	if err != nil {
		return wrong("audit-log", "%v", err)
	}
	s.audit = l
	s.health.watch("audit log", l.Err)
	s.onStop("audit log", func(ctx context.Context) error {
		if err := l.Close(); err != nil {
			s.log.ErrorContext(ctx, "events of the audit log are lost", slog.Any("err", err))
		}
		return nil // the server has stopped cleanly but for that
	})
	return nil
}

// record begins the record of a request; nil where none is kept: of health, and of other
// processes, which record their callers' requests themselves; see stranger.
func (f *front) record(r *http.Request, id string) *audit.Record {
	if f.audit == nil || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" || f.internal.Load() != nil && shardrpc.Serves(r.URL.Path) {
		return nil
	}
	door := "http"
	if icebergrest.Serves(r.URL.Path) {
		door = "iceberg"
	}
	operation, object := asked(r)
	record := f.audit.Begin(id, r.RemoteAddr, door, operation)
	record.Object(object)
	return record
}

// doorInternal is where other processes of the cluster come in.
const doorInternal = "internal"

// stranger begins the record of a request that came where other processes of the cluster come
// in, and showed no token of it; nil of any other.
func (f *front) stranger(r *http.Request, req *trace.Request) *audit.Record {
	if !shardrpc.Serves(r.URL.Path) || req.Failure() != errs.Unauthenticated {
		return nil
	}
	return f.audit.Begin(req.ID, r.RemoteAddr, doorInternal, "")
}

// outcome is how a request ended.
func outcome(req *trace.Request, status int) string {
	switch code := req.Failure(); {
	case code != "":
		return string(code)
	case status >= http.StatusInternalServerError:
		return string(errs.Internal)
	}
	return audit.OK
}

// operations finds an operation by method and path, before its handler does: who is not known
// does not get that far.
var operations = sync.OnceValue(func() *chi.Mux {
	mux := chi.NewRouter()
	for _, op := range openapi.Operations() {
		mux.MethodFunc(op.Method, op.Path, func(http.ResponseWriter, *http.Request) {})
	}
	return mux
})

// operationIDs are the names of operations, by method and path.
var operationIDs = sync.OnceValue(func() map[string]string {
	ids := map[string]string{}
	for _, op := range openapi.Operations() {
		ids[op.Method+" "+op.Path] = op.ID
	}
	return ids
})

// asked is the name of the operation that a request asks for, and of the table or database
// that its path names; a path as a whole may hold a key.
func asked(r *http.Request) (operation, object string) {
	path := r.URL.EscapedPath()
	for _, method := range []string{r.Method, http.MethodGet} { // HEAD is answered as GET
		rctx := chi.NewRouteContext()
		pattern := operations().Find(rctx, method, path)
		if pattern == "" {
			continue
		}
		var names []string
		for _, of := range [][]string{{"database", "namespace"}, {"table"}} {
			for _, param := range of {
				if v := rctx.URLParam(param); v != "" {
					if decoded, err := url.PathUnescape(v); err == nil {
						v = decoded
					}
					v, _, _ = strings.Cut(v, "$") // of what the table shows
					names = append(names, v)
				}
			}
		}
		return operationIDs()[method+" "+pattern], strings.Join(names, ".")
	}
	return "", ""
}
