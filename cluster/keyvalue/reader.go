package keyvalue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Every process that answers from its copy stands in the list of readers: a key
// prefixReader+process, written by a commit as all others. It shows every renewEvery that it
// lives, by a message of its own subject that must follow its last one, and may answer
// for leaseTTL from when it sent the last that was acknowledged. Who takes it out of the list,
// since it has not shown for longer, purges that message first: then the next one of the
// process is refused, and it begins anew.
const (
	prefixReader = "\x00reader/"

	leaseTTL   = 10 * time.Second
	renewEvery = 3 * time.Second
	// expireAfter is how long a message must have stood unchanged, on one's own clock.
	expireAfter = leaseTTL + time.Second
	// askEvery is how long answers are waited for before all are asked again.
	askEvery = 200 * time.Millisecond
)

// reader is what a Store does as a reader of the catalog, and with other readers.
type reader struct {
	incarnation [16]byte
	settled     atomic.Uint64
	deadline    atomic.Int64 // on the boot clock: until when the copy may be answered from

	mu struct {
		sync.Mutex
		followers int
		holding   bool              // hold runs
		changed   chan struct{}     // closed when the deadline moves, and when hold ends
		pending   map[string]uint64 // who waits, by inbox, for which revision to be seen
		settles   *settling         // the next run
		running   bool
	}
	renew chan struct{}   // asks for a renewal
	ctx   context.Context // of hold; leave ends it
	stop  context.CancelFunc
	last  uint64 // sequence of our last message; of the goroutine hold
}

func (r *reader) init(s *Store) {
	r.mu.changed, r.mu.pending = make(chan struct{}), map[string]uint64{}
	r.renew = make(chan struct{}, 1)
	r.ctx, r.stop = context.WithCancel(s.ctx)
	s.feed.OnSeen(func() { r.answer(s) })
}

// begin makes this process a reader, as long as it has followers: end ends that.
func (r *reader) begin(s *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.followers++
	if r.mu.holding || r.ctx.Err() != nil {
		return
	}
	r.mu.holding = true
	s.tasks.Go(func() { r.hold(s) })
}

func (r *reader) end() {
	r.mu.Lock()
	r.mu.followers--
	r.mu.Unlock()
	r.renewNow()
}

// followed says whether there are followers.
func (r *reader) followed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.followers > 0
}
