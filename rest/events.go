package rest

import (
	"errors"
	"io"
	"net/http"

	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
)

// eventNames are the `event:` of each change type.
var eventNames = map[string]string{
	millrace.Insert.String():       "insert",
	millrace.UpdateBefore.String(): "update_before",
	millrace.UpdateAfter.String():  "update_after",
	millrace.Delete.String():       "delete",
	// The binlog names changes as events are named.
	"insert": "insert", "update": "update", "delete": "delete",
}

// streamEvents answers with server-sent events. The first block is a cursor alone,
// so that a client that is cut off before its first event resumes rightly; so are
// the blocks that say the stream lives.
func (h *Handler) streamEvents(w http.ResponseWriter, r *http.Request, rd *router.Reader, opts jsonrow.EncodeOptions) {
	ctx, cancel := h.untilDrain(r)
	defer cancel()
	s := newStream(w, typeSSE)
	s.slow = rd.Slow
	enc := jsonrow.NewEncoder(rd.Plan().Columns, opts)
	err := s.write([]byte("retry: 2000\nid: " + rd.Cursor() + "\n\n"))
	if err == nil {
		err = s.flush()
	}
	var buf []byte
	for err == nil {
		var c *router.Chunk
		c, err = next(ctx, rd, idleWait)
		switch {
		case err != nil:
			continue
		case c == nil:
			err = s.write([]byte("id: " + rd.Cursor() + "\n\n"))
		default:
			buf, err = s.events(buf[:0], enc, rd, c)
			c.Release()
		}
		if err == nil {
			err = s.flush()
		}
	}
	rd.Stats().BytesShipped = s.sent
	if errors.Is(err, io.EOF) || s.gone || r.Context().Err() != nil {
		return // until or limit was reached, or the client went away
	}
	body, _ := h.problemBody(w, r, err)
	_ = s.write([]byte("event: problem\ndata: "), body, []byte("\n")) // the client may be gone
	_ = s.flush()
}

// events writes the records of a chunk as events. The id stands on the last event
// of a group, so that no client resumes between a -U and its +U.
func (s *stream) events(buf []byte, enc *jsonrow.Encoder, rd *router.Reader, c *router.Chunk) ([]byte, error) {
	rec, err := c.Record()
	if err != nil {
		return buf, err
	}
	defer rec.Release()
	enc.Bind(rec)
	changes := rec.Column(0).(*array.String) // _change_type comes first
	for i := range c.Rows {
		t := changes.Value(i)
		buf = append(buf, "event: "...)
		buf = append(buf, eventNames[t]...)
		pair := t == millrace.UpdateBefore.String() && i+1 < c.Rows && changes.Value(i+1) == millrace.UpdateAfter.String()
		if !pair {
			buf = append(buf, "\nid: "...)
			buf = append(buf, rd.CursorAfter(c, i)...)
		}
		buf = append(buf, "\ndata: "...)
		buf = enc.AppendObject(buf, i)
		buf = append(buf, "\n\n"...)
		if len(buf) >= 64<<10 {
			if err := s.write(buf); err != nil {
				return buf, err
			}
			buf = buf[:0]
		}
	}
	return buf, s.write(buf)
}
