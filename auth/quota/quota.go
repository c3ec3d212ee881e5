package quota

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
)

// Clock tells the time.
type Clock interface{ Now() time.Time }

// Options are settings and components.
type Options struct {
	// Quota is the quota of user:<subject>, of group:<name> or of millrace.DefaultPrincipal,
	// now; nil: there is none. It is asked often, and by many at a time.
	Quota func(name string) *millrace.Quota
	Clock Clock
	// Sleep waits, or returns ctx's error when it ends first; nil: by a timer.
	Sleep      func(ctx context.Context, d time.Duration) error
	Registerer prometheus.Registerer
}

// patience is how long a request waits at most before it is refused.
const patience = time.Second

// Quotas keeps the balances.
type Quotas struct {
	o       Options
	refused *prometheus.CounterVec
	waited  prometheus.Counter

	mu       sync.Mutex
	balances map[string]*balances
	sweepAt  int // how many balances there are when those that say nothing are thrown away
	swept    time.Time
}

// kind is what is limited by the second.
type kind int

const (
	rowsWritten kind = iota
	bytesWritten
	bytesRead
	kinds
)

var kindNames = [kinds]string{"write_rows_per_s", "write_bytes_per_s", "read_bytes_per_s"}

const streamsName = "streams"

func limitOf(l *millrace.Limits, k kind) int64 {
	return [kinds]int64{l.WriteRows, l.WriteBytes, l.ReadBytes}[k]
}

// New makes Quotas.
func New(o Options) *Quotas {
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	p := promauto.With(o.Registerer)
	return &Quotas{
		o: o, balances: map[string]*balances{}, sweepAt: fewBalances,
		refused: p.NewCounterVec(prometheus.CounterOpts{Name: "millrace_auth_quota_refused_total", Help: "Requests refused since a quota was used up."}, []string{"quota"}),
		waited:  p.NewCounter(prometheus.CounterOpts{Name: "millrace_auth_quota_wait_seconds_total", Help: "Time that requests and streams waited for a quota."}),
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type streamKey struct{}

// Streaming marks what is done in ctx as a stream's, which is slowed down and not refused.
// Pausing is called before it waits, each time; nil: there is nothing to do.
func Streaming(ctx context.Context, pausing func()) context.Context {
	if pausing == nil {
		pausing = func() {}
	}
	return context.WithValue(ctx, streamKey{}, pausing)
}

// streaming is what to call before waiting in a stream's ctx; nil when it is none.
func streaming(ctx context.Context) (pausing func()) {
	pausing, _ = ctx.Value(streamKey{}).(func())
	return pausing
}

// Write charges rows and bytes that are to be written. A request waits for that, a second
// at most, or is refused with errs.QuotaExceeded; a stream has waited by MayWrite.
func (q *Quotas) Write(ctx context.Context, rows int, bytes int64) error {
	of := q.limited(auth.Of(ctx))
	if len(of) == 0 {
		return nil
	}
	amounts := [kinds]int64{rowsWritten: int64(rows), bytesWritten: bytes}
	if streaming(ctx) != nil {
		q.take(of, &amounts)
		return nil
	}
	ask := [kinds]bool{rowsWritten: rows > 0, bytesWritten: bytes > 0}
	_, err := q.await(ctx, of, ask, &amounts, patience, true)
	return err
}

// MayWrite waits until the caller may write, a second at most, or refuses with
// errs.QuotaExceeded. It charges nothing: who asks before he reads what is to be written
// waits, or is refused, without holding it.
func (q *Quotas) MayWrite(ctx context.Context) error {
	_, err := q.may(ctx, [kinds]bool{rowsWritten: true, bytesWritten: true}, patience, true)
	return err
}

// WaitWrite is MayWrite for a stream that has begun: it waits for most, and says whether
// the caller may write then.
func (q *Quotas) WaitWrite(ctx context.Context, most time.Duration) (may bool, err error) {
	return q.may(ctx, [kinds]bool{rowsWritten: true, bytesWritten: true}, most, false)
}

// MayRead waits until the caller may read, a second at most, or refuses with
// errs.QuotaExceeded.
func (q *Quotas) MayRead(ctx context.Context) error {
	_, err := q.may(ctx, [kinds]bool{bytesRead: true}, patience, true)
	return err
}

// Read charges bytes that were read. A stream then waits until the caller may read more,
// for most, and is told whether he may; a request that has begun always may.
func (q *Quotas) Read(ctx context.Context, bytes int64, most time.Duration) (may bool, err error) {
	of := q.limited(auth.Of(ctx))
	if len(of) == 0 {
		return true, nil
	}
	if bytes > 0 {
		q.take(of, &[kinds]int64{bytesRead: bytes})
	}
	if streaming(ctx) == nil {
		return true, nil
	}
	return q.await(ctx, of, [kinds]bool{bytesRead: true}, nil, most, false)
}

func (q *Quotas) may(ctx context.Context, ask [kinds]bool, most time.Duration, refuse bool) (bool, error) {
	of := q.limited(auth.Of(ctx))
	if len(of) == 0 {
		return true, nil
	}
	return q.await(ctx, of, ask, nil, most, refuse)
}

// await waits until none of the balances that are asked for is overdrawn, for most, and
// charges the amounts then. When that takes longer it says so, or refuses.
func (q *Quotas) await(ctx context.Context, of []limited, ask [kinds]bool, amounts *[kinds]int64, most time.Duration, refuse bool) (may bool, err error) {
	for {
		w := q.try(of, ask, amounts)
		if w.need == 0 {
			return true, nil
		}
		if w.need > most && refuse {
			q.refused.WithLabelValues(kindNames[w.kind]).Inc()
			return false, w.exceeded()
		}
		pause := min(w.need, most)
		if pause <= 0 {
			return false, nil
		}
		most -= pause
		q.waited.Add(pause.Seconds())
		if pausing := streaming(ctx); pausing != nil {
			pausing()
		}
		if err := q.o.Sleep(ctx, pause); err != nil {
			return false, err
		}
	}
}

// limited is a name with limits.
type limited struct {
	name   string
	limits millrace.Limits
}

// limited are the limits that hold for a principal: its own, and those of its groups; when
// it has neither, those of everybody who has none.
func (q *Quotas) limited(p *auth.Principal) []limited {
	if p == nil || p.MayAll() {
		return nil
	}
	var out []limited
	has := false
	add := func(name string, l *millrace.Quota) {
		has = has || l != nil
		if l != nil && l.Limits != (millrace.Limits{}) {
			out = append(out, limited{name, l.Limits})
		}
	}
	add(p.Name, q.o.Quota(p.Name))
	for _, g := range p.Groups {
		add(g, q.o.Quota(g))
	}
	if !has {
		add(p.Name, q.o.Quota(millrace.DefaultPrincipal))
	}
	return out
}

// waiting says how long it takes until a balance is above nothing, and which.
type waiting struct {
	need time.Duration
	kind kind
	name string
}

// exceeded refuses for want of a quota.
func (w *waiting) exceeded() error {
	s := int(min(math.Ceil(w.need.Seconds()), math.MaxInt32))
	return &errs.Error{
		Code: errs.QuotaExceeded, RetryAfter: s,
		Message: fmt.Sprintf("the quota %s of %s is used up for another %s", kindNames[w.kind], w.name, time.Duration(s)*time.Second),
	}
}

// try charges the amounts, if there are some, when none of the balances that are asked for
// is overdrawn. Else it says after which time that may be so, and which is.
func (q *Quotas) try(of []limited, ask [kinds]bool, amounts *[kinds]int64) (w waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.o.Clock.Now()
	for _, l := range of {
		b := q.of(l.name, now)
		for k := range kinds {
			limit := float64(limitOf(&l.limits, k))
			if limit == 0 || !ask[k] {
				continue
			}
			b.fill(k, limit, now)
			if b.left[k] <= 0 {
				// A little more, so that it is above nothing then.
				if d := seconds(-b.left[k]/limit) + time.Millisecond; d > w.need {
					w = waiting{d, k, l.name}
				}
			}
		}
	}
	if w.need == 0 && amounts != nil {
		q.takeLocked(of, amounts, now)
	}
	return w
}

// take charges amounts, whatever is left.
func (q *Quotas) take(of []limited, amounts *[kinds]int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.takeLocked(of, amounts, q.o.Clock.Now())
}

// REQUIRES: q.mu is held.
func (q *Quotas) takeLocked(of []limited, amounts *[kinds]int64, now time.Time) {
	for _, l := range of {
		b := q.of(l.name, now)
		for k := range kinds {
			if limit := float64(limitOf(&l.limits, k)); limit > 0 && amounts[k] > 0 {
				b.fill(k, limit, now)
				b.left[k] -= float64(amounts[k])
				b.full = maxTime(b.full, now.Add(seconds((limit-b.left[k])/limit)))
			}
		}
	}
}

// seconds is a duration, at most 30 years.
func seconds(s float64) time.Duration {
	return time.Duration(math.Ceil(min(s, 1e9) * float64(time.Second)))
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
