package icebergrest

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// levelSeparator stands between the levels of a namespace in a path. Ours have one.
const levelSeparator = "\x1f"

// database is the database of a namespace.
func (h *Handler) database(r *http.Request, name string) (catalog.Database, error) {
	if strings.Contains(name, levelSeparator) {
		return catalog.Database{}, errs.New(errs.DatabaseNotFound, "there is no namespace %q: namespaces have one level here, a database", clip(strings.ReplaceAll(name, levelSeparator, ".")))
	}
	return h.o.Catalog.Database(r.Context(), name)
}

// listNamespaces lists databases; none are in another.
func (h *Handler) listNamespaces(w http.ResponseWriter, r *http.Request) error {
	p, err := pageOf(r)
	if err != nil {
		return err
	}
	answer := struct {
		Namespaces []any   `json:"namespaces"`
		Next       *string `json:"next-page-token"`
	}{Namespaces: []any{}}
	if parent := r.URL.Query().Get("parent"); parent != "" {
		if _, err := h.database(r, parent); err != nil {
			return err
		}
		return answerJSON(w, answer)
	}
	answer.Namespaces, answer.Next, err = p.list("namespaces", func(limit int, token string) ([]any, string, error) {
		dbs, next, err := h.o.Catalog.Databases(r.Context(), limit, token)
		names := make([]any, len(dbs))
		for i, d := range dbs {
			names[i] = []string{d.Name}
		}
		return names, next, err
	})
	if err != nil {
		return err
	}
	return answerJSON(w, answer)
}

func (h *Handler) getNamespace(w http.ResponseWriter, r *http.Request) error {
	d, err := h.database(r, param(r, "namespace"))
	if err != nil {
		return err
	}
	properties := map[string]string{"millrace.database-id": strconv.FormatUint(uint64(d.ID), 10)}
	if d.Comment != "" {
		properties["comment"] = d.Comment
	}
	return answerJSON(w, struct {
		Namespace  []string          `json:"namespace"`
		Properties map[string]string `json:"properties"`
	}{[]string{d.Name}, properties})
}

func (h *Handler) namespaceExists(w http.ResponseWriter, r *http.Request) error {
	if _, err := h.database(r, param(r, "namespace")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listViews lists none.
func (h *Handler) listViews(w http.ResponseWriter, r *http.Request) error {
	if _, err := h.database(r, param(r, "namespace")); err != nil {
		return err
	}
	return answerJSON(w, struct {
		Identifiers []any   `json:"identifiers"`
		Next        *string `json:"next-page-token"`
	}{Identifiers: []any{}})
}

func (h *Handler) loadView(_ http.ResponseWriter, r *http.Request) error {
	return noSuchView{param(r, "namespace") + "." + param(r, "view")}
}
