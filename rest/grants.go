package rest

import (
	"context"
	"net/http"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/guard"
	"github.com/millrace/millrace/openapi"
)

// Access decides what callers may do, and has the grants and quotas.
type Access interface {
	// Allow asks whether the caller may do something to a table, or to everything when t is nil.
	Allow(ctx context.Context, verb millrace.Verb, t *millrace.Table) error
	CreateGrant(ctx context.Context, spec guard.Grant) (g guard.Grant, created bool, err error)
	Grants(ctx context.Context, limit int, token string) (page []guard.Grant, next string, err error)
	DeleteGrant(ctx context.Context, id string) error
	Quotas(ctx context.Context, limit int, token string) (page []*millrace.Quota, next string, err error)
	Quota(ctx context.Context, principal string) (*millrace.Quota, error)
	SetQuota(ctx context.Context, principal string, l millrace.Limits) (*millrace.Quota, error)
	DeleteQuota(ctx context.Context, principal string) error
}

// allow asks about operations that neither the catalog nor the router ask about.
func (h *Handler) allow(r *http.Request, verb millrace.Verb, t *millrace.Table) error {
	if h.o.Access == nil {
		return nil
	}
	return h.o.Access.Allow(r.Context(), verb, t)
}

// grants are where grants are kept.
func (h *Handler) grants() (Access, error) {
	if h.o.Access == nil {
		return nil, errs.New(errs.NotImplemented, "this server keeps no grants and quotas")
	}
	return h.o.Access, nil
}

func grantAnswer(g guard.Grant) openapi.Grant {
	return openapi.Grant{ID: g.ID, Principal: g.Principal, On: g.On, Verbs: g.Verbs, Columns: g.Columns}
}

// ListGrants answers list_grants.
func (h *Handler) ListGrants(w http.ResponseWriter, r *http.Request, p openapi.ListGrantsParams) {
	n, token, err := page(p.Limit, p.PageToken)
	if err == nil {
		err = checkQuery(r.URL.Query(), "limit", "page_token")
	}
	var a Access
	if err == nil {
		a, err = h.grants()
	}
	var gs []guard.Grant
	if err == nil {
		gs, token, err = a.Grants(r.Context(), n, token)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out := openapi.GrantList{Grants: []openapi.Grant{}, NextPageToken: token}
	for _, g := range gs {
		out.Grants = append(out.Grants, grantAnswer(g))
	}
	h.answer(w, http.StatusOK, out)
}

// CreateGrant answers create_grant.
func (h *Handler) CreateGrant(w http.ResponseWriter, r *http.Request) {
	var req openapi.NewGrant
	err := checkQuery(r.URL.Query())
	if err == nil {
		err = decode(w, r, &req)
	}
	var a Access
	if err == nil {
		a, err = h.grants()
	}
	var g guard.Grant
	created := false
	if err == nil {
		spec := guard.Grant{Principal: req.Principal, On: req.On, Columns: req.Columns}
		for _, v := range req.Verbs {
			spec.Verbs = append(spec.Verbs, string(v))
		}
		g, created, err = a.CreateGrant(r.Context(), spec)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	h.answer(w, status, grantAnswer(g))
}

// DeleteGrant answers delete_grant.
func (h *Handler) DeleteGrant(w http.ResponseWriter, r *http.Request, id string) {
	h.takeBack(w, r, func(a Access) error { return a.DeleteGrant(r.Context(), id) })
}

// takeBack deletes a grant or quota, and answers that there is nothing to say.
func (h *Handler) takeBack(w http.ResponseWriter, r *http.Request, remove func(Access) error) {
	err := checkQuery(r.URL.Query())
	var a Access
	if err == nil {
		a, err = h.grants()
	}
	if err == nil {
		err = remove(a)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
