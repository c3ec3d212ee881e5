package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// address is which row a request is about.
type address struct {
	table  *millrace.Table
	names  []string // key columns, in the order of the primary key
	values []string // their texts
}

const keyParam = "pk."

// addressByQuery reads ?pk.<column>=<value>… . With bodyHasKey the address may lack
// the key altogether: the body then has it.
func (h *Handler) addressByQuery(r *http.Request, bodyHasKey bool, database, table string, also ...string) (*address, error) {
	t, err := h.keyed(r, database, table)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	known := slices.Clone(also)
	for name := range q {
		if strings.HasPrefix(name, keyParam) {
			known = append(known, name)
		}
	}
	if err := checkQuery(q, known...); err != nil {
		return nil, err
	}
	a := &address{table: t}
	if bodyHasKey && len(known) == len(also) {
		return a, nil
	}
	for _, c := range t.Columns(t.PrimaryKey) {
		vs, ok := q[keyParam+c.Name]
		if !ok {
			return nil, errs.New(errs.MissingKey, "the address lacks primary key column %q: add ?%s%s=<value>", c.Name, keyParam, c.Name)
		}
		a.names, a.values = append(a.names, c.Name), append(a.values, vs[0])
	}
	for name := range q {
		if c, ok := strings.CutPrefix(name, keyParam); ok && !slices.Contains(a.names, c) {
			return nil, errs.New(errs.UnknownColumn, "%q is not a primary key column of table %s", clip(c), t.Path)
		}
	}
	return a, nil
}

// addressByKey reads /rows/{key}: the text of the only key column, one path
// segment that is decoded once.
func (h *Handler) addressByKey(r *http.Request, database, table string, also ...string) (*address, error) {
	t, err := h.keyed(r, database, table)
	if err != nil {
		return nil, err
	}
	if err := checkQuery(r.URL.Query(), also...); err != nil {
		return nil, err
	}
	if len(t.PrimaryKey) != 1 {
		return nil, errs.New(errs.KeyMismatch, "table %s has a primary key of %d columns: address the row with /rows?pk.<column>=<value>&…", t.Path, len(t.PrimaryKey))
	}
	path := r.URL.EscapedPath()
	key, err := url.PathUnescape(path[strings.LastIndexByte(path, '/')+1:])
	if err != nil {
		return nil, errs.New(errs.InvalidRequest, "the key in the path is not escaped rightly: %v", err)
	}
	return &address{table: t, names: t.Names(t.PrimaryKey), values: []string{key}}, nil
}

// keyed finds a table whose rows have keys.
func (h *Handler) keyed(r *http.Request, database, table string) (*millrace.Table, error) {
	t, err := h.table(r, database, table)
	if err != nil {
		return nil, err
	}
	return t, router.CheckLookup(t)
}

// GetRow answers get_row.
func (h *Handler) GetRow(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.GetRowParams) {
	a, err := h.addressByQuery(r, false, database, table, "columns", "int64", "table_id")
	h.getRow(w, r, a, err)
}

// GetRowByKey answers get_row_by_key.
func (h *Handler) GetRowByKey(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.KeyPath, _ openapi.GetRowByKeyParams) {
	a, err := h.addressByKey(r, database, table, "columns", "int64", "table_id")
	h.getRow(w, r, a, err)
}

func (h *Handler) getRow(w http.ResponseWriter, r *http.Request, a *address, err error) {
	if err != nil {
		h.problem(w, r, err)
		return
	}
	keys, err := a.key()
	if err != nil {
		h.problem(w, r, err)
		return
	}
	defer keys.Release()
	var names []string
	if c := r.URL.Query().Get("columns"); c != "" {
		names = strings.Split(c, ",")
	}
	cols, err := router.LookupColumns(a.table, names)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	opts, err := encodeOptions(r)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	res, err := h.o.Router.Lookup(r.Context(), a.table, keys.Record, cols)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	defer res.Record.Release()
	if !res.Found[0] {
		h.problem(w, r, errs.New(errs.RowNotFound, "table %s has no row with key %s", a.table.Path, clip(strings.Join(a.values, ", "))))
		return
	}
	out := jsonrow.AppendObject(nil, cols, res.Record, 0, opts)
	w.Header().Set("Content-Type", typeJSON)
	_, _ = w.Write(append(out, '\n')) // the client went away
}

// key decodes the address into a record of the key columns, in their order.
func (a *address) key() (row.Rows, error) {
	d := jsonrow.NewDecoder(a.table.Columns(a.table.PrimaryKey), jsonrow.Options{Key: a.names})
	if err := d.AddTexts(a.names, a.values, 0); err != nil {
		return row.Rows{}, err
	}
	return d.Finish(), nil
}

// encodeOptions reads ?int64= .
func encodeOptions(r *http.Request) (jsonrow.EncodeOptions, error) {
	switch v := r.URL.Query().Get("int64"); v {
	case "", "number":
		return jsonrow.EncodeOptions{}, nil
	case "string":
		return jsonrow.EncodeOptions{Int64AsString: true}, nil
	default:
		return jsonrow.EncodeOptions{}, errs.New(errs.InvalidValue, "int64 %q is not one of number, string", clip(v))
	}
}

// PutRow answers put_row.
func (h *Handler) PutRow(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.PutRowParams) {
	a, err := h.addressByQuery(r, true, database, table, "table_id")
	h.changeRow(w, r, a, err, false)
}

// PutRowByKey answers put_row_by_key.
func (h *Handler) PutRowByKey(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.KeyPath, _ openapi.PutRowByKeyParams) {
	a, err := h.addressByKey(r, database, table, "table_id")
	h.changeRow(w, r, a, err, false)
}

// PatchRow answers patch_row.
func (h *Handler) PatchRow(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.PatchRowParams) {
	a, err := h.addressByQuery(r, true, database, table, "table_id")
	h.changeRow(w, r, a, err, true)
}

// PatchRowByKey answers patch_row_by_key.
func (h *Handler) PatchRowByKey(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.KeyPath, _ openapi.PatchRowByKeyParams) {
	a, err := h.addressByKey(r, database, table, "table_id")
	h.changeRow(w, r, a, err, true)
}

// changeRow puts or patches the row at an address.
func (h *Handler) changeRow(w http.ResponseWriter, r *http.Request, a *address, err error, patch bool) {
	wr := h.rowWrite(r, a, router.Upsert)
	if err == nil {
		err = wr.identify()
	}
	var raw []byte
	if err == nil {
		known := []string{typeJSON}
		if patch {
			known = append(known, typeMergePatch)
		}
		if _, err = contentType(r, known...); err == nil {
			raw, err = readAll(w, r, maxJSONBytes)
		}
	}
	if err == nil && patch {
		wr.columns, err = patchColumns(a, raw)
	}
	var d *jsonrow.Decoder
	if err == nil {
		d, err = wr.decoder()
	}
	if err == nil {
		wr.mixTexts(a.values)
		wr.mix(raw)
		err = d.AddKeyed(a.names, a.values, raw, 0)
	}
	if err == nil {
		err = wr.apply(&chunk{decoder: d})
	}
	wr.finish(w, err)
}

// patchColumns are the columns a patch carries: the key, and the fields of its
// body. An absent field keeps its value.
func patchColumns(a *address, raw []byte) ([]string, error) {
	fields, err := jsonrow.FieldNames(raw)
	if err != nil {
		return nil, err
	}
	cols := slices.Clone(a.names)
	if len(cols) == 0 {
		cols = a.table.Names(a.table.PrimaryKey)
	}
	for _, f := range fields {
		if a.table.Schema.Index(f) < 0 {
			return nil, errs.Row(errs.UnknownField, 0, clip(f), "table %s has no such column", a.table.Path)
		}
		if !slices.Contains(cols, f) {
			cols = append(cols, f)
		}
	}
	return cols, nil
}

// DeleteRow answers delete_row.
func (h *Handler) DeleteRow(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.DeleteRowParams) {
	a, err := h.addressByQuery(r, false, database, table, "columns", "table_id")
	h.deleteRow(w, r, a, err)
}

// DeleteRowByKey answers delete_row_by_key.
func (h *Handler) DeleteRowByKey(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.KeyPath, _ openapi.DeleteRowByKeyParams) {
	a, err := h.addressByKey(r, database, table, "columns", "table_id")
	h.deleteRow(w, r, a, err)
}

func (h *Handler) deleteRow(w http.ResponseWriter, r *http.Request, a *address, err error) {
	wr := h.rowWrite(r, a, router.Delete)
	if err == nil {
		err = wr.identify()
	}
	if err == nil {
		if c := r.URL.Query().Get("columns"); c != "" {
			wr.columns = slices.Clone(a.names)
			for name := range strings.SplitSeq(c, ",") {
				if !slices.Contains(a.names, strings.TrimSpace(name)) {
					wr.columns = append(wr.columns, name)
				}
			}
		}
	}
	var d *jsonrow.Decoder
	if err == nil {
		d, err = wr.decoder()
	}
	if err == nil {
		wr.mixTexts(a.values)
		err = d.AddTexts(a.names, a.values, 0)
	}
	if err == nil {
		err = wr.apply(&chunk{decoder: d})
	}
	wr.finish(w, err)
}

// rowWrite begins a write of one row.
func (h *Handler) rowWrite(r *http.Request, a *address, mode router.Mode) *writing {
	wr := &writing{h: h, r: r, mode: mode, answer: writeAnswer{Errors: []errs.FieldError{}, Offsets: map[string]router.Range{}}}
	if a != nil {
		wr.table = a.table
	}
	return wr
}
