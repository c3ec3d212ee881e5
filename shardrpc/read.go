package shardrpc

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/trace"
)

// Times of streams of rows.
const (
	// beatEvery is how soon an owner with nothing to send says that it is there.
	beatEvery = 3 * time.Second
	// silence is how long an owner may be silent: then the stream has broken.
	silence = 15 * time.Second
)

// Read implements router.Remote.
func (r *remote) Read(ctx context.Context, form []byte) (router.Frames, error) {
	ctx, span := trace.Call(ctx, "call read")
	span.Int("millrace.shard", int64(r.id))
	ctx, cancel := context.WithCancel(ctx)
	quiet := time.AfterFunc(silence, cancel)
	resp, err := r.c.do(ctx, r.id, pathRead, form) //nolint:bodyclose // frameReader closes it
	if err != nil {
		quiet.Stop()
		cancel()
		span.End(err)
		return nil, lost(context.WithoutCancel(ctx), r.id, false, err)
	}
	quiet.Stop()
	in := &watched{r: resp.Body, quiet: quiet}
	r.c.m.reads.Inc()
	closed := sync.OnceFunc(func() {
		r.c.m.reads.Dec()
		span.End(nil)
	})
	return &frameReader{r: bufio.NewReaderSize(in, 64<<10), alive: func() {}, close: func() error {
		closed()
		quiet.Stop()
		cancel()
		return resp.Body.Close()
	}}, nil
}

// watched is a body whose reads may take so long and no longer.
type watched struct {
	r     io.Reader
	quiet *time.Timer
}

func (w *watched) Read(b []byte) (int, error) {
	w.quiet.Reset(silence)
	n, err := w.r.Read(b)
	w.quiet.Stop()
	return n, err
}

// read answers a read of rows: frames as they are read, until the reader's end, or an
// error. It ends when the other one goes away.
func (s *Server) read(w http.ResponseWriter, r *http.Request, id millrace.ShardID, form []byte) {
	if s.o.Router == nil {
		http.Error(w, "no rows are read here", http.StatusNotFound)
		return
	}
	if !s.reads.TryAcquire(1) {
		http.Error(w, "too many reads at a time", http.StatusServiceUnavailable)
		return
	}
	defer s.reads.Release(1)
	s.m.reads.Inc()
	defer s.m.reads.Dec()
	ctx, span := s.o.Tracer.Serve(r.Context(), "shardrpc read")
	defer span.Int("millrace.shard", int64(id)).End(nil)
	far, err := s.o.Router.OpenFarRead(ctx, id, form)
	if errs.Is(err, errs.NotOwner) {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	out := &beating{w: frameWriter{w: w}, c: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err != nil {
		_ = out.w.failure(router.FarPart(err, 0)) // the other one may be gone
		return
	}
	defer func() {
		if err := far.Close(); err != nil {
			s.o.Logger.WarnContext(ctx, "a read of another process does not close", errAttr(err))
		}
	}()
	_ = out.c.SetWriteDeadline(time.Time{}) // a reader may take its time
	if out.flush() != nil {
		return
	}
	stop := out.beat(far.Touch)
	defer stop()
	for {
		f, err := far.Next(ctx)
		switch {
		case errors.Is(err, io.EOF) || ctx.Err() != nil:
			return
		case err != nil:
			_ = out.write(func(w *frameWriter) error { return w.failure(router.FarPart(err, far.Part())) })
			return
		case f == nil:
			continue
		}
		if out.write(func(w *frameWriter) error { return w.frame(f) }) != nil {
			return // the other one is gone
		}
	}
}

// beating is a stream that says that it is there while nothing else is sent.
type beating struct {
	mu   sync.Mutex
	w    frameWriter
	c    *http.ResponseController
	sent bool // something, since the last tick
}

func (b *beating) flush() error { return b.c.Flush() }

func (b *beating) write(do func(*frameWriter) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := do(&b.w)
	if err == nil {
		err = b.flush()
	}
	b.sent = true
	return err
}

// beat does so until it is stopped; each time what is read is used, so that it is kept.
func (b *beating) beat(touch func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(beatEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-done:
				return
			}
			touch()
			if b.mu.TryLock() { // else something is being sent
				var err error
				if !b.sent {
					if err = b.w.beat(); err == nil {
						err = b.flush()
					}
				}
				b.sent = false
				b.mu.Unlock()
				if err != nil {
					return
				}
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
