package tier

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A round works in the background: while clients are at work all rounds together take
// about a tenth of the processors, by sleeping in between. When clients are idle, from when
// on a table is late (beyond twice its freshness) or when somebody waits for the round,
// they do not sleep.
const (
	share = 0.1
	// lookEvery is how often it is looked whether clients are at work, calmAfter how
	// long after their last work they are idle.
	lookEvery = 20 * time.Millisecond
	calmAfter = 250 * time.Millisecond
	// longestRest bounds one sleep.
	longestRest = 2 * time.Second
)

// pacer knows whether clients are at work, and how many rounds there are.
type pacer struct {
	clock Clock

	mu     sync.Mutex
	rounds int
	count  int64
	looked time.Time
	calm   time.Time // from when on clients are idle
}

// busy says whether clients are at work.
// REQUIRES: p.mu held.
func (p *pacer) busy(src Source, now time.Time) bool {
	if now.Sub(p.looked) >= lookEvery {
		n := src.Foreground()
		if n != p.count && !p.looked.IsZero() {
			p.calm = now.Add(calmAfter)
		}
		p.count, p.looked = n, now
	}
	return now.Before(p.calm)
}

// rest is how one round gives way.
type rest struct {
	p     *pacer
	src   Source
	late  time.Time // from when on it does not; zero: it always does
	since time.Time // when the work that is not paid for began
}

// begin begins a round.
func (p *pacer) begin(src Source, late time.Time) rest {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rounds++
	return rest{p: p, src: src, late: late, since: p.clock.Now()}
}

func (r *rest) end() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.rounds--
}

// pause sleeps as long as the work since the last one asks for.
func (r *rest) pause(ctx context.Context) error {
	now := r.p.clock.Now()
	r.p.mu.Lock()
	busy, rounds := r.p.busy(r.src, now), r.p.rounds
	r.p.mu.Unlock()
	longest := longestRest
	if !r.late.IsZero() {
		longest = min(longest, r.late.Sub(now))
	}
	if busy && longest > 0 {
		mine := min(1, share*float64(runtime.GOMAXPROCS(0))/float64(rounds))
		worked := float64(now.Sub(r.since))
		sleep(ctx, min(time.Duration(worked*(1/mine-1)), longest))
		now = r.p.clock.Now()
	}
	r.since = now
	return context.Cause(ctx)
}
