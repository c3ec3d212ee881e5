package rest

import (
	"net/http"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/openapi"
)

// Whoami answers whoami.
func (h *Handler) Whoami(w http.ResponseWriter, r *http.Request) {
	err := checkQuery(r.URL.Query())
	p := auth.Of(r.Context())
	if p == nil {
		err = auth.ErrUnauthenticated
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, openapi.Whoami{Principal: p.Name, Groups: append([]string{}, p.Groups...), ExpiresAt: p.Expires.UTC()})
}
