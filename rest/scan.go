package rest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
)

// headerStats tells what a read cost: a header of a page, a trailer of a stream.
const headerStats = "X-Millrace-Stats"

// Scan answers scan.
func (h *Handler) Scan(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TableViewPath, _ openapi.ScanParams) {
	err := checkQuery(r.URL.Query(), "int64")
	if err == nil {
		_, err = contentType(r, typeJSON)
	}
	var b []byte
	if err == nil {
		b, err = readAll(w, r, router.MaxRequestBytes)
	}
	if err == nil {
		_, err = jsonrow.SplitBody(b, "", 0) // fields that stand twice
	}
	var req *router.ReadRequest
	if err == nil {
		req, err = router.DecodeReadRequest(b, nil)
	}
	doneWith(r)
	h.scan(w, r, database+"."+table, req, err)
}

// ScanGet answers scan_get.
func (h *Handler) ScanGet(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TableViewPath, _ openapi.ScanGetParams) {
	req, err := router.ReadRequestFromQuery(r.URL.Query(), "int64", "timeout")
	h.scan(w, r, database+"."+table, req, err)
}

func (h *Handler) scan(w http.ResponseWriter, r *http.Request, table string, req *router.ReadRequest, err error) {
	var media string
	if err == nil {
		media, err = accepts(r, typeJSON, typeNDJSON, typeArrow)
	}
	var opts jsonrow.EncodeOptions
	if err == nil {
		opts, err = encodeOptions(r)
	}
	o := router.Scan
	o.Bounded = true
	if err == nil && media == typeJSON {
		if err = h.pageOf(w, r, table, req, o, opts); err != nil {
			h.problem(w, r, err)
		}
		return
	}
	var p *router.Plan
	if err == nil {
		if req.PageToken != "" {
			err = errs.New(errs.InvalidValue, "page_token belongs to pages (%s); a stream has none", typeJSON)
		} else {
			p, err = h.o.Router.Plan(r.Context(), table, req, o)
		}
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	rd := h.o.Router.Open(p)
	defer h.close(r, rd)
	r = sending(w, r)
	if media == typeNDJSON {
		h.streamNDJSON(w, r, rd, opts)
		return
	}
	h.streamArrow(w, r, rd)
}

func (h *Handler) close(r *http.Request, rd *router.Reader) {
	if err := rd.Close(); err != nil {
		h.o.Logger.WarnContext(r.Context(), "read did not close", errAttr(err))
	}
}

// pageOf answers with one JSON page, or leaves the answer to the caller.
func (h *Handler) pageOf(w http.ResponseWriter, r *http.Request, table string, req *router.ReadRequest, o router.PlanOptions, opts jsonrow.EncodeOptions) error {
	page := func() error {
		p, err := h.o.Router.Page(r.Context(), table, req, o)
		if err != nil {
			return err
		}
		rd := h.o.Router.Open(p)
		defer h.close(r, rd)
		return h.page(w, r, rd, opts)
	}
	if req.PageToken != "" {
		return page()
	}
	return router.Anew(r.Context(), page)
}

func (h *Handler) page(w http.ResponseWriter, r *http.Request, rd *router.Reader, opts jsonrow.EncodeOptions) error {
	out := []byte(`{"rows":[`)
	enc := jsonrow.NewEncoder(rd.Plan().Columns, opts)
	n := 0
	for {
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
			return err
		}
		if len(out) > maxPageBytes {
			break // the rest comes with the next page
		}
	}
	out = append(out, ']')
	next, err := rd.NextPage(r.Context())
	if err != nil {
		return err
	}
	if next != "" {
		out = append(out, `,"next_page_token":"`...)
		out = append(append(out, next...), '"') // base64url needs no escapes
	}
	rd.Stats().BytesShipped = int64(len(out))
	if first := rd.Plan().Ends(); first != nil {
		out = append(out, `,"offsets":`...)
		out = append(out, jsonText(first)...)
	}
	out = append(out, `,"table_id":`...)
	out = append(out, jsonText(rd.Plan().Table.ID)...)
	out = append(out, "}\n"...)
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set(headerStats, string(jsonText(rd.Stats())))
	_, _ = w.Write(out) // the client went away
	return nil
}

// maxPageBytes is the size at which a page is ended early.
const maxPageBytes = 16 << 20

// appendChunk appends the rows of a chunk as objects, with commas between them.
func appendChunk(out []byte, enc *jsonrow.Encoder, c *router.Chunk, n *int) ([]byte, error) {
	rec, err := c.Record()
	if err != nil {
		return out, err
	}
	defer rec.Release()
	enc.Bind(rec)
	for i := range c.Rows {
		if *n > 0 {
			out = append(out, ',')
		}
		out = enc.AppendObject(out, i)
		*n++
	}
	return out, nil
}

func jsonText(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values always encode
	}
	return b
}

// CountRows answers count_rows.
func (h *Handler) CountRows(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TableViewPath, _ openapi.CountRowsParams) {
	req, err := router.ReadRequestFromQuery(r.URL.Query(), "timeout")
	if err == nil && (req.PageSize != nil || req.PageToken != "") {
		err = errs.New(errs.UnknownField, "a count has no pages: leave out page_size and page_token")
	}
	var n int64
	if err == nil {
		n, err = h.o.Router.Count(r.Context(), database+"."+table, req)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, map[string]int64{"count": n})
}

// idleWait is how long a stream waits before it looks whether to end or say that
// it lives.
const idleWait = 15 * time.Second
