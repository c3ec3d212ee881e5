package admit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/millrace/millrace/errs"
)

const (
	// Those who hold nothing yet, and those who hold something, wait for so long.
	freshPatience = 2 * time.Second
	heldPatience  = 10 * time.Second
	// slowHold is how long a body may take to be done with while others wait.
	slowHold = 30 * time.Second
	// maxHint is the longest hint, in seconds.
	maxHint = 30
	// maxPassed is how many that fit may pass by one who holds nothing and does not fit.
	maxPassed = 1000
)

// Of is what a room is for.
type Of string

// The rooms that there are.
const (
	Received Of = "received" // bodies and batches that clients send
	Sent     Of = "sent"     // rows that clients are sent
)

func (o Of) full() string {
	if o == Sent {
		return "so much is being read that there is no memory for more at the moment"
	}
	return "so much is being received that there is no memory for more at the moment"
}

func (o Of) slow() string {
	if o == Sent {
		return "the answer is taken slowly, and others wait for the memory that it takes: read less at a time, or come back later"
	}
	return "the body comes slowly, and others wait for the memory that it takes: send less at a time, or come back later"
}

// Room is what all of one kind that is under way may take together.
type Room struct {
	of      Of
	limit   int64
	now     func() time.Time
	refused *prometheus.CounterVec
	waited  prometheus.Counter
	// patience of those who hold nothing, and of those who hold something.
	patience [2]time.Duration

	mu      sync.Mutex
	used    int64
	last    *Hold        // who has, or may yet take, the last quarter; nil: who asks first
	waiting [2][]*waiter // by whether they hold something
}

type waiter struct {
	hold   *Hold // nil: of none, or of one that has taken nothing
	bytes  int64
	passed int // by how many
	ready  chan struct{}
}

// New makes a room of so many bytes. Several of a process need a registerer with a label each.
func New(of Of, limit int64, now func() time.Time, reg prometheus.Registerer) *Room {
	p := promauto.With(reg)
	r := &Room{
		of: of, limit: limit, now: now, patience: [2]time.Duration{freshPatience, heldPatience},
		refused: p.NewCounterVec(prometheus.CounterOpts{Name: "millrace_admit_refused_total", Help: "Bodies and answers refused since there was no memory for them in time (full), or since they came or went too slowly while others waited (slow)."}, []string{"reason"}),
		waited:  p.NewCounter(prometheus.CounterOpts{Name: "millrace_admit_wait_seconds_total", Help: "Time that bodies and answers waited for memory."}),
	}
	p.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_admit_held_bytes", Help: "Bytes of bodies and batches that were received and of rows that are sent, and are not done with."}, func() float64 { return float64(r.Held()) })
	p.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_admit_limit_bytes", Help: "Bytes that they may take together."}, func() float64 { return float64(limit) })
	for _, reason := range []string{"full", "slow"} {
		r.refused.WithLabelValues(reason)
	}
	return r
}

// Limit is the most that one can ask for.
func (r *Room) Limit() int64 { return r.limit }

// Held is what is taken of it.
func (r *Room) Held() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// fits says whether there is room for bytes. REQUIRES: r.mu is held.
func (r *Room) fits(bytes int64, hold *Hold) bool {
	then := r.used + bytes
	switch {
	case hold == nil:
		return then <= r.limit/2 || r.used == 0 && then <= r.limit
	case r.last == nil || r.last == hold:
		return then <= r.limit
	}
	return then <= r.limit/4*3
}

// give makes bytes somebody's. REQUIRES: they fit, and r.mu is held.
func (r *Room) give(bytes int64, hold *Hold) {
	r.used += bytes
	if hold != nil && r.used > r.limit/4*3 {
		r.last = hold
	}
}

// Take takes bytes, at most Limit, all that the caller takes, and waits for them, for
// patience at most.
func (r *Room) Take(ctx context.Context, bytes int64, patience time.Duration) error {
	return r.take(ctx, bytes, nil, patience)
}

// take is Take for a hold, which is nil when it has taken nothing: what it has is not given
// back before the bytes are there.
func (r *Room) take(ctx context.Context, bytes int64, hold *Hold, patience time.Duration) error {
	hint, err := r.ask(ctx, bytes, hold, patience)
	if err != nil || hint == 0 {
		return err
	}
	r.refused.WithLabelValues("full").Inc()
	return &errs.Error{Code: errs.Overloaded, RetryAfter: hint, Message: r.of.full()}
}

// ask takes bytes, or says in how many seconds there may be room for them.
func (r *Room) ask(ctx context.Context, bytes int64, hold *Hold, patience time.Duration) (hint int, err error) {
	class := 0
	if hold != nil {
		class = 1
	}
	r.mu.Lock()
	turn := hold != nil && r.last == hold || len(r.waiting[1]) == 0 && (hold != nil || r.fits(bytes, nil) && r.pass())
	if turn && r.fits(bytes, hold) {
		r.give(bytes, hold)
		r.mu.Unlock()
		return 0, nil
	}
	w := &waiter{hold: hold, bytes: bytes, ready: make(chan struct{})}
	r.waiting[class] = append(r.waiting[class], w)
	r.mu.Unlock()
	began := r.now()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.waited.Add(r.now().Sub(began).Seconds())
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.waiting[class], w)
	if i < 0 { // it was its turn, maybe this moment
		return 0, nil
	}
	hint = min(1+(len(r.waiting[0])+len(r.waiting[1]))/64, maxHint)
	r.waiting[class] = slices.Delete(r.waiting[class], i, i+1)
	r.next() // what waits behind it may be smaller
	return hint, err
}

// next lets in those whose turn it is: of those who hold something all that fit, which is
// the one who has the last quarter when no other does. REQUIRES: r.mu is held.
func (r *Room) next() {
	for i := 0; i < len(r.waiting[1]); {
		if !r.let(1, i) {
			i++
		}
	}
	if len(r.waiting[1]) > 0 {
		return
	}
	for i := 0; i < len(r.waiting[0]); {
		w := r.waiting[0][i]
		if i > 0 && (!r.fits(w.bytes, nil) || !r.pass()) {
			return
		}
		if !r.let(0, i) {
			i++
		}
	}
}

// pass says whether somebody may pass by the first of those who hold nothing and wait; it
// counts that he does. REQUIRES: r.mu is held.
func (r *Room) pass() bool {
	if len(r.waiting[0]) == 0 {
		return true
	}
	first := r.waiting[0][0]
	first.passed++
	return first.passed <= maxPassed
}

// let lets in a waiter when he fits. REQUIRES: r.mu is held.
func (r *Room) let(class, i int) bool {
	w := r.waiting[class][i]
	if !r.fits(w.bytes, w.hold) {
		return false
	}
	r.give(w.bytes, w.hold)
	r.waiting[class] = slices.Delete(r.waiting[class], i, i+1)
	close(w.ready)
	return true
}

// Give gives back what was taken.
func (r *Room) Give(bytes int64) { r.done(bytes, nil) }

func (r *Room) done(bytes int64, hold *Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= bytes
	if hold != nil && r.last == hold {
		r.last = nil
	}
	r.next()
}

// Contended says whether somebody waits.
func (r *Room) Contended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting[0])+len(r.waiting[1]) > 0
}
