package token

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/errs"
)

// ring is the keys that a source gave last, which it reads again when they are asked for
// and it is time.
type ring struct {
	source  Source
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	set     atomic.Pointer[set] // nil until the source has given one

	life context.Context //nolint:containedctx // of reads, which outlive the call that began them
	end  context.CancelFunc

	mu      sync.Mutex
	tried   time.Time     // when it was read last, with or without success
	reading chan struct{} // closed when the read under way ends; nil: none is
	why     string        // the last read failed; ""
}

func newRing(ctx context.Context, source Source, now func() time.Time, log *slog.Logger, m *metrics) *ring {
	r := &ring{source: source, now: now, log: log, metrics: m}
	r.life, r.end = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// close ends the read under way.
func (r *ring) close() {
	r.end()
	r.mu.Lock()
	reading := r.reading
	r.mu.Unlock()
	if reading != nil {
		<-reading
	}
}

// errNoKeys is the answer to everyone while there are no keys.
var errNoKeys = errs.New(errs.Unavailable, "the keys that tokens are checked with are not there at the moment; try again in a while")

// current are the keys that are good now; nil: there are none.
func (r *ring) current(ctx context.Context) *set {
	s, now := r.set.Load(), r.now()
	if s == nil || now.Sub(s.at) >= keysLife {
		r.refresh(ctx, true)
		if s = r.set.Load(); s == nil || r.now().Sub(s.at) >= keysLife {
			return nil
		}
		return s
	}
	if now.Sub(s.at) >= r.source.interval {
		r.refresh(ctx, false)
	}
	return s
}

// find is the key of a name, for which the source is asked again.
func (r *ring) find(ctx context.Context, kid string) (*key, error) {
	s := r.current(ctx)
	if s == nil {
		return nil, errNoKeys
	}
	if k := s.find(kid); k != nil {
		return k, nil
	}
	r.refresh(ctx, true)
	if k := r.set.Load().find(kid); k != nil {
		return k, nil
	}
	return nil, unknownKey
}

// refresh reads the source, unless that was tried a moment ago, and may wait for it.
func (r *ring) refresh(ctx context.Context, wait bool) {
	r.mu.Lock()
	if r.reading == nil {
		if now := r.now(); r.tried.IsZero() || now.Sub(r.tried) >= r.source.pause {
			r.tried = now
			r.reading = make(chan struct{})
			go r.read(r.reading)
		}
	}
	reading := r.reading
	r.mu.Unlock()
	if reading == nil || !wait {
		return
	}
	select {
	case <-reading:
	case <-ctx.Done():
	}
}

func (r *ring) read(done chan struct{}) {
	ctx, cancel := context.WithTimeout(r.life, readTime)
	defer cancel()
	old := r.set.Load()
	mark := ""
	if old != nil {
		mark = old.mark
	}
	s, err := r.source.read(ctx, mark)
	if errors.Is(err, errSame) {
		s, err = &set{keys: old.keys, mark: old.mark}, nil
	}
	if err == nil {
		s.at = r.now()
		s.keep(old)
		r.set.Store(s)
	}
	r.tell(ctx, old, s, err)
	r.mu.Lock()
	r.reading = nil
	r.why = ""
	if err != nil {
		r.why = err.Error()
	}
	r.mu.Unlock()
	close(done)
}

// keep puts the keys of old in the place of those that are the same, so that a key is one
// as long as it is there.
func (s *set) keep(old *set) {
	if old == nil {
		return
	}
	for kid, k := range s.keys {
		if o := old.keys[kid]; o != nil && o.same(k) {
			s.keys[kid] = o
		}
	}
}

// tell logs and counts how a read went; what goes on as before is not logged again.
func (r *ring) tell(ctx context.Context, old, s *set, err error) {
	if err != nil {
		r.metrics.reads.WithLabelValues("failed").Inc()
		if r.life.Err() == nil && r.why != err.Error() {
			r.log.WarnContext(ctx, "the keys of tokens cannot be read", slog.String("from", r.source.what), slog.Any("err", err))
		}
		return
	}
	r.metrics.reads.WithLabelValues("ok").Inc()
	r.metrics.keys.Set(float64(len(s.keys)))
	added, gone := s.without(old), old.without(s)
	if len(added)+len(gone) > 0 || r.why != "" {
		r.log.InfoContext(ctx, "keys of tokens read", slog.String("from", r.source.what), slog.Int("keys", len(s.keys)), slog.Any("added", added), slog.Any("gone", gone))
		for _, line := range s.ignored {
			r.log.DebugContext(ctx, "a key is not for tokens", slog.String("why", line))
		}
	}
}

// without lists the names of the keys that o has not.
func (s *set) without(o *set) []string {
	var names []string
	if s == nil {
		return nil
	}
	for kid, k := range s.keys {
		if o == nil || o.keys[kid] == nil || !o.keys[kid].same(k) {
			names = append(names, kid)
		}
	}
	return names
}
