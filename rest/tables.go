package rest

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
)

const (
	maxDDLBytes     = 4 << 20
	defaultListSize = 100
	maxListSize     = 1000
)

// checkQuery refuses query parameters that an operation does not have.
func checkQuery(q url.Values, known ...string) error {
	known = append(known, "timeout")
	for name, vs := range q {
		ok := false
		for _, k := range known {
			ok = ok || k == name
		}
		if !ok {
			return errs.New(errs.UnknownField, "there is no query parameter %q here", clip(name))
		}
		if len(vs) > 1 {
			return errs.New(errs.DuplicateField, "query parameter %q stands %d times", name, len(vs))
		}
	}
	return nil
}

// decode reads a JSON body strictly: no unknown fields, none twice.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	if _, err := contentType(r, typeJSON); err != nil {
		return err
	}
	b, err := readAll(w, r, maxDDLBytes)
	if err != nil {
		return err
	}
	// Walks the object once for fields that stand twice, which encoding/json lets pass.
	if _, err := jsonrow.SplitBody(b, "", 0); err != nil {
		return err
	}
	return router.DecodeStrict(b, into)
}

// page reads the parameters of a list.
func page(limit *openapi.PageLimit, token *openapi.PageToken) (int, string, error) {
	n := defaultListSize
	if limit != nil {
		if *limit < 1 || *limit > maxListSize {
			return 0, "", errs.New(errs.InvalidValue, "limit is between 1 and %d", maxListSize)
		}
		n = *limit
	}
	if token != nil {
		return n, *token, nil
	}
	return n, "", nil
}

// ListDatabases answers list_databases.
func (h *Handler) ListDatabases(w http.ResponseWriter, r *http.Request, p openapi.ListDatabasesParams) {
	n, token, err := page(p.Limit, p.PageToken)
	if err == nil {
		err = checkQuery(r.URL.Query(), "limit", "page_token")
	}
	var dbs []catalog.Database
	if err == nil {
		dbs, token, err = h.o.Catalog.Databases(r.Context(), n, token)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out := openapi.DatabaseList{Databases: []openapi.Database{}, NextPageToken: token}
	for _, d := range dbs {
		out.Databases = append(out.Databases, databaseAnswer(d))
	}
	h.answer(w, http.StatusOK, out)
}

func databaseAnswer(d catalog.Database) openapi.Database {
	return openapi.Database{ID: int64(d.ID), Name: d.Name, Comment: d.Comment, CreatedAt: d.CreatedAt}
}

// CreateDatabase answers create_database.
func (h *Handler) CreateDatabase(w http.ResponseWriter, r *http.Request, p openapi.CreateDatabaseParams) {
	var req openapi.CreateDatabase
	err := checkQuery(r.URL.Query(), "if_not_exists")
	if err == nil {
		err = decode(w, r, &req)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	d, err := h.o.Catalog.CreateDatabase(r.Context(), req.Name, req.Comment)
	if errs.Is(err, errs.DatabaseAlreadyExists) && p.IfNotExists != nil && *p.IfNotExists {
		if was, werr := h.o.Catalog.Database(r.Context(), req.Name); werr == nil {
			h.answer(w, http.StatusOK, databaseAnswer(was))
			return
		}
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	w.Header().Set("Location", "/v1/databases/"+d.Name)
	h.answer(w, http.StatusCreated, databaseAnswer(d))
}

// GetDatabase answers get_database.
func (h *Handler) GetDatabase(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath) {
	d, err := h.o.Catalog.Database(r.Context(), database)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, databaseAnswer(d))
}

// DropDatabase answers drop_database.
func (h *Handler) DropDatabase(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, p openapi.DropDatabaseParams) {
	err := checkQuery(r.URL.Query(), "cascade", "if_exists")
	var dropped []*millrace.Table
	if err == nil {
		dropped, err = h.o.Catalog.DropDatabase(r.Context(), database, p.Cascade != nil && *p.Cascade)
	}
	if errs.Is(err, errs.DatabaseNotFound) && p.IfExists != nil && *p.IfExists {
		err = nil
	}
	for _, t := range dropped {
		err = errors.Join(err, h.o.Router.DropTable(r.Context(), t))
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// ListTables answers list_tables.
func (h *Handler) ListTables(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, p openapi.ListTablesParams) {
	n, token, err := page(p.Limit, p.PageToken)
	if err == nil {
		err = checkQuery(r.URL.Query(), "limit", "page_token")
	}
	var ts []*millrace.Table
	if err == nil {
		ts, token, err = h.o.Catalog.Tables(r.Context(), database, n, token)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out := openapi.TableList{Tables: []openapi.Table{}, NextPageToken: token}
	for _, t := range ts {
		out.Tables = append(out.Tables, tableAnswer(t))
	}
	h.answer(w, http.StatusOK, out)
}

func tableAnswer(t *millrace.Table) openapi.Table {
	return openapi.Table{
		ID: int64(t.ID), Name: t.Path.Table, Database: t.Path.Database, Kind: t.Kind,
		Columns: columnAnswers(t.Schema.Columns), PrimaryKey: t.Names(t.PrimaryKey), PartitionBy: t.Names(t.PartitionBy),
		BucketKey: t.Names(t.BucketKey), Buckets: t.Buckets, Properties: properties(t), Comment: t.Comment,
		SchemaID: int64(t.Schema.ID), Version: t.Version, CreatedAt: t.CreatedAt,
	}
}

func properties(t *millrace.Table) map[string]string {
	if t.Properties == nil {
		return map[string]string{}
	}
	return t.Properties
}

func columnAnswers(cols []millrace.Column) []openapi.Column {
	out := make([]openapi.Column, len(cols))
	for i, c := range cols {
		out[i] = openapi.Column{ID: int(c.ID), Name: c.Name, Type: c.Type.String(), Nullable: c.Nullable, Comment: c.Comment, AutoIncrement: c.AutoIncrement}
	}
	return out
}

// CreateTable answers create_table.
func (h *Handler) CreateTable(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, p openapi.CreateTableParams) {
	var spec catalog.Spec
	err := checkQuery(r.URL.Query(), "if_not_exists")
	if err == nil {
		err = decode(w, r, &spec)
	}
	var t *millrace.Table
	created := false
	if err == nil {
		t, created, err = h.o.Catalog.CreateTable(r.Context(), database, spec, p.IfNotExists != nil && *p.IfNotExists)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.tableHeaders(w, t)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", "/v1/databases/"+t.Path.Database+"/tables/"+t.Path.Table)
	}
	h.answer(w, status, tableAnswer(t))
}

func (h *Handler) tableHeaders(w http.ResponseWriter, t *millrace.Table) {
	w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(t.Version, 10)))
}

// table finds the table of a path, the one that ?table_id= means when it is given.
func (h *Handler) table(r *http.Request, database, table string) (*millrace.Table, error) {
	base, suffix := router.SplitVirtual(table)
	if suffix != "" {
		return nil, errs.New(errs.ReadOnlyTable, "%q is a view of table %s.%s and can only be scanned or followed", clip(table), clip(database), clip(base))
	}
	var id *millrace.TableID
	if v := r.URL.Query().Get("table_id"); v != "" {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return nil, errs.New(errs.InvalidValue, "table_id %q is not a table id", clip(v))
		}
		id = new(millrace.TableID(n))
	}
	return h.o.Router.Table(r.Context(), database+"."+base, id)
}

// GetTable answers get_table.
func (h *Handler) GetTable(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath) {
	t, err := h.table(r, database, table)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.tableHeaders(w, t)
	h.answer(w, http.StatusOK, tableAnswer(t))
}

// DropTable answers drop_table.
func (h *Handler) DropTable(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, p openapi.DropTableParams) {
	err := checkQuery(r.URL.Query(), "purge", "if_exists")
	var t *millrace.Table
	if err == nil {
		t, err = h.o.Catalog.DropTable(r.Context(), millrace.TablePath{Database: database, Table: table}, p.IfExists != nil && *p.IfExists, p.Purge != nil && *p.Purge)
	}
	if err == nil && t != nil {
		err = h.o.Router.DropTable(r.Context(), t)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
