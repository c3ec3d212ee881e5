package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
	"github.com/millrace/millrace/storage/segment"
)

// Limits of a write.
const (
	maxJSONBytes = 16 << 20
	maxJSONRows  = 10_000
	chunkRows    = 10_000
	chunkBytes   = 16 << 20
)

// writing is a write request being served.
type writing struct {
	h       *Handler
	r       *http.Request
	table   *millrace.Table
	mode    router.Mode
	columns []string // named by the client: a partial write; nil: whole rows
	goOn    bool     // on_error=continue
	writer  *router.WriterSequence
	hash    *xxhash.Digest // of the chunk at hand; nil without an idempotency key
	endKey  func()         // nil without one
	// until ends when a stream of rows has to.
	until context.Context //nolint:containedctx // of the one request it serves

	answer writeAnswer
	// bad is the first bad row of the chunk at hand, with all others of it in its
	// Fields; nil while there is none. With on_error=continue it stays nil.
	bad *errs.Error
	// tells says that rows of the request were, or may have been, written before it
	// failed, so that a problem tells of them.
	tells bool
}

// writeAnswer is the answer of a write, and what a problem adds to itself.
type writeAnswer struct {
	Accepted int64                   `json:"accepted"`
	Rejected int64                   `json:"rejected"`
	Errors   []errs.FieldError       `json:"errors"`
	Offsets  map[string]router.Range `json:"offsets"`
	Buckets  map[string]string       `json:"buckets,omitempty"`
	LastSeq  *uint64                 `json:"last_seq,omitempty"`
	Replayed int64                   `json:"replayed,omitempty"`
}

// WriteRecords answers write_records.
func (h *Handler) WriteRecords(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, p openapi.WriteRecordsParams) {
	wr, err := h.beginWrite(r, database, table, p)
	if err == nil {
		err = wr.body(w)
	}
	wr.finish(w, err)
}

func (h *Handler) beginWrite(r *http.Request, database, table string, p openapi.WriteRecordsParams) (*writing, error) {
	wr := &writing{h: h, r: r, answer: writeAnswer{Errors: []errs.FieldError{}, Offsets: map[string]router.Range{}}}
	q := r.URL.Query()
	if err := checkQuery(q, "mode", "columns", "on_error", "table_id"); err != nil {
		return wr, err
	}
	if p.OnError != nil {
		switch *p.OnError {
		case "abort":
		case "continue":
			wr.goOn = true
		default:
			return wr, errs.New(errs.InvalidValue, "on_error %q is not one of abort, continue", clip(string(*p.OnError)))
		}
	}
	base, suffix := router.SplitVirtual(table)
	if suffix != "" {
		return wr, errs.New(errs.ReadOnlyTable, "%q is a view and can only be read; write to table %q", clip(table), clip(base))
	}
	var err error
	if wr.table, err = h.o.Router.Table(r.Context(), database+"."+base, tableID(p.TableID)); err != nil {
		return wr, err
	}
	if wr.mode, err = router.ParseMode(q.Get("mode"), wr.table); err != nil {
		return wr, err
	}
	if q.Has("columns") {
		wr.columns = strings.Split(q.Get("columns"), ",")
	}
	return wr, wr.identify()
}

// body applies the body by its type.
func (wr *writing) body(w http.ResponseWriter) error {
	t, err := contentType(wr.r, typeJSON, typeNDJSON, typeArrow)
	if err != nil {
		return err
	}
	pass, err := wr.h.o.Router.Writes(wr.r.Context(), wr.table) // before what he may write: the audit log tells of a write
	if err != nil {
		return err
	}
	if wr.h.o.Quotas != nil {
		if err := wr.h.o.Quotas.MayWrite(wr.r.Context()); err != nil {
			return err
		}
	}
	if t == typeJSON {
		return wr.json(w)
	}
	closed, err := wr.h.openStream(wr.r)
	if err != nil {
		return err
	}
	defer closed()
	wr.tells = true
	wr.r = receiving(w, wr.r)
	defer wr.endInTime(w, pass)()
	if t == typeNDJSON {
		return wr.ndjson()
	}
	return wr.arrow()
}

// endInTime makes a stream's body end when the server drains, the caller's token expires, or
// he may not write any more: the read under way fails, and so do those after it. Each write
// is asked for besides.
func (wr *writing) endInTime(w http.ResponseWriter, pass router.Pass) (stop func()) {
	ctx, cancel := wr.h.untilRefused(wr.r, pass)
	wr.until = ctx
	wr.r.Body = &bodyUntil{ReadCloser: wr.r.Body, ctx: ctx}
	// Once the body has ended nothing may touch the deadline: net/http waits at the connection
	// for the client to go away, and takes a deadline that passes for that.
	end := context.AfterFunc(ctx, func() {
		// A reader without deadlines notices at its next read.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) //nolint:forbidigo // a deadline of the operating system's, not of ours
	})
	return func() { end(); cancel() }
}

// bodyUntil is a body that ends with an error when a context does.
type bodyUntil struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // a reader has none to pass
}

func (u *bodyUntil) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	n, err := u.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && u.ctx.Err() != nil {
		err = context.Cause(u.ctx)
	}
	return n, err
}

// finish answers the request.
func (wr *writing) finish(w http.ResponseWriter, err error) {
	if wr.endKey != nil {
		wr.endKey()
	}
	wr.mark(w.Header())
	if err == nil {
		wr.h.answer(w, http.StatusOK, wr.answer)
		return
	}
	e := wr.h.classify(wr.r, err)
	if wr.tells {
		told := *e
		told.Extra = nil
		for k, v := range e.Extra {
			told.Tell(k, v)
		}
		told.Tell("accepted", wr.answer.Accepted)
		told.Tell("rejected", wr.answer.Rejected)
		told.Tell("offsets", wr.answer.Offsets)
		if wr.answer.Buckets != nil {
			told.Tell("buckets", wr.answer.Buckets)
		}
		if wr.answer.LastSeq != nil {
			told.Tell("last_seq", *wr.answer.LastSeq)
		}
		if wr.answer.Replayed > 0 {
			told.Tell("replayed", wr.answer.Replayed)
		}
		told.Fields = append(append([]errs.FieldError{}, wr.answer.Errors...), e.Fields...)
		e = &told
	}
	wr.h.problem(w, wr.r, e)
}

// decoder makes the decoder of the request's rows.
func (wr *writing) decoder() (*jsonrow.Decoder, error) {
	t := wr.table
	o := jsonrow.Options{Key: t.Names(t.PrimaryKey), KeyOnly: wr.mode == router.Delete, AllowChangeType: wr.mode == router.Upsert && wr.columns == nil}
	cols := t.Schema.Columns
	if wr.columns != nil {
		var err error
		if cols, err = namedColumns(t, wr.columns); err != nil {
			return nil, err
		}
		if wr.mode == router.Append {
			return nil, errs.New(errs.WrongTableKind, "table %s is a log table: its rows are whole, columns cannot be named", t.Path)
		}
		if wr.mode == router.Upsert {
			o.Required = wr.columns
		}
	}
	return jsonrow.NewDecoder(cols, o), nil
}

// namedColumns are the columns that a partial write names, in schema order.
func namedColumns(t *millrace.Table, names []string) ([]millrace.Column, error) {
	named := map[string]bool{}
	for _, n := range names {
		n = strings.TrimSpace(n)
		if t.Schema.Index(n) < 0 {
			return nil, errs.New(errs.UnknownColumn, "table %s has no column %q", t.Path, clip(n))
		}
		if named[n] {
			return nil, errs.New(errs.DuplicateField, "column %q is named twice", n)
		}
		named[n] = true
	}
	var out []millrace.Column
	for _, c := range t.Schema.Columns {
		if named[c.Name] {
			out = append(out, c)
		}
	}
	return out, nil
}

// json applies a JSON body: one batch, all or nothing as far as can be checked
// before writing.
func (wr *writing) json(w http.ResponseWriter) error {
	b, err := readAll(w, wr.r, maxJSONBytes)
	if err != nil {
		return err
	}
	parts, err := jsonrow.SplitBody(b, "rows", maxJSONRows)
	if err != nil {
		return err
	}
	if !parts.Listed {
		return errs.New(errs.InvalidRequest, "the body lacks \"rows\": send {\"rows\":[{…},…]}, or one row a line as %s", typeNDJSON)
	}
	if err := wr.members(parts.Members); err != nil {
		return err
	}
	d, err := wr.decoder()
	if err != nil {
		return err
	}
	c := chunk{decoder: d}
	for i, raw := range parts.Items {
		wr.add(&c, raw, int64(i))
		if err := wr.decoded(&c); err != nil {
			return err
		}
	}
	return wr.apply(&c)
}

// members reads what a JSON body says besides its rows.
func (wr *writing) members(m map[string]json.RawMessage) error {
	for name, raw := range m {
		switch name {
		case "mode":
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return errs.New(errs.InvalidValue, "mode is a string")
			}
			mode, err := router.ParseMode(s, wr.table)
			if err != nil {
				return err
			}
			if q := wr.r.URL.Query().Get("mode"); q != "" && q != s {
				return errs.New(errs.InvalidValue, "the body says mode %q and the address %q", s, q)
			}
			wr.mode = mode
		case "columns":
			if string(raw) == "null" {
				continue
			}
			var cols []string
			if err := json.Unmarshal(raw, &cols); err != nil || cols == nil {
				return errs.New(errs.InvalidValue, "columns is an array of names")
			}
			wr.columns = cols
		default:
			return errs.New(errs.UnknownField, "the body has no field %q; it takes rows, mode and columns", clip(name))
		}
	}
	return nil
}

// chunk is rows that are applied together.
type chunk struct {
	decoder *jsonrow.Decoder
	index   []int64 // number in the request of each row
	bytes   int
	counted int // bytes of the rows, for which there is room
}

// add takes a row into the chunk. A bad row is noted; it fails the chunk when the
// chunk is applied, with all other bad rows of it, or is left out with
// on_error=continue.
func (wr *writing) add(c *chunk, raw []byte, index int64) {
	wr.mix(raw)
	err := c.decoder.AddObject(raw, index)
	if err == nil {
		c.index = append(c.index, index)
		c.bytes += len(raw)
		return
	}
	e := wr.h.classify(wr.r, err)
	switch {
	case wr.goOn:
		wr.answer.Rejected++
		wr.answer.Errors = appendFields(wr.answer.Errors, e.Fields)
	case wr.bad == nil:
		wr.bad = e
	default:
		wr.bad.Fields = appendFields(wr.bad.Fields, e.Fields)
	}
}

// rowsTimes is how many times the bytes of decoded rows a write of them takes: once as they
// are, and once as they are on the way to the log.
const rowsTimes = 2

// decoded takes room for the rows of a chunk as they become more.
func (wr *writing) decoded(c *chunk) error {
	n := c.decoder.Bytes()
	if n <= c.counted {
		return nil
	}
	c.counted = n
	return wr.rowsRoom(int64(n))
}

// rowsRoom takes room for so many bytes of decoded rows.
func (wr *writing) rowsRoom(bytes int64) error {
	if hold := holdOf(wr.r); hold != nil {
		return hold.Rows(wr.r.Context(), rowsTimes*bytes)
	}
	return nil
}

func appendFields(to, more []errs.FieldError) []errs.FieldError {
	return append(to, more[:min(len(more), max(0, errs.MaxFieldErrors-len(to)))]...)
}

// apply writes the chunk and begins the next.
func (wr *writing) apply(c *chunk) error {
	if wr.bad != nil {
		return wr.bad
	}
	rows := c.decoder.Finish()
	defer rows.Release()
	first := int64(0)
	if n := len(c.index); n > 0 {
		first = c.index[0]
		if c.index[n-1] != first+int64(n)-1 {
			rows.Numbers = slices.Clone(c.index)
		}
	}
	c.index, c.bytes, c.counted = c.index[:0], 0, 0
	if err := wr.rowsRoom(segment.RecordBytes(rows.Record)); err != nil {
		return err
	}
	return wr.write(rows, first)
}

// write hands rows to the router and takes what became of them into the answer. With
// on_error=continue it leaves out those that the router finds to be at fault.
func (wr *writing) write(rows row.Rows, first int64) error {
	req := &router.WriteRequest{Table: wr.table, Mode: wr.mode, Rows: rows, Partial: wr.columns != nil, FirstRow: first, Writer: wr.sequence()}
	var res *router.WriteResult
	var err error
	for left := rows; ; { // it ends: each time there are fewer rows
		if left.Len() == 0 {
			wr.pass()
			return nil
		}
		req.Rows = left
		res, err = wr.h.o.Router.Write(wr.r.Context(), req)
		refused, some := errors.AsType[*router.RefusedRows](err)
		if !some || !wr.goOn || res != nil {
			break
		}
		wr.answer.Rejected += int64(len(refused.Rows))
		wr.answer.Errors = appendFields(wr.answer.Errors, wr.h.classify(wr.r, err).Fields)
		left = left.Keep(others(left.Len(), refused.Rows), first)
		defer left.Release()
	}
	if res != nil {
		wr.take(res)
	}
	wr.tells = wr.tells || res != nil
	if e := wr.h.classify(wr.r, err); err != nil && res != nil && wr.goesOn(e.Code) {
		wr.answer.Errors = appendFields(wr.answer.Errors, []errs.FieldError{{Code: e.Code, Message: e.Error()}})
		err = nil
	}
	if err == nil {
		wr.pass()
	}
	return err
}

// others are the numbers below n that are not among taken, which rises.
func others(n int, taken []int32) []int32 {
	out := make([]int32, 0, n-len(taken))
	for i := range int32(n) {
		if len(taken) > 0 && taken[0] == i {
			taken = taken[1:]
			continue
		}
		out = append(out, i)
	}
	return out
}

// take adds a batch's outcome to the answer.
func (wr *writing) take(res *router.WriteResult) {
	wr.answer.Accepted += res.Rows - res.Rejected
	wr.answer.Rejected += res.Rejected
	wr.answer.Replayed += res.Replayed
	for key, rng := range res.Offsets {
		if was, ok := wr.answer.Offsets[key]; ok && was.Start != was.End {
			rng.Start = min(was.Start, rng.Start)
			rng.End = max(was.End, rng.End)
		}
		wr.answer.Offsets[key] = rng
	}
	for key, outcome := range res.Outcomes {
		if wr.answer.Buckets == nil {
			wr.answer.Buckets = map[string]string{}
		}
		wr.answer.Buckets[key] = outcome
	}
}
