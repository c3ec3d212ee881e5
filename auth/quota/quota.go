package quota

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
)

// Limits are what a principal may do; 0 is no limit.
type Limits struct {
	WriteRows  int64 // a second
	WriteBytes int64 // a second
	ReadBytes  int64 // a second
	Streams    int64 // at a time
}

// Clock tells the time, and waits.
type Clock interface {
	Now() time.Time
	// Sleep waits, or returns ctx's error when it ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

// Options are settings and components.
type Options struct {
	// Limits are those of a name as grants have it, user:<subject> or group:<name>, now. It
	// is asked often, and by many at a time.
	Limits     func(name string) Limits
	Clock      Clock
	Registerer prometheus.Registerer
}

// wait is how long a request waits at most before it is refused.
const wait = time.Second

// Quotas keeps the balances.
type Quotas struct {
	o       Options
	refused *prometheus.CounterVec
	waited  prometheus.Counter

	mu       sync.Mutex
	balances map[string]*balances
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

func (l *Limits) of(k kind) int64 {
	return [kinds]int64{l.WriteRows, l.WriteBytes, l.ReadBytes}[k]
}

// balances are those of a name.
type balances struct {
	at      [kinds]time.Time // when left was right
	left    [kinds]float64   // below 0: overdrawn
	streams int64
}

// New makes Quotas.
func New(o Options) *Quotas {
	p := promauto.With(o.Registerer)
	return &Quotas{
		o: o, balances: map[string]*balances{},
		refused: p.NewCounterVec(prometheus.CounterOpts{Name: "millrace_auth_quota_refused_total", Help: "Requests refused since a quota was used up."}, []string{"quota"}),
		waited:  p.NewCounter(prometheus.CounterOpts{Name: "millrace_auth_quota_wait_seconds_total", Help: "Time that requests and streams waited for a quota."}),
	}
}

type streamKey struct{}

// Streaming marks what is done in ctx as a stream's, which waits rather than be refused.
func Streaming(ctx context.Context) context.Context { return context.WithValue(ctx, streamKey{}, true) }

// Write charges rows and bytes that are to be written; errs.QuotaExceeded refuses them.
func (q *Quotas) Write(ctx context.Context, rows int, bytes int64) error {
	return q.take(ctx, [kinds]int64{rowsWritten: int64(rows), bytesWritten: bytes})
}

// Read charges bytes that are to be sent; errs.QuotaExceeded refuses them.
func (q *Quotas) Read(ctx context.Context, bytes int64) error {
	return q.take(ctx, [kinds]int64{bytesRead: bytes})
}

func (q *Quotas) take(ctx context.Context, amounts [kinds]int64) error {
	limited := q.limited(auth.Of(ctx))
	if len(limited) == 0 {
		return nil
	}
	left := wait
	_, patient := ctx.Value(streamKey{}).(bool)
	for {
		need, k := q.try(limited, &amounts)
		if need == 0 {
			return nil
		}
		if !patient && need > left {
			q.refused.WithLabelValues(kindNames[k]).Inc()
			return exceeded(kindNames[k], need)
		}
		left -= need
		q.waited.Add(need.Seconds())
		if err := q.o.Clock.Sleep(ctx, need); err != nil {
			return err
		}
	}
}

// limited is a name with limits.
type limited struct {
	name   string
	limits Limits
}

// limited are the limits that hold for a principal: its own, and those of its groups.
func (q *Quotas) limited(p *auth.Principal) []limited {
	if p == nil || p.MayAll() {
		return nil
	}
	var out []limited
	if l := q.o.Limits(p.Name); l != (Limits{}) {
		out = append(out, limited{p.Name, l})
	}
	for _, g := range p.Groups {
		if l := q.o.Limits(g); l != (Limits{}) {
			out = append(out, limited{g, l})
		}
	}
	return out
}

// try charges the amounts when none of the balances is overdrawn. Else it says after which
// time that may be so, and which is.
func (q *Quotas) try(of []limited, amounts *[kinds]int64) (need time.Duration, which kind) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.o.Clock.Now()
	for _, l := range of {
		b := q.of(l.name)
		for k := range kinds {
			limit := float64(l.limits.of(k))
			if limit == 0 || amounts[k] == 0 {
				continue
			}
			b.fill(k, limit, now)
			if b.left[k] <= 0 {
				// A little more, so that it is above nothing then.
				if d := time.Duration(math.Ceil(-b.left[k]/limit*float64(time.Second))) + time.Millisecond; d > need {
					need, which = d, k
				}
			}
		}
	}
	if need > 0 {
		return need, which
	}
	for _, l := range of {
		b := q.of(l.name)
		for k := range kinds {
			if l.limits.of(k) > 0 {
				b.left[k] -= float64(amounts[k])
			}
		}
	}
	return 0, 0
}

// fill gives a balance what it has gained since it was looked at.
func (b *balances) fill(k kind, limit float64, now time.Time) {
	if b.at[k].IsZero() {
		b.left[k], b.at[k] = limit, now
		return
	}
	if since := now.Sub(b.at[k]).Seconds(); since > 0 {
		b.left[k], b.at[k] = min(limit, b.left[k]+limit*since), now
	}
}

// of are the balances of a name that has limits.
func (q *Quotas) of(name string) *balances {
	b := q.balances[name]
	if b == nil {
		b = &balances{}
		q.balances[name] = b
	}
	return b
}

// Stream counts a stream until it is closed; errs.QuotaExceeded when the principal has as
// many as it may.
func (q *Quotas) Stream(ctx context.Context) (closed func(), err error) {
	limited := q.limited(auth.Of(ctx))
	q.mu.Lock()
	defer q.mu.Unlock()
	var counted []*balances
	for _, l := range limited {
		if l.limits.Streams == 0 {
			continue
		}
		b := q.of(l.name)
		if b.streams >= l.limits.Streams {
			q.refused.WithLabelValues(streamsName).Inc()
			return nil, errs.New(errs.QuotaExceeded, "%s has %d streams open, and may have no more: close one, or ask for a larger quota of %s", l.name, b.streams, streamsName)
		}
		counted = append(counted, b)
	}
	for _, b := range counted {
		b.streams++
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			for _, b := range counted {
				b.streams--
			}
		})
	}, nil
}

// exceeded refuses for want of a quota.
func exceeded(quota string, need time.Duration) error {
	s := int(math.Ceil(need.Seconds()))
	return &errs.Error{
		Code: errs.QuotaExceeded, RetryAfter: s,
		Message: "the quota " + quota + " is used up for another " + (time.Duration(s) * time.Second).String(),
	}
}
