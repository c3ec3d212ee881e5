package icebergrest

import (
	"net/http"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// table is the table that a path names. One that is not kept in the lake is not there;
// nor is one in a namespace that is not: clients look for `db.t.snapshots` as a table
// first, and go on when no such table is what they hear.
func (h *Handler) table(r *http.Request) (*millrace.Table, error) {
	path := millrace.TablePath{Database: param(r, "namespace"), Table: param(r, "table")}
	t, err := h.o.Catalog.Table(r.Context(), path)
	switch {
	case errs.Is(err, errs.DatabaseNotFound):
		return nil, errs.New(errs.TableNotFound, "there is no table %q", clip(strings.ReplaceAll(path.String(), levelSeparator, ".")))
	case err != nil:
		return nil, err
	case t.Options.Lake == nil:
		return nil, errs.New(errs.TableNotFound, "table %s is not kept in the lake: set its property table.datalake.enabled to true", path)
	}
	return t, nil
}

// listTables lists the tables of a database that are kept in the lake.
func (h *Handler) listTables(w http.ResponseWriter, r *http.Request) error {
	p, err := pageOf(r)
	if err != nil {
		return err
	}
	d, err := h.database(r, param(r, "namespace"))
	if err != nil {
		return err
	}
	type identifier struct {
		Namespace []string `json:"namespace"`
		Name      string   `json:"name"`
	}
	var answer struct {
		Identifiers []any   `json:"identifiers"`
		Next        *string `json:"next-page-token"`
	}
	answer.Identifiers, answer.Next, err = p.list("tables", func(limit int, token string) (names []any, next string, err error) {
		tables, next, err := h.o.Catalog.Tables(r.Context(), d.Name, limit, token)
		for _, t := range tables {
			if t.Options.Lake != nil {
				names = append(names, identifier{[]string{d.Name}, t.Path.Table})
			}
		}
		return names, next, err
	})
	if err != nil {
		return err
	}
	return answerJSON(w, answer)
}

func (h *Handler) tableExists(w http.ResponseWriter, r *http.Request) error {
	if _, err := h.table(r); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// reportMetrics takes what a reader tells of a scan, and keeps nothing of it.
func (h *Handler) reportMetrics(w http.ResponseWriter, r *http.Request) error {
	return h.tableExists(w, r)
}
