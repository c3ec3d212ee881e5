package server

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/millrace/millrace/errs"
)

const (
	// stallTime is how long a read of a body or a write of an answer may wait.
	stallTime = 30 * time.Second
	// A body brings at least slowBytes in any slowTime, so that nobody keeps a request open
	// for ever by a byte now and then.
	slowTime  = 2 * time.Minute
	slowBytes = 1 << 10
	// restTime is how long what is left of a body may take to come when the request has
	// been answered: nobody waits for it, and the caller may be nobody we know.
	restTime = 5 * time.Second
	// writePiece is written under one deadline, so that it is of the pace of a client, not of
	// the size of what is written.
	writePiece = 64 << 10
	// stallSlack is how much a deadline may be behind, so that it is not set for
	// every piece.
	stallSlack = time.Second
)

// progress moves a connection's deadlines with the bytes that pass, so that a
// client that stops sending or taking is dropped, or sends next to nothing, and one that
// goes on, however long, is not.
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
func (r *recorder) Write(b []byte) (n int, err error) {
	r.wrote = true
	for {
		piece := b[n:min(n+writePiece, len(b))]
		r.beforeWrite()
		m, err := r.w.Write(piece)
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
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
	r.writeSet = time.Time{}
	r.beforeWrite()
	if r.in == nil || r.in.ended {
		return
	}
	_ = r.rc.SetReadDeadline(r.clock().Add(restTime)) // as above
}

// bodiless answers a request whose body nobody reads: the connection ends with the answer,
// which does not wait for a body that may not come.
func bodiless(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody {
		w.Header().Set("Connection", "close")
	}
}

// movingBody is a request's body whose deadline moves.
type movingBody struct {
	io.ReadCloser

	p     *progress
	ended bool
	// came are the bytes that came while we waited for waited, in the time that is looked at.
	came   int
	waited time.Duration
}

// errSlow ends a body that brings next to nothing.
var errSlow = errs.New(errs.InvalidRequest, "the body ended before it was whole: less than %d bytes of it came in %v", slowBytes, slowTime)

// took notes what a read brought, and says whether that is too little.
func (b *movingBody) took(n int, waited time.Duration) bool {
	if b.came, b.waited = b.came+n, b.waited+waited; b.came >= slowBytes {
		b.came, b.waited = 0, 0
	}
	return b.waited > slowTime
}

// Read implements io.Reader.
func (b *movingBody) Read(buf []byte) (int, error) {
	b.p.beforeRead()
	began := b.p.clock()
	n, err := b.ReadCloser.Read(buf)
	if b.took(n, b.p.clock().Sub(began)) && err == nil {
		err = errSlow
	}
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		// From here net/http reads on the connection, to notice a client that goes
		// away; it waits as long as the handler works.
		_ = b.p.rc.SetReadDeadline(time.Time{}) // as above
	}
	return n, err
}
