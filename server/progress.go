package server

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// stallTime is how long a read of a body or a write of an answer may wait.
	stallTime = 30 * time.Second
	// stallSlack is how much a deadline may be behind, so that it is not set for
	// every piece.
	stallSlack = time.Second
)

// progress moves a connection's deadlines with the bytes that pass, so that a
// client that stops sending or taking is dropped, and one that goes on, however
// slowly and long, is not.
type progress struct {
	rc       *http.ResponseController
	w        http.ResponseWriter
	clock    func() time.Time
	readSet  time.Time
	writeSet time.Time
}

func newProgress(w http.ResponseWriter, clock func() time.Time) progress {
	return progress{rc: http.NewResponseController(w), w: w, clock: clock}
}

func (p *progress) beforeRead() {
	if now := p.clock(); now.Sub(p.readSet) >= stallSlack {
		p.readSet = now
		_ = p.rc.SetReadDeadline(now.Add(stallTime)) // not of a real connection, in tests
	}
}

func (p *progress) beforeWrite() {
	if now := p.clock(); now.Sub(p.writeSet) >= stallSlack {
		p.writeSet = now
		_ = p.rc.SetWriteDeadline(now.Add(stallTime)) // as above
	}
}

// recorder passes an answer on, notes its status and keeps the deadlines moving.
type recorder struct {
	progress

	in     *movingBody // nil without a body
	status int
	wrote  bool
}

func newRecorder(w http.ResponseWriter, r *http.Request, clock func() time.Time) *recorder {
	rec := &recorder{progress: newProgress(w, clock), status: http.StatusOK}
	if r.Body != nil && r.Body != http.NoBody {
		rec.in = &movingBody{ReadCloser: r.Body, p: &rec.progress}
		r.Body = rec.in
	}
	return rec
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if !r.wrote && status >= http.StatusOK {
		r.status, r.wrote = status, true
	}
	r.beforeWrite()
	r.w.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	r.wrote = true
	r.beforeWrite()
	return r.w.Write(b)
}

// Flush implements http.Flusher.
func (r *recorder) Flush() {
	r.beforeWrite()
	_ = r.rc.Flush() // the error comes again at the next write
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.w }

// end bounds what net/http itself still does: writing the end of the answer, and
// reading on in a body that the handler did not read to its end.
func (r *recorder) end() {
	r.writeSet, r.readSet = time.Time{}, time.Time{}
	r.beforeWrite()
	if r.in != nil && !r.in.ended {
		r.beforeRead()
	}
}

// movingBody is a request's body whose deadline moves.
type movingBody struct {
	io.ReadCloser

	p     *progress
	ended bool
}

// Read implements io.Reader.
func (b *movingBody) Read(buf []byte) (int, error) {
	b.p.beforeRead()
	n, err := b.ReadCloser.Read(buf)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		// From here net/http reads on the connection, to notice a client that goes
		// away; it waits as long as the handler works.
		_ = b.p.rc.SetReadDeadline(time.Time{}) // as above
	}
	return n, err
}
