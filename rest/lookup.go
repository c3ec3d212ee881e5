package rest

import (
	"encoding/json"
	"net/http"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// LookupRows answers lookup_rows.
func (h *Handler) LookupRows(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.LookupRowsParams) {
	out, err := h.lookup(w, r, database, table)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	_, _ = w.Write(out) // the client went away
}

func (h *Handler) lookup(w http.ResponseWriter, r *http.Request, database, table string) ([]byte, error) {
	if err := checkQuery(r.URL.Query(), "int64", "table_id"); err != nil {
		return nil, err
	}
	t, err := h.keyed(r, database, table)
	if err != nil {
		return nil, err
	}
	opts, err := encodeOptions(r)
	if err != nil {
		return nil, err
	}
	if _, err := contentType(r, typeJSON); err != nil {
		return nil, err
	}
	b, err := readAll(w, r, maxJSONBytes)
	if err != nil {
		return nil, err
	}
	keys, cols, err := lookupRequest(t, b)
	if err != nil {
		return nil, err
	}
	defer keys.Release()
	if keys.Len() == 0 {
		return []byte("{\"rows\":[]}\n"), nil
	}
	res, err := h.o.Router.Lookup(r.Context(), t, keys.Record, cols)
	if err != nil {
		return nil, err
	}
	defer res.Record.Release()
	enc := jsonrow.NewEncoder(cols, opts)
	enc.Bind(res.Record)
	out, next := []byte(`{"rows":[`), 0
	for i, found := range res.Found {
		if i > 0 {
			out = append(out, ',')
		}
		if !found {
			out = append(out, "null"...)
			continue
		}
		out = enc.AppendObject(out, next)
		next++
	}
	return append(out, "]}\n"...), nil
}

// lookupRequest reads the keys and columns of a lookup's body.
func lookupRequest(t *millrace.Table, b []byte) (row.Rows, []millrace.Column, error) {
	parts, err := jsonrow.SplitBody(b, "keys", router.MaxLookupKeys)
	if err != nil {
		return row.Rows{}, nil, err
	}
	if !parts.Listed {
		return row.Rows{}, nil, errs.New(errs.InvalidRequest, "the body lacks \"keys\": send {\"keys\":[{…},…]}")
	}
	var names []string
	for name, raw := range parts.Members {
		switch name {
		case "columns":
			if err := json.Unmarshal(raw, &names); err != nil {
				return row.Rows{}, nil, errs.New(errs.InvalidValue, "columns is an array of names")
			}
		case "insert_if_absent":
			var on bool
			if err := json.Unmarshal(raw, &on); err != nil {
				return row.Rows{}, nil, errs.New(errs.InvalidValue, "insert_if_absent is true or false")
			}
			if on {
				return row.Rows{}, nil, errs.New(errs.NotImplemented, "insert_if_absent is not implemented yet")
			}
		default:
			return row.Rows{}, nil, errs.New(errs.UnknownField, "the body has no field %q; it takes keys and columns", clip(name))
		}
	}
	cols, err := router.LookupColumns(t, names)
	if err != nil {
		return row.Rows{}, nil, err
	}
	pk := t.Columns(t.PrimaryKey)
	d := jsonrow.NewDecoder(pk, jsonrow.Options{Key: t.Names(t.PrimaryKey)})
	for i, raw := range parts.Items {
		if err := d.AddObject(raw, int64(i)); err != nil {
			return row.Rows{}, nil, err
		}
	}
	return d.Finish(), cols, nil
}
