package audit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Outcomes of a call that are not codes of errors.
const (
	OK    = "ok"
	Begun = "begun" // of a stream
)

// Event is what is written: the JSON of a line.
type Event struct {
	Time      time.Time `json:"time"`
	RequestID string    `json:"request_id"`
	Principal string    `json:"principal"` // "" when it was not found out who calls
	Address   string    `json:"address"`   // host and port of the client
	Door      string    `json:"door"`      // http, flight, iceberg
	Operation string    `json:"operation"` // as the OpenAPI document, or Flight, names it
	Verb      string    `json:"verb"`      // "" when it came to no decision
	Object    string    `json:"object"`    // *, a database, or database.table
	Outcome   string    `json:"outcome"`   // ok, begun, or the code of the error
}

// maxName is how many bytes of a name are kept.
const maxName = 512

// maxAsked is how many different things of one call are told apart.
const maxAsked = 64

// Record is what is to be written of a call.
type Record struct {
	log *Log

	mu    sync.Mutex
	event Event
	asked []asked
}

type asked struct{ verb, object string }

type recordKey struct{}

// With is ctx with the record of its call.
func With(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// Of is the record of the call that ctx belongs to; nil when none is kept.
func Of(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}

// Ask notes that a verb on an object was asked for. A nil Record notes nothing.
func (r *Record) Ask(verb, object string) {
	if r == nil {
		return
	}
	a := asked{verb, clip(object)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) < maxAsked && !slices.Contains(r.asked, a) {
		r.asked = append(r.asked, a)
	}
}

// Caller notes who calls. A nil Record notes nothing.
func (r *Record) Caller(principal string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.Principal = clip(principal)
}

// Write writes the call with an outcome: at its end, and at the beginning of a stream. A
// nil Record writes nothing. It waits for room as long as ctx lives.
func (r *Record) Write(ctx context.Context, outcome string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	e, all := r.event, r.asked
	r.mu.Unlock()
	if len(all) == 0 {
		if outcome == OK || outcome == Begun {
			return // such as a page of the docs: nothing was decided
		}
		all = []asked{{}}
	}
	e.Outcome = outcome
	for _, a := range all {
		if outcome == OK && !r.log.wants(a.verb) || outcome == Begun && !r.log.wants(a.verb) {
			continue
		}
		e.Time, e.Verb, e.Object = r.log.o.Clock.Now().UTC(), a.verb, a.object
		r.log.add(ctx, e)
	}
}

func clip(s string) string {
	if len(s) > maxName {
		return s[:maxName]
	}
	return s
}
