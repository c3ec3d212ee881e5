package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
)

// follow are the options of a changelog read: what comes from now on.
var follow = router.PlanOptions{
	View: router.ChangelogView, ViewSet: true,
	From: router.Position{Kind: router.Latest}, Until: router.Position{Kind: router.Never}, Merged: true,
}

// GetChangelog answers get_changelog.
func (h *Handler) GetChangelog(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TableViewPath, _ openapi.GetChangelogParams) {
	req, err := router.ReadRequestFromQuery(r.URL.Query(), "wait", "int64", "timeout")
	var media string
	if err == nil {
		media, err = accepts(r, typeJSON, typeNDJSON, typeArrow, typeSSE)
	}
	var opts jsonrow.EncodeOptions
	if err == nil {
		opts, err = encodeOptions(r)
	}
	if id := r.Header.Get("Last-Event-ID"); err == nil && id != "" && media == typeSSE {
		req.From = &router.Position{Kind: router.AtCursor, Cursor: id}
	}
	var wait time.Duration
	if err == nil {
		wait, err = longPollWait(r, media)
	}
	if err == nil && media == typeJSON && req.Limit == nil {
		n := int64(router.DefaultPageSize)
		req.Limit = &n
	}
	if err == nil && media == typeJSON && (*req.Limit < 1 || *req.Limit > router.MaxPageSize) {
		err = errs.New(errs.InvalidValue, "limit is between 1 and %d", router.MaxPageSize)
	}
	var p *router.Plan
	if err == nil {
		p, err = h.o.Router.Plan(r.Context(), database+"."+table, req, follow)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	rd := h.o.Router.Open(p)
	defer h.close(r, rd)
	if media != typeJSON {
		closed, err := h.openStream(r)
		if err != nil {
			h.problem(w, r, err)
			return
		}
		defer closed()
		r = sending(w, r)
	}
	switch media {
	case typeNDJSON:
		h.streamNDJSON(w, r, rd, opts)
	case typeArrow:
		h.streamArrow(w, r, rd)
	case typeSSE:
		h.streamEvents(w, r, rd, opts)
	default:
		h.poll(w, r, rd, opts, wait)
	}
}

// longPollWait reads ?wait= .
func longPollWait(r *http.Request, media string) (time.Duration, error) {
	v := r.URL.Query().Get("wait")
	if v == "" {
		return 0, nil
	}
	d, err := ParseDuration(v)
	if err != nil {
		return 0, errs.New(errs.InvalidValue, "wait %q is not a duration such as 500ms or 20s", clip(v))
	}
	if media != typeJSON {
		return 0, errs.New(errs.InvalidValue, "wait belongs to the long poll (%s); streams wait by themselves", typeJSON)
	}
	timeout := defaultTimeout
	if t, err := ParseDuration(r.URL.Query().Get("timeout")); err == nil {
		timeout = t
	}
	if d >= timeout {
		return 0, errs.New(errs.InvalidValue, "wait %s is not less than the timeout of %s", v, timeout)
	}
	return d, nil
}

// poll answers with the records there are, or, when there are none, those that
// come first within wait.
func (h *Handler) poll(w http.ResponseWriter, r *http.Request, rd *router.Reader, opts jsonrow.EncodeOptions, wait time.Duration) {
	ctx, cancel := h.untilDrain(r)
	defer cancel()
	out := []byte(`{"rows":[`)
	enc := jsonrow.NewEncoder(rd.Plan().Columns, opts)
	n := 0
	for len(out) < maxPageBytes {
		c, err := next(ctx, rd, wait)
		if errors.Is(err, io.EOF) || err == nil && c == nil || errs.Is(err, errs.Draining) || errors.Is(err, context.DeadlineExceeded) {
			break // the client goes on from `next`
		}
		if err == nil {
			out, err = appendChunk(out, enc, c, &n)
			c.Release()
		}
		if err == nil {
			if err = rd.Keep(ctx, int64(cap(out))); ctx.Err() != nil {
				err = nil // it is next that says how it ends
			}
		}
		if err != nil {
			h.problem(w, r, err)
			return
		}
		wait = 0
	}
	marks, err := rd.HighWatermarks(r.Context())
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out = append(out, `],"next":"`...)
	out = append(out, rd.Cursor()...)
	out = append(out, `","high_watermark":`...)
	out = append(out, jsonText(marks)...)
	out = append(out, `,"table_id":`...)
	out = append(out, jsonText(rd.Plan().Table.ID)...)
	out = append(out, "}\n"...)
	rd.Stats().BytesShipped = int64(len(out))
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set(headerStats, string(jsonText(rd.Stats())))
	_, _ = w.Write(out) // the client went away
}
