package rest

import (
	"net/http"
	"strconv"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// AlterTable answers alter_table.
func (h *Handler) AlterTable(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.AlterTableParams) {
	var req struct {
		Ops []catalog.AlterStep `json:"ops"`
	}
	err := checkQuery(r.URL.Query())
	if err == nil {
		err = decode(w, r, &req)
	}
	var version *int64
	if err == nil {
		version, err = ifMatch(r)
	}
	var t *millrace.Table
	if err == nil {
		t, err = h.table(r, database, table)
	}
	if err == nil {
		t, err = h.o.Catalog.AlterTable(r.Context(), t.Path, req.Ops, version)
	}
	if err == nil {
		h.o.Router.AlteredTable(r.Context(), t)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.tableHeaders(w, t)
	h.answer(w, http.StatusOK, tableAnswer(t))
}

// ifMatch is the version that a change is based on; nil when it does not say.
func ifMatch(r *http.Request) (*int64, error) {
	tags := r.Header.Values("If-Match")
	if len(tags) == 0 || len(tags) == 1 && strings.TrimSpace(tags[0]) == "*" {
		return nil, nil
	}
	text := strings.TrimSpace(tags[0])
	if bare, err := strconv.Unquote(text); err == nil && strings.HasPrefix(text, `"`) {
		if v, err := strconv.ParseInt(bare, 10, 64); err == nil && len(tags) == 1 {
			return &v, nil
		}
	}
	return nil, errs.New(errs.InvalidValue, "If-Match is the ETag of a table, such as \"3\", not %s", clip(strings.Join(tags, ", ")))
}
