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

// part is a table, or a partition of it.
type part struct {
	table     millrace.TableID
	partition millrace.PartitionID
}

// forget lets go of the buckets of what is not there any more: it is asked once of each
// table and partition, since to find that something is gone takes a question to NATS.
func (t *teller) forget(there func(part) bool) {
	t.mu.Lock()
	parts := map[part]bool{}
	for id := range t.all {
		parts[part{id.Table, id.Partition}] = false
	}
	t.mu.Unlock()
	for p := range parts {
		parts[p] = there(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := func(id millrace.BucketID, _ millrace.Offset) bool {
		is, known := parts[part{id.Table, id.Partition}]
		return known && !is
	}
	maps.DeleteFunc(t.all, gone)
	maps.DeleteFunc(t.news, gone)
}

// there says whether the workers have rows of a table or partition.
func (t *teller) there(ctx context.Context) func(part) bool {
	known := t.s.known(ctx)
	return func(p part) bool { return known(p.table, 0) && (p.partition == 0 || known(p.table, p.partition)) }
}

// pass tells what is new, or everything; what could not be told is new still.
func (t *teller) pass(ctx context.Context, r *router.Router, everything bool) {
	if everything {
		t.forget(t.there(ctx))
	}
	t.mu.Lock()
	say := t.news
	if everything {
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
