package rest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/trace"
)

func errAttr(err error) slog.Attr { return slog.Any("err", err) }

// stream writes an answer piece by piece. Each write has streamStall to make
// progress, so that a client that takes nothing is dropped.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	sent int64
	gone bool // the client takes nothing any more
	// slow is an error when others wait for the memory that the client takes too slowly; nil:
	// it takes none that is counted.
	slow func() error
}

func newStream(w http.ResponseWriter, media string) *stream {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass it on at once
	return &stream{w: w, rc: http.NewResponseController(w)}
}

func (s *stream) write(parts ...[]byte) error {
	if s.slow != nil {
		if err := s.slow(); err != nil {
			return err
		}
	}
	// Servers without deadlines (tests) have none to set.
	_ = s.rc.SetWriteDeadline(time.Now().Add(streamStall)) //nolint:forbidigo // a deadline of the operating system's, not of ours
	for _, p := range parts {
		n, err := s.w.Write(p)
		s.sent += int64(n)
		if err != nil {
			s.gone = true
			return err
		}
	}
	return nil
}

func (s *stream) flush() error {
	err := s.rc.Flush()
	s.gone = s.gone || err != nil
	return err
}

// errDraining ends streams when the server stops.
var errDraining = errs.New(errs.Draining, "the server is shutting down; go on from the last position elsewhere, or after its restart")

// untilDrain is the request's context, which also ends when the server drains, and when the
// caller's token expires.
func (h *Handler) untilDrain(r *http.Request) (context.Context, context.CancelFunc) {
	return h.untilRefused(r, nil)
}

// untilRefused is untilDrain that also ends when a pass does not hold any more; nil always
// holds.
func (h *Handler) untilRefused(r *http.Request, pass router.Pass) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	expired, stop := auth.Expiry(ctx, h.o.Clock.Now)
	var again <-chan time.Time
	if pass != nil {
		tick := time.NewTicker(router.PassEvery)
		context.AfterFunc(ctx, tick.Stop)
		again = tick.C
	}
	go func() {
		defer stop()
		for ctx.Err() == nil {
			select {
			case <-h.o.Draining:
				cancel(errDraining)
			case <-expired:
				cancel(auth.ErrExpired)
			case <-again:
				if err := pass.Still(); err != nil {
					cancel(err)
				}
			case <-ctx.Done():
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// next is the reader's next chunk. A follower that has nothing gives (nil, nil)
// after idleWait.
func next(ctx context.Context, rd *router.Reader, wait time.Duration) (*router.Chunk, error) {
	c, err := rd.Next(ctx, wait)
	if err != nil && ctx.Err() != nil && context.Cause(ctx) != nil {
		return nil, context.Cause(ctx)
	}
	return c, err
}

// beginStream begins an answer that is a stream. A bounded one has its first chunk before, so
// that a client for which there is no memory is told so by the status; it has no stream then.
func (h *Handler) beginStream(ctx context.Context, w http.ResponseWriter, r *http.Request, rd *router.Reader, media string) (s *stream, first *router.Chunk, err error) {
	if !rd.Plan().Follow {
		if first, err = next(ctx, rd, idleWait); errs.Is(err, errs.Overloaded) {
			h.problem(w, r, err)
			return nil, nil, err
		}
	}
	w.Header().Set("Trailer", headerStats)
	s = newStream(w, media)
	s.slow = rd.Slow
	return s, first, err
}

// streamNDJSON answers with a row a line. A failure ends it with an error line.
func (h *Handler) streamNDJSON(w http.ResponseWriter, r *http.Request, rd *router.Reader, opts jsonrow.EncodeOptions) {
	ctx, cancel := h.untilDrain(r)
	defer cancel()
	s, first, err := h.beginStream(ctx, w, r, rd, typeNDJSON)
	if s == nil {
		return
	}
	enc := jsonrow.NewEncoder(rd.Plan().Columns, opts)
	var buf []byte
	if err == nil {
		err = s.flushHead(rd)
	}
	for err == nil {
		c := first
		if first = nil; c == nil {
			c, err = next(ctx, rd, idleWait)
		}
		if err != nil || c == nil {
			continue
		}
		buf, err = s.lines(buf[:0], enc, c)
		c.Release()
		if err == nil && rd.Plan().Follow {
			err = s.flush()
		}
	}
	releaseChunk(first)
	s.failLine(h, w, r, err)
	rd.Stats().BytesShipped = s.sent
	w.Header().Set(headerStats, string(jsonText(rd.Stats())))
}

// releaseChunk lets go of a chunk that there was no time for.
func releaseChunk(c *router.Chunk) {
	if c != nil {
		c.Release()
	}
}

// failLine ends a stream of lines with an error, unless err is its end.
func (s *stream) failLine(h *Handler, w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, io.EOF) && !s.gone && r.Context().Err() == nil {
		body, _ := h.problemBody(w, r, err)
		_ = s.write([]byte(`{"__error":`), body[:len(body)-1], []byte("}\n")) // the client may be gone
	}
}

// flushHead lets a follower's client know at once that the stream stands.
func (s *stream) flushHead(rd *router.Reader) error {
	if !rd.Plan().Follow {
		return nil
	}
	return s.flush()
}

// lines writes the rows of a chunk, a line each, in pieces of about the buffer's size.
func (s *stream) lines(buf []byte, enc *jsonrow.Encoder, c *router.Chunk) ([]byte, error) {
	rec, err := c.Record()
	if err != nil {
		return buf, err
	}
	defer rec.Release()
	return s.recordLines(buf, enc, rec)
}

// recordLines writes the rows of a record, a line each.
func (s *stream) recordLines(buf []byte, enc *jsonrow.Encoder, rec arrow.RecordBatch) ([]byte, error) {
	enc.Bind(rec)
	for i := range int(rec.NumRows()) {
		buf = append(enc.AppendObject(buf, i), '\n')
		if len(buf) >= 192<<10 {
			if err := s.write(buf); err != nil {
				return buf, err
			}
			buf = buf[:0]
		}
	}
	return buf, s.write(buf)
}

// maxArrowBody is the size of a message's body at which a chunk is cut.
const maxArrowBody = 8 << 20

// streamArrow answers with an Arrow IPC stream. A failure leaves it without its
// end mark, and the connection broken off.
func (h *Handler) streamArrow(w http.ResponseWriter, r *http.Request, rd *router.Reader) {
	codec := segment.None
	if rd.Plan().CodecSet {
		codec = rd.Plan().Codec
	}
	ctx, cancel := h.untilDrain(r)
	defer cancel()
	s, first, err := h.beginStream(ctx, w, r, rd, typeArrow)
	if s == nil {
		return
	}
	if bad := s.schema(rd.Plan().Schema); bad != nil {
		err = bad
	}
	if err == nil {
		err = s.flushHead(rd)
	}
	for err == nil {
		c := first
		if first = nil; c == nil {
			c, err = next(ctx, rd, idleWait)
		}
		if err != nil || c == nil {
			continue
		}
		err = s.arrow(c, codec)
		c.Release()
		if err == nil && rd.Plan().Follow {
			err = s.flush()
		}
	}
	releaseChunk(first)
	rd.Stats().BytesShipped = s.sent
	s.endArrow(h, r, err)
	w.Header().Set(headerStats, string(jsonText(rd.Stats())))
}

// endArrow ends an Arrow stream with its mark, or, when err is not its end, breaks
// it off.
func (s *stream) endArrow(h *Handler, r *http.Request, err error) {
	if !errors.Is(err, io.EOF) {
		if !s.gone && r.Context().Err() == nil { // what ends by its client's will is well
			trace.Of(r.Context()).Fail(h.classify(r, err).Code)
		}
		h.o.Logger.InfoContext(r.Context(), "arrow stream broken off", errAttr(err))
		panic(http.ErrAbortHandler)
	}
	_ = s.write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}) // the client may be gone
}

// schema writes the stream's schema message.
func (s *stream) schema(schema *arrow.Schema) error {
	p := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
	defer p.Release()
	_, err := p.WritePayload(writerFunc(func(b []byte) (int, error) { return len(b), s.write(b) }))
	return err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// arrow writes a chunk's messages.
func (s *stream) arrow(c *router.Chunk, codec segment.Codec) error {
	ships, err := c.Ship(codec, maxArrowBody)
	if err != nil {
		return err
	}
	for _, sh := range ships {
		if err = s.message(sh.Message); err != nil {
			return err
		}
		sh.Message.Release()
	}
	return nil
}

// message writes a message, encapsulated: continuation mark, length of the metadata
// with its padding, metadata, body.
func (s *stream) message(m *segment.Message) error {
	padded := (len(m.Header) + 8 + 7) &^ 7
	head := make([]byte, 8, padded)
	binary.LittleEndian.PutUint32(head, 0xffffffff)
	binary.LittleEndian.PutUint32(head[4:], uint32(padded-8))
	head = append(head, m.Header...)[:padded]
	return s.write(head, m.Body)
}
