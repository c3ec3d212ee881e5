package rest

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// operationsByRoute finds operations.
func operationsByRoute() map[string]openapi.Operation {
	byRoute := map[string]openapi.Operation{}
	for _, op := range openapi.Operations() {
		byRoute[op.Method+" "+op.Path] = op
	}
	return byRoute
}

// allowed checks operations that are on no table or database by the verb that the document
// gives them, before anything of them is looked at. The others are checked where it is known
// what they are on, by guard and router; that somebody calls is checked of all.
func (h *Handler) allowed(next http.Handler) http.Handler {
	byRoute := operationsByRoute()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := chi.RouteContext(r.Context())
		op, ok := byRoute[route.RouteMethod+" "+route.RoutePattern()]
		verb, needsVerb := op.Rule.Verb()
		var err error
		switch {
		case !ok:
			err = errs.New(errs.Internal, "the operation has no rule of who may call it")
		case h.o.Access == nil:
		case auth.Of(r.Context()) == nil:
			err = auth.ErrUnauthenticated
		case op.Everything && needsVerb:
			err = h.allow(r, verb, nil)
		}
		if err != nil {
			h.problem(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Routes are those that the handler serves, for a test that each has a rule.
func (h *Handler) Routes() chi.Routes { return h.mux }
