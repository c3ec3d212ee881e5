package audit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Outcomes of a call that are not codes of errors.
const (
	OK    = "ok"
	Begun = "begun" // it is still under way
)

// Decisions about what was asked for.
const (
	Allowed = "allowed"
	Denied  = "denied"
)

// Event is what is written: the JSON of a line.
type Event struct {
	Time      time.Time `json:"time"`
	RequestID string    `json:"request_id"`
	Principal string    `json:"principal"` // "" when it was not found out who calls
	Address   string    `json:"address"`   // host and port of the client
	Door      string    `json:"door"`      // http, flight, iceberg, internal
	Operation string    `json:"operation"` // as the OpenAPI document, or Flight, names it
	Verb      string    `json:"verb"`      // "" when it came to no decision
	Object    string    `json:"object"`    // *, a database, or database.table
	Decision  string    `json:"decision"`  // allowed, denied; "" when it came to none
	Outcome   string    `json:"outcome"`   // ok, begun, or the code of the error
}

// maxName is how many bytes of a name are kept.
const maxName = 512

const (
	// maxAsked is how many different things of one call are told apart.
	maxAsked = 64
	// maxDenied is how many are when those beyond maxAsked were denied.
	maxDenied = 1024
)

// Record is what is to be written of a call.
type Record struct {
	log   *Log
	timer *time.Timer // of a call that takes long

	mu    sync.Mutex
	ended bool
	event Event // its Object is what the call names, until something is asked for
	asked []asked
	more  []more // what is beyond
}

type asked struct {
	verb, object string
	denied       bool
}

// more is how often something was asked for that is not told apart: one for a verb and
// decision.
type more struct {
	verb   string
	denied bool
	times  int
}

type recordKey struct{}

// With is ctx with the record of its call; ctx itself where none is kept.
func With(ctx context.Context, r *Record) context.Context {
	if r == nil {
		return ctx
	}
	return context.WithValue(ctx, recordKey{}, r)
}

// Of is the record of the call that ctx belongs to; nil when none is kept.
func Of(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}

// Ask notes that a verb on an object was asked for, and whether it was allowed. A nil Record
// notes nothing.
func (r *Record) Ask(verb, object string, allowed bool) {
	if r == nil {
		return
	}
	a := asked{verb, clip(object), !allowed}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.asked, func(of asked) bool { return of.verb == a.verb && of.object == a.object })
	switch {
	case i >= 0:
		r.asked[i].denied = r.asked[i].denied || a.denied
	case len(r.asked) < maxAsked, a.denied && len(r.asked) < maxDenied:
		r.asked = append(r.asked, a)
	default:
		r.beyond(a)
	}
}

// beyond counts what is not told apart. REQUIRES: r.mu held.
func (r *Record) beyond(a asked) {
	i := slices.IndexFunc(r.more, func(m more) bool { return m.verb == a.verb && m.denied == a.denied })
	if i < 0 {
		i = len(r.more)
		r.more = append(r.more, more{verb: a.verb, denied: a.denied})
	}
	r.more[i].times++
}

// Caller notes who calls. A nil Record notes nothing.
func (r *Record) Caller(principal string) { r.note(func(e *Event) { e.Principal = clip(principal) }) }

// Operation notes the name of the operation. A nil Record notes nothing.
func (r *Record) Operation(name string) { r.note(func(e *Event) { e.Operation = clip(name) }) }

// Object notes what the call names, which is written when nothing was asked for. A nil Record
// notes nothing.
func (r *Record) Object(name string) { r.note(func(e *Event) { e.Object = clip(name) }) }

func (r *Record) note(set func(*Event)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	set(&r.event)
}

// End writes the call with its outcome, once. A nil Record writes nothing.
func (r *Record) End(outcome string) {
	if r == nil {
		return
	}
	r.timer.Stop()
	r.write(outcome, true)
}

func (r *Record) write(outcome string, last bool) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.ended = last
	e, all := r.event, r.told()
	r.mu.Unlock()
	if len(all) == 0 {
		if outcome == OK || outcome == Begun {
			return // such as a page of the docs: nothing was decided
		}
		all = []asked{{object: e.Object}}
	}
	e.Outcome = outcome
	p := patience{long: r.log.o.Patience}
	defer p.end()
	for _, a := range all {
		if !r.log.wants(a, outcome) {
			continue
		}
		e.Time, e.Verb, e.Object, e.Decision = r.log.o.Clock.Now().UTC(), a.verb, a.object, a.decision()
		r.log.add(&e, &p)
	}
}

// told are the things that become events.
// REQUIRES: r.mu held.
func (r *Record) told() []asked {
	out := make([]asked, 0, len(r.asked))
	for _, a := range r.asked {
		if a.verb != describe || a.denied || !slices.ContainsFunc(r.asked, func(of asked) bool { return of.object == a.object && of.verb != describe }) {
			out = append(out, a)
		}
	}
	for _, m := range r.more {
		out = append(out, asked{m.verb, fmt.Sprintf("(%d more)", m.times), m.denied})
	}
	return out
}

func (a asked) decision() string {
	switch {
	case a.verb == "":
		return ""
	case a.denied:
		return Denied
	}
	return Allowed
}

func clip(s string) string {
	if len(s) > maxName {
		return s[:maxName]
	}
	return s
}
