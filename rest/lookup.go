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
	q, err := h.lookupRequest(r, t, b)
	defer q.release()
	if err != nil {
		return nil, err
	}
	keys, cols := q.keys, q.columns
	if keys.Len() == 0 {
		return []byte("{\"rows\":[]}\n"), nil
	}
	var res *router.LookupResult
	if q.insert != nil {
		res, err = h.o.Router.LookupOrInsert(r.Context(), t, keys.Record, cols, q.insert.sequence())
	} else {
		res, err = h.o.Router.Lookup(r.Context(), t, keys.Record, cols)
	}
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

// lookupQuery is what a lookup asks for.
type lookupQuery struct {
	keys    row.Rows
	columns []millrace.Column
	insert  *writing // nil: nothing is inserted
}

func (q *lookupQuery) release() {
	q.keys.Release()
	if q.insert != nil && q.insert.endKey != nil {
		q.insert.endKey()
	}
}

// lookupRequest reads the body of a lookup. Release what it gives, also after an error.
func (h *Handler) lookupRequest(r *http.Request, t *millrace.Table, b []byte) (*lookupQuery, error) {
	q := &lookupQuery{}
	parts, err := jsonrow.SplitBody(b, "keys", router.MaxLookupKeys)
	if err != nil {
		return q, err
	}
	if !parts.Listed {
		return q, errs.New(errs.InvalidRequest, "the body lacks \"keys\": send {\"keys\":[{…},…]}")
	}
	var names []string
	insert := false
	for name, raw := range parts.Members {
		switch name {
		case "columns":
			if err := json.Unmarshal(raw, &names); err != nil {
				return q, errs.New(errs.InvalidValue, "columns is an array of names")
			}
		case "insert_if_absent":
			if err := json.Unmarshal(raw, &insert); err != nil {
				return q, errs.New(errs.InvalidValue, "insert_if_absent is true or false")
			}
		default:
			return q, errs.New(errs.UnknownField, "the body has no field %q; it takes keys, columns and insert_if_absent", clip(name))
		}
	}
	if q.columns, err = router.LookupColumns(t, names); err != nil {
		return q, err
	}
	if insert {
		q.insert = &writing{h: h, r: r, table: t, mode: router.Upsert}
		if err := q.insert.identify(); err != nil {
			return q, err
		}
	}
	d := jsonrow.NewDecoder(t.Columns(t.PrimaryKey), jsonrow.Options{Key: t.Names(t.PrimaryKey)})
	for i, raw := range parts.Items {
		if insert {
			q.insert.mix(raw)
		}
		if err := d.AddObject(raw, int64(i)); err != nil {
			return q, err
		}
	}
	q.keys = d.Finish()
	return q, nil
}
