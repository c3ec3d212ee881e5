package quota

import (
	"time"

	millrace "github.com/millrace/millrace"
)

const (
	// fewBalances are kept without a look at whether they say anything.
	fewBalances = 1024
	// maxBalances is how many are kept. Callers beyond that share one.
	maxBalances = 100_000
	// sweepPause is between two looks at so many, which take a while.
	sweepPause = time.Second
)

// balances are those of a name.
type balances struct {
	at      [kinds]time.Time // when left was right
	left    [kinds]float64   // below 0: overdrawn
	full    time.Time        // from then on they are as those of a name that did nothing
	streams int64
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

// of are the balances of a name that has limits. REQUIRES: q.mu is held.
func (q *Quotas) of(name string, now time.Time) *balances {
	if b := q.balances[name]; b != nil {
		return b
	}
	if n := len(q.balances); n >= q.sweepAt && (n < maxBalances || now.Sub(q.swept).Abs() >= sweepPause) {
		q.swept = now
		for other, b := range q.balances {
			if b.streams == 0 && !b.full.After(now) {
				delete(q.balances, other)
			}
		}
		q.sweepAt = min(max(fewBalances, 2*len(q.balances)), maxBalances)
	}
	if len(q.balances) >= maxBalances {
		if b := q.balances[millrace.DefaultPrincipal]; b != nil {
			return b
		}
		name = millrace.DefaultPrincipal
	}
	b := &balances{}
	q.balances[name] = b
	return b
}
