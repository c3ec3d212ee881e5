package quota

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
)

// streamRetry is after how many seconds it is worth asking for a stream again: others may
// have ended.
const streamRetry = 5

// Stream counts a stream until it is closed; errs.QuotaExceeded when the caller has as many
// as he may.
func (q *Quotas) Stream(ctx context.Context) (closed func(), err error) {
	of := q.limited(auth.Of(ctx))
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.o.Clock.Now()
	var counted []*balances
	for _, l := range of {
		if l.limits.Streams == 0 {
			continue
		}
		b := q.of(l.name, now)
		if b.streams >= l.limits.Streams {
			for _, b := range counted {
				b.streams--
			}
			q.refused.WithLabelValues(streamsName).Inc()
			return nil, &errs.Error{
				Code: errs.QuotaExceeded, RetryAfter: streamRetry,
				Message: fmt.Sprintf("%s has %d streams open, and may have no more: close one, or ask for a larger quota of %s", l.name, b.streams, streamsName),
			}
		}
		b.streams++ // at once, so that it is not swept away
		counted = append(counted, b)
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
