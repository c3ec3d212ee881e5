package rest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// PrefixLookup answers prefix_lookup.
func (h *Handler) PrefixLookup(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.PrefixLookupParams) {
	rd, opts, err := h.prefixReader(w, r, database, table)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	defer h.close(r, rd)
	out, err := prefixPage(r, rd, opts)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	rd.Stats().BytesShipped = int64(len(out))
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set(headerStats, string(jsonText(rd.Stats())))
	_, _ = w.Write(out) // the client went away
}

// prefixReader opens the read of the page that is asked for.
func (h *Handler) prefixReader(w http.ResponseWriter, r *http.Request, database, table string) (rd *router.Reader, opts jsonrow.EncodeOptions, err error) {
	if err := checkQuery(r.URL.Query(), "int64", "table_id"); err != nil {
		return nil, opts, err
	}
	t, err := h.keyed(r, database, table)
	if err != nil {
		return nil, opts, err
	}
	if opts, err = encodeOptions(r); err != nil {
		return nil, opts, err
	}
	if _, err = contentType(r, typeJSON); err != nil {
		return nil, opts, err
	}
	b, err := readAll(w, r, router.MaxRequestBytes)
	if err != nil {
		return nil, opts, err
	}
	req, err := prefixRequest(t, b)
	if err != nil {
		return nil, opts, err
	}
	defer req.Prefix.Release()
	p, err := h.o.Router.PrefixPage(r.Context(), t, req)
	if err != nil {
		return nil, opts, err
	}
	return h.o.Router.Open(p), opts, nil
}

// prefixRequest reads the body of a prefix lookup.
func prefixRequest(t *millrace.Table, b []byte) (*router.PrefixRequest, error) {
	parts, err := jsonrow.SplitBody(b, "", 0)
	if err != nil {
		return nil, err
	}
	req := &router.PrefixRequest{PageSize: router.DefaultPageSize}
	var prefix json.RawMessage
	for name, raw := range parts.Members {
		var into any
		var want string
		switch name {
		case "prefix":
			prefix = raw
			continue
		case "columns":
			into, want = &req.Columns, "an array of names"
		case "limit":
			into, want = &req.PageSize, "a whole number"
		case "page_token":
			into, want = &req.PageToken, "a string"
		default:
			return nil, errs.New(errs.UnknownField, "the body has no field %q; it takes prefix, columns, limit and page_token", clip(name))
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return nil, errs.New(errs.InvalidValue, "%s is %s", name, want)
		}
	}
	if prefix == nil {
		return nil, errs.New(errs.InvalidRequest, "the body lacks \"prefix\": send {\"prefix\":{…}}, the first columns of the primary key")
	}
	req.Prefix, err = decodePrefix(t, prefix)
	return req, err
}

// decodePrefix reads a prefix: one row of the key columns that it has.
func decodePrefix(t *millrace.Table, raw []byte) (row.Rows, error) {
	names, err := jsonrow.FieldNames(raw)
	if err != nil {
		return row.Rows{}, err
	}
	given := map[string]bool{}
	for _, n := range names {
		given[n] = true
	}
	cols := t.Columns(t.PrimaryKey)
	kept, key := cols[:0:0], []string{}
	for _, c := range cols {
		if given[c.Name] {
			kept, key = append(kept, c), append(key, c.Name)
			delete(given, c.Name)
		}
	}
	for n := range given {
		return row.Rows{}, errs.New(errs.UnknownColumn, "%q is not a primary key column of table %s", clip(n), t.Path)
	}
	d := jsonrow.NewDecoder(kept, jsonrow.Options{Key: key})
	if err := d.AddObject(raw, 0); err != nil {
		return row.Rows{}, err
	}
	return d.Finish(), nil
}

// prefixPage is the answer with the rows of a page.
func prefixPage(r *http.Request, rd *router.Reader, opts jsonrow.EncodeOptions) ([]byte, error) {
	out := []byte(`{"rows":[`)
	enc := jsonrow.NewEncoder(rd.Plan().Columns, opts)
	n := 0
	for len(out) <= maxPageBytes { // the rest comes with the next page
		c, err := rd.Next(r.Context(), 0)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			out, err = appendChunk(out, enc, c, &n)
			c.Release()
		}
		if err == nil {
			err = rd.Keep(r.Context(), int64(cap(out)))
		}
		if err != nil {
			return nil, err
		}
	}
	next, err := rd.NextPage(r.Context())
	if err != nil {
		return nil, err
	}
	out = append(out, ']')
	if next != "" {
		out = append(out, `,"next_page_token":"`...)
		out = append(append(out, next...), '"') // base64url needs no escapes
	}
	return append(out, "}\n"...), nil
}
