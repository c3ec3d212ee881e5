package admit

import (
	"context"
	"io"
	"time"

	"github.com/millrace/millrace/errs"
)

// piece is what a hold takes at a time.
const piece = 16 << 10

// Hold is what a body takes of a room.
type Hold struct {
	room  *Room
	came  int64     // and is not done with
	taken int64     // of the room
	since time.Time // when the first of what is held came
}

// Hold makes one that has taken nothing.
func (r *Room) Hold() *Hold { return &Hold{room: r} }

// Grow takes room for bytes that came.
func (h *Hold) Grow(ctx context.Context, bytes int) error {
	if h.came == 0 && bytes > 0 {
		h.since = h.room.now()
	}
	h.came += int64(bytes)
	if h.taken > 0 && h.room.now().Sub(h.since) > slowHold && h.room.Contended() {
		h.Done()
		h.room.refused.WithLabelValues("slow").Inc()
		return &errs.Error{Code: errs.Overloaded, RetryAfter: maxHint, Message: "the body comes slowly, and others wait for the memory that it takes: send less at a time, or come back later"}
	}
	for h.taken < h.came {
		patience, holding := h.room.patience[0], (*Hold)(nil)
		if h.taken > 0 {
			patience, holding = h.room.patience[1], h
		}
		more := min(piece, h.room.limit)
		if err := h.room.take(ctx, more, holding, patience); err != nil {
			h.Done()
			return err
		}
		h.taken += more
	}
	return nil
}

// Done gives back what was taken. The hold can be used again.
func (h *Hold) Done() {
	if h.taken > 0 {
		h.room.done(h.taken, h)
	}
	h.came, h.taken = 0, 0
}

// Reader reads from r, and takes room for what it reads.
func (h *Hold) Reader(ctx context.Context, r io.Reader) io.Reader {
	return &reader{h: h, ctx: ctx, r: r}
}

type reader struct {
	h   *Hold
	ctx context.Context //nolint:containedctx // a reader has none to pass
	r   io.Reader
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		if full := r.h.Grow(r.ctx, n); full != nil {
			return 0, full
		}
	}
	return n, err
}
