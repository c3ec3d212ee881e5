package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
	"github.com/millrace/millrace/sql"
	"github.com/millrace/millrace/storage/segment"
)

// Limits of a SQL request.
const (
	// maxSQLBytes is for a statement as JSON: escapes make a text longer.
	maxSQLBytes  = sql.MaxTextBytes + 1<<20
	maxSQLParams = 1 << 20
	maxSQLRows   = 10_000 // of a JSON answer
)

// ExecuteSQL answers execute_sql.
func (h *Handler) ExecuteSQL(w http.ResponseWriter, r *http.Request, _ openapi.ExecuteSQLParams) {
	media, opts, req, err := h.sqlRequest(w, r)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	if media == typeJSON {
		if err := h.sqlDocument(w, r, req, opts); err != nil {
			h.problem(w, r, err)
		}
		return
	}
	ctx, cancel := h.untilDrain(r) // a stream has no deadline, and ends when the server drains
	defer cancel()
	res, err := h.sql.Execute(ctx, req)
	if err != nil {
		if ctx.Err() != nil && r.Context().Err() == nil {
			err = context.Cause(ctx)
		}
		h.problem(w, r, err)
		return
	}
	defer h.sqlClose(r, res)
	if res.Replayed {
		w.Header().Set(headerReplayed, "true")
	}
	ctx = sending(w, r.WithContext(ctx)).Context()
	if media == typeNDJSON {
		h.sqlLines(ctx, w, r, asRows(res), opts)
		return
	}
	h.sqlArrow(ctx, w, r, asRows(res))
}

func (h *Handler) sqlClose(r *http.Request, res *sql.Result) {
	if err := res.Close(); err != nil {
		h.o.Logger.WarnContext(r.Context(), "query did not close", errAttr(err))
	}
}

// sqlDocument answers with one JSON document, or leaves the answer to the caller. A
// query whose rows do not come to their end may be run again.
func (h *Handler) sqlDocument(w http.ResponseWriter, r *http.Request, req sql.Request, opts jsonrow.EncodeOptions) error {
	var refused error // by the statement, which may have changed something
	err := router.Anew(r.Context(), func() error {
		var res *sql.Result
		if res, refused = h.sql.Execute(r.Context(), req); refused != nil {
			return nil
		}
		defer h.sqlClose(r, res)
		return h.sqlJSON(w, r, res, opts)
	})
	return cmp.Or(refused, err)
}

// sqlRequest reads a request, and how it wants to be answered.
func (h *Handler) sqlRequest(w http.ResponseWriter, r *http.Request) (media string, opts jsonrow.EncodeOptions, req sql.Request, err error) {
	if err = checkQuery(r.URL.Query(), "int64"); err != nil {
		return media, opts, req, err
	}
	if media, err = accepts(r, typeJSON, typeNDJSON, typeArrow); err != nil {
		return media, opts, req, err
	}
	if opts, err = encodeOptions(r); err != nil {
		return media, opts, req, err
	}
	if _, err = contentType(r, typeJSON); err != nil {
		return media, opts, req, err
	}
	b, err := readAll(w, r, maxSQLBytes)
	if err != nil {
		return media, opts, req, err
	}
	if req, err = decodeSQL(b); err != nil {
		return media, opts, req, err
	}
	switch keys := r.Header.Values(headerKey); {
	case r.Header.Get("X-Writer-Id") != "" || r.Header.Get("X-Writer-Seq") != "":
		err = errs.New(errs.InvalidRequest, "a statement has no writer's number (X-Writer-Id, X-Writer-Seq); an Idempotency-Key makes INSERT and DELETE safe to be sent again")
	case len(keys) > 1:
		err = errs.New(errs.InvalidRequest, "the request has %d Idempotency-Keys", len(keys))
	case len(keys) == 1 && keys[0] == "":
		err = errs.New(errs.InvalidValue, "the Idempotency-Key is empty")
	case len(keys) == 1:
		req.Key, req.Principal = keys[0], auth.Scope(r.Context())
	}
	return media, opts, req, err
}

// decodeSQL reads the body of a request. The parameters stay parts of it.
func decodeSQL(b []byte) (sql.Request, error) {
	var req sql.Request
	if !utf8.Valid(b) {
		return req, errs.New(errs.InvalidRequest, "the body is not valid UTF-8")
	}
	body, err := jsonrow.SplitBody(b, "params", maxSQLParams)
	if err != nil {
		return req, err
	}
	for name, into := range map[string]*string{"sql": &req.Text, "database": &req.Database} {
		raw, ok := body.Members[name]
		if !ok && name == "sql" {
			return req, errs.New(errs.InvalidRequest, "the body lacks \"sql\": send {\"sql\":\"SELECT …\"}")
		}
		delete(body.Members, name)
		if ok && (string(raw) == "null" || json.Unmarshal(raw, into) != nil) {
			return req, errs.New(errs.InvalidValue, "%s is a string", name)
		}
	}
	for name := range body.Members {
		return req, errs.New(errs.UnknownField, "the body has no field %q; it takes sql, params and database", clip(name))
	}
	for i, p := range body.Items {
		if !json.Valid(p) {
			return req, errs.New(errs.InvalidRequest, "parameter %d is not well-formed JSON", i+1)
		}
		req.Params = append(req.Params, p)
	}
	return req, nil
}

// sqlRows are the rows of an answer.
type sqlRows interface {
	Schema() *arrow.Schema
	Next(ctx context.Context) (arrow.RecordBatch, error)
}

type sqlStream struct {
	sqlRows
	columns []millrace.Column
	res     *sql.Result
}

// asRows gives a statement without rows one, which says how many it changed: a
// stream has nothing but rows.
func asRows(res *sql.Result) *sqlStream {
	if res.Columns != nil {
		return &sqlStream{sqlRows: res, columns: res.Columns, res: res}
	}
	cols := []millrace.Column{{Name: "rows_affected", Type: millrace.DataType{Kind: millrace.BigInt}}}
	return &sqlStream{sqlRows: &oneNumber{schema: row.ArrowSchema(cols), n: res.Affected}, columns: cols, res: res}
}

// oneNumber is one row of one number.
type oneNumber struct {
	schema *arrow.Schema
	n      int64
	given  bool
}

func (o *oneNumber) Schema() *arrow.Schema { return o.schema }

func (o *oneNumber) Next(context.Context) (arrow.RecordBatch, error) {
	if o.given {
		return nil, io.EOF
	}
	o.given = true
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Append(o.n)
	arr := b.NewArray()
	defer arr.Release()
	return array.NewRecordBatch(o.schema, []arrow.Array{arr}, 1), nil
}

// sqlJSON answers with one JSON document.
func (h *Handler) sqlJSON(w http.ResponseWriter, r *http.Request, res *sql.Result, opts jsonrow.EncodeOptions) error {
	if res.Replayed {
		w.Header().Set(headerReplayed, "true")
	}
	if res.Columns == nil {
		h.answer(w, http.StatusOK, map[string]int64{"rows_affected": res.Affected})
		return nil
	}
	type column struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	cols := make([]column, len(res.Columns))
	for i, c := range res.Columns {
		cols[i] = column{c.Name, c.Type.String()}
	}
	out := append([]byte(`{"columns":`), jsonText(cols)...)
	out = append(out, `,"rows":[`...)
	enc := jsonrow.NewEncoder(res.Columns, opts)
	rows := int64(0)
	for {
		rec, err := res.Next(r.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			if out = appendArrays(out, enc, rec, &rows); rows > maxSQLRows || len(out) > maxPageBytes {
				err = errs.New(errs.TooLarge, "the answer has more than %d rows or %d MiB as one JSON document; take fewer rows with WHERE or LIMIT, or ask for a stream with Accept: %s or %s", maxSQLRows, maxPageBytes>>20, typeNDJSON, typeArrow)
			}
			rec.Release()
		}
		if err != nil {
			return err
		}
	}
	out = append(out, "]}\n"...)
	stats := res.Stats()
	stats.BytesShipped = int64(len(out))
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set(headerStats, string(jsonText(stats)))
	_, _ = w.Write(out) // the client went away
	return nil
}

// appendArrays appends rows as arrays, until there are too many.
func appendArrays(out []byte, enc *jsonrow.Encoder, rec arrow.RecordBatch, rows *int64) []byte {
	enc.Bind(rec)
	for i := range int(rec.NumRows()) {
		if *rows > 0 {
			out = append(out, ',')
		}
		if *rows++; *rows > maxSQLRows || len(out) > maxPageBytes {
			break
		}
		out = enc.AppendArray(out, i)
	}
	return out
}

// sqlLines answers with a row a line. A failure ends it with an error line.
func (h *Handler) sqlLines(ctx context.Context, w http.ResponseWriter, r *http.Request, res *sqlStream, opts jsonrow.EncodeOptions) {
	w.Header().Set("Trailer", headerStats)
	s := newStream(w, typeNDJSON)
	enc := jsonrow.NewEncoder(res.columns, opts)
	buf := make([]byte, 0, 256<<10)
	err := h.sqlEach(ctx, res, func(rec arrow.RecordBatch) (err error) {
		buf, err = s.recordLines(buf[:0], enc, rec)
		return err
	})
	s.failLine(h, w, r, err)
	h.sqlTrailer(w, res, s)
}

// sqlEach hands every batch of an answer to write; io.EOF at the end of them.
func (h *Handler) sqlEach(ctx context.Context, res *sqlStream, write func(arrow.RecordBatch) error) error {
	for {
		rec, err := res.Next(ctx)
		if err != nil {
			if ctx.Err() != nil && context.Cause(ctx) != nil {
				return context.Cause(ctx)
			}
			return err
		}
		err = write(rec)
		rec.Release()
		if err != nil {
			return err
		}
	}
}

func (h *Handler) sqlTrailer(w http.ResponseWriter, res *sqlStream, s *stream) {
	stats := res.res.Stats()
	stats.BytesShipped = s.sent
	w.Header().Set(headerStats, string(jsonText(stats)))
}

// sqlArrow answers with an Arrow IPC stream. A failure leaves it without its end
// mark, and the connection broken off.
func (h *Handler) sqlArrow(ctx context.Context, w http.ResponseWriter, r *http.Request, res *sqlStream) {
	w.Header().Set("Trailer", headerStats)
	s := newStream(w, typeArrow)
	err := s.schema(res.Schema())
	if err == nil {
		err = h.sqlEach(ctx, res, s.recordMessages)
	}
	s.endArrow(h, r, err)
	h.sqlTrailer(w, res, s)
}

// recordMessages writes a record in messages of bounded size.
func (s *stream) recordMessages(rec arrow.RecordBatch) error {
	for _, rng := range segment.SplitRows(rec, maxArrowBody) {
		piece := rec.NewSlice(int64(rng.Start), int64(rng.End))
		m, err := segment.EncodeMessage(piece, segment.None)
		piece.Release()
		if err != nil {
			return err
		}
		err = s.message(m)
		m.Release()
		if err != nil {
			return err
		}
	}
	return nil
}
