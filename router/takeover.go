package router

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

const (
	// maxTakeovers is how many tables' partitions go to the lake at once.
	maxTakeovers = 4
	// takeoverPause is how long a table waits after a failure.
	takeoverPause = 10 * time.Second
)

// takeovers bring partitions that have ended to the lake, beside a keeper's other work:
// the lake may be slow, or away.
type takeovers struct {
	r  *Router
	wg sync.WaitGroup

	mu     sync.Mutex
	under  int
	tables map[millrace.TableID]*takeover
}

// takeover is how far a table is.
type takeover struct {
	running bool
	after   time.Time // of a failure: when it is tried again
}

// begin starts to bring partitions of a table to the lake, one after the other, unless
// that is going on, has failed just now, or there are too many tables at it: then the
// next pass asks again.
func (k *takeovers) begin(ctx context.Context, t *millrace.Table, ps []*millrace.Partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.tables[t.ID]
	if at == nil {
		at = &takeover{}
		k.tables[t.ID] = at
	}
	if at.running || k.under == maxTakeovers || k.r.o.Clock.Now().Before(at.after) {
		return
	}
	at.running = true
	k.under++
	k.wg.Go(func() {
		err := k.run(ctx, ps)
		if err != nil && ctx.Err() == nil {
			k.r.o.Logger.ErrorContext(ctx, "partitions stay, since the lake does not take them over; it is tried again",
				slog.String("table", t.Path.String()), errAttr(err))
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.under--
		at.running = false
		if err != nil {
			at.after = k.r.o.Clock.Now().Add(takeoverPause)
		}
	})
}

func (k *takeovers) run(ctx context.Context, ps []*millrace.Partition) error {
	var failed error // one that cannot end does not keep the others
	for _, p := range ps {
		err := k.r.retire(ctx, p)
		if err != nil && !errs.Is(err, errs.PartitionNotFound) && !errs.Is(err, errs.TableNotFound) {
			failed = errors.Join(failed, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return failed
}

// forget lets go of tables that are not there any more.
func (k *takeovers) forget(there map[millrace.TableID]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, at := range k.tables {
		if !there[id] && !at.running {
			delete(k.tables, id)
		}
	}
}
