package server

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/tier"
)

const (
	// tellEvery is how soon the owners of shards are told how far the lake is, and
	// retellEvery how soon again who has begun to own one since.
	tellEvery   = 500 * time.Millisecond
	retellEvery = time.Minute
	tellTime    = 10 * time.Second
)

// teller tells the owners of shards, wherever they are, how far their buckets are in the
// lake. It holds an offset for each bucket that is there.
type teller struct {
	s   *Server
	mu  sync.Mutex
	all map[millrace.BucketID]millrace.Offset
	// news are those that changed since the owners were told last.
	news map[millrace.BucketID]millrace.Offset
}

var _ tier.Shard = (*teller)(nil)

func newTeller(s *Server) *teller {
	return &teller{s: s, all: map[millrace.BucketID]millrace.Offset{}, news: map[millrace.BucketID]millrace.Offset{}}
}

// Tiered implements tier.Shard: the owners are told soon.
func (t *teller) Tiered(offsets map[millrace.BucketID]millrace.Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.all, offsets)
	maps.Copy(t.news, offsets)
}

// run tells until ctx ends.
func (t *teller) run(ctx context.Context, r *router.Router) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	last := t.s.clock.Boot()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := t.s.clock.Boot()
		again := now-last >= retellEvery
		if again {
			last = now
		}
		t.pass(ctx, r, again)
	}
}

// pass tells what is new, or everything; what could not be told is new still.
func (t *teller) pass(ctx context.Context, r *router.Router, everything bool) {
	t.mu.Lock()
	say := t.news
	if everything {
		for id := range t.all { // of tables that are gone nothing is said any more
			if _, err := t.s.catalog.TableByID(ctx, id.Table); err != nil {
				delete(t.all, id)
			}
		}
		say = maps.Clone(t.all)
	}
	t.news = map[millrace.BucketID]millrace.Offset{}
	t.mu.Unlock()
	if len(say) == 0 {
		return
	}
	tctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	err := r.Tiered(tctx, say)
	if err == nil || ctx.Err() != nil {
		return
	}
	t.s.log.WarnContext(ctx, "owners not told how far the lake is; their logs keep more than they need", slog.Any("err", err))
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, at := range say {
		if t.news[id] < at {
			t.news[id] = at
		}
	}
}

// runTeller tells the owners as long as the server runs.
func (s *Server) runTeller(ctx context.Context) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.member.teller.run(run, s.router)
	}()
	s.onStop("teller", func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}
