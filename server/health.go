package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/errs"
)

// phase is where the server is in its life.
type phase int32

const (
	starting phase = iota
	serving
	draining
)

func (p phase) String() string { return [...]string{"starting", statusOK, "draining"}[p] }

// health answers whether the process is alive and whether it takes work.
type health struct {
	clock   func() time.Time
	started time.Time
	phase   atomic.Int32
	// known says whether who asks may read more than names and codes; nil: everybody may.
	known func(r *http.Request) bool

	mu     sync.Mutex
	checks []check
}

// check is a component that tells of itself.
type check struct {
	component string
	err       func() error // nil: all is well
}

func newHealth(clock func() time.Time) *health { return &health{clock: clock, started: clock()} }

func (h *health) watch(component string, err func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{component, err})
}

func (h *health) enter(p phase) { h.phase.Store(int32(p)) }

func (h *health) now() phase { return phase(h.phase.Load()) }

// problem is a component that is not well.
type problem struct {
	component string
	err       error
}

func (h *health) problems() (out []problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.checks {
		if err := c.err(); err != nil {
			out = append(out, problem{c.component, err})
		}
	}
	return out
}

// detail is what the components have to say, "" when all is well. Errors have names of
// tables, folders and machines, which who is not known does not get.
func (h *health) detail(known func() bool) string {
	problems := h.problems()
	if len(problems) == 0 {
		return ""
	}
	whole := known()
	var out []string
	for _, p := range problems {
		text := string(errs.CodeOf(p.err))
		if whole {
			text = p.err.Error()
		}
		out = append(out, p.component+": "+text)
	}
	return strings.Join(out, "; ")
}

const (
	statusOK      = "ok"
	statusFailing = "failing"
)

// healthReport is the document's Health, with the time since the start.
type healthReport struct {
	Status       string `json:"status"`
	Detail       string `json:"detail,omitempty"`
	UptimeMillis int64  `json:"uptime_ms"`
}

// live is /healthz: 200 unless a component is red, which only a restart or a
// person can mend.
func (h *health) live(w http.ResponseWriter, r *http.Request) { h.answer(w, r, statusOK, true) }

// ready is /readyz: 200 while work is taken.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	p := h.now()
	h.answer(w, r, p.String(), p == serving)
}

func (h *health) answer(w http.ResponseWriter, r *http.Request, status string, good bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, r, errs.New(errs.MethodNotAllowed, "%s takes GET", r.URL.Path))
		return
	}
	report := healthReport{Status: status, UptimeMillis: h.clock().Sub(h.started).Milliseconds()}
	report.Detail = h.detail(func() bool { return h.known == nil || h.known(r) })
	if report.Detail != "" {
		report.Status, good = statusFailing, false
	}
	code := http.StatusOK
	if !good {
		code = http.StatusServiceUnavailable
	}
	answerJSON(w, "application/json", code, report)
}

func answerJSON(w http.ResponseWriter, mediaType string, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values always encode
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client went away
}
