package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/millrace/millrace/auth/quota"
)

// Quotas bound what callers write in a stream, and how many streams they have; the router
// charges what is written and read.
type Quotas interface {
	// MayWrite says whether the caller may write now, before his body is read.
	MayWrite(ctx context.Context) error
	// WaitWrite waits, at most for most, until a stream may write more.
	WaitWrite(ctx context.Context, most time.Duration) (may bool, err error)
	// Stream counts a stream of the caller's until it is closed.
	Stream(ctx context.Context) (closed func(), err error)
}

// openStream counts a stream until it is closed.
func (h *Handler) openStream(r *http.Request) (closed func(), err error) {
	if h.o.Quotas == nil {
		return func() {}, nil
	}
	return h.o.Quotas.Stream(r.Context())
}

// sending is a request that is answered by a stream: what reads for it waits for a quota
// meanwhile, without the answer's deadline passing.
func sending(w http.ResponseWriter, r *http.Request) *http.Request {
	rc := http.NewResponseController(w)
	return r.WithContext(quota.Streaming(r.Context(), func() {
		_ = rc.SetWriteDeadline(time.Now().Add(streamStall)) //nolint:forbidigo // a deadline of the operating system's, not of ours
	}))
}

// receiving is a request whose body is a stream, which is not read while it waits for a
// quota.
func receiving(w http.ResponseWriter, r *http.Request) *http.Request {
	rc := http.NewResponseController(w)
	return r.WithContext(quota.Streaming(r.Context(), func() {
		_ = rc.SetReadDeadline(time.Now().Add(streamStall)) //nolint:forbidigo // a deadline of the operating system's, not of ours
	}))
}

// quotaStep is how long a stream waits before it looks at whether it has to end.
const quotaStep = time.Second

// waitWrite waits until a stream may bring more rows.
func (wr *writing) waitWrite() error {
	for wr.h.o.Quotas != nil {
		may, err := wr.h.o.Quotas.WaitWrite(wr.until, quotaStep)
		switch {
		case wr.until.Err() != nil:
			return context.Cause(wr.until)
		case err != nil:
			return err
		case may:
			return nil
		}
	}
	return nil
}
