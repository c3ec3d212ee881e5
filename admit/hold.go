package admit

import (
	"context"
	"io"
	"time"

	"github.com/millrace/millrace/errs"
)

// piece is what a hold takes at a time.
const piece = 16 << 10

// Hold is what one client takes of a room: with what comes of a body and the rows of it, by
// Grow and Rows, or with what is sent to it, by Set.
type Hold struct {
	room  *Room
	came  int64     // and is not done with
	rows  int64     // of what came, besides it
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
	if err := h.Slow(); err != nil {
		return err
	}
	return h.fill(ctx)
}

// Rows takes room for the rows that were decoded of what came: so many bytes by now.
func (h *Hold) Rows(ctx context.Context, bytes int64) error {
	if h.taken == 0 {
		h.since = h.room.now()
	}
	h.rows = bytes
	return h.fill(ctx)
}

// fill takes what is missing. Of what would be more than the room it takes all of it.
func (h *Hold) fill(ctx context.Context) error {
	for h.taken < min(h.came+h.rows, h.room.limit) {
		patience := h.room.patience[0]
		if h.taken > 0 {
			patience = h.room.patience[1]
		}
		if err := h.take(ctx, min(piece, h.room.limit-h.taken), patience); err != nil {
			return err
		}
	}
	return nil
}

// take takes bytes more, and lets go of all when there is no room for them.
func (h *Hold) take(ctx context.Context, bytes int64, patience time.Duration) error {
	holding := h
	if h.taken == 0 {
		holding = nil
	}
	if err := h.room.take(ctx, bytes, holding, patience); err != nil {
		h.Done()
		return err
	}
	h.taken += bytes
	return nil
}

// Set takes or gives back what makes it so many bytes, at most the room, and waits for them
// for patience at most.
func (h *Hold) Set(ctx context.Context, bytes int64, patience time.Duration) error {
	bytes = min(bytes, h.room.limit)
	switch {
	case bytes == 0:
		h.Done()
	case bytes > h.taken:
		if h.taken == 0 {
			h.since = h.room.now()
		}
		return h.take(ctx, bytes-h.taken, patience)
	default:
		h.Less(bytes)
	}
	return nil
}

// Fit is Set for what is in memory already, and has to be done with all the same: where there
// is no room for more, what is taken stays.
func (h *Hold) Fit(ctx context.Context, bytes int64, patience time.Duration) {
	if bytes = min(bytes, h.room.limit); bytes <= h.taken {
		h.Less(bytes)
		return
	}
	holding := h
	if h.taken == 0 {
		holding, h.since = nil, h.room.now()
	}
	if hint, err := h.room.ask(ctx, bytes-h.taken, holding, patience); hint == 0 && err == nil {
		h.taken = bytes
	}
}

// Less gives back what is taken beyond so many bytes.
func (h *Hold) Less(bytes int64) {
	switch {
	case bytes == 0:
		h.Done()
	case bytes < h.taken:
		h.room.done(h.taken-bytes, nil)
		h.taken = bytes
	}
}

// Slow refuses a client that has held something for slowHold while others wait.
func (h *Hold) Slow() error {
	if h.taken == 0 || h.room.now().Sub(h.since) <= slowHold || !h.room.Contended() {
		return nil
	}
	h.Done()
	h.room.refused.WithLabelValues("slow").Inc()
	return &errs.Error{Code: errs.Overloaded, RetryAfter: maxHint, Message: h.room.of.slow()}
}

// Done gives back what was taken. The hold can be used again.
func (h *Hold) Done() {
	if h.taken > 0 {
		h.room.done(h.taken, h)
	}
	h.came, h.rows, h.taken = 0, 0, 0
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
