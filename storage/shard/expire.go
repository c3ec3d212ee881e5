package shard

import (
	"context"
	"math"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
)

// How often the flush loop looks for expired records: a part of the shortest time to
// live there is, within bounds. A look costs about 50 ns a bucket.
const (
	expireSoonest = time.Second
	expireLatest  = time.Minute
	expirePart    = 64
)

// expiry is what a shard knows of the time its records live, and where it stands with
// ending them. The flush loop finds what has expired; the loop logs it, so that a
// log's start never goes back (entry bucket-trim); the next checkpoint after
// Options.KeepExpired removes it (release.go).
type expiry struct {
	// told are the newest descriptors that the catalog or a write showed since the
	// start. Of other tables nothing expires: what a manifest says of them may have
	// been altered since.
	mu   sync.Mutex
	told map[millrace.TableID]*millrace.Table

	soon  chan struct{}      // asks the flush loop to look soon; capacity 1
	ask   chan chan *pending // asks it to look now
	trims chan *pending      // what it found, for the loop; capacity 1

	// The flush loop's own.
	under     *pending // handed to the loop last
	every     time.Duration
	releaseAt int64 // when the first bucket may let go of something (µs)
	released  []releasedFile
}

func (e *expiry) init() {
	e.soon = make(chan struct{}, 1)
	e.ask = make(chan chan *pending)
	e.trims = make(chan *pending, 1)
	e.every, e.releaseAt = expireSoonest, math.MaxInt64
}

// tell notes a descriptor, unless a newer one is known.
func (e *expiry) tell(d *millrace.Table) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.told[d.ID]
	if known == d || known != nil && known.Version >= d.Version {
		return
	}
	if e.told == nil {
		e.told = map[millrace.TableID]*millrace.Table{}
	}
	e.told[d.ID] = d
	if known == nil || known.Options.LogTTL != d.Options.LogTTL || inLake(known) != inLake(d) {
		wake(e.soon)
	}
}

func (e *expiry) forget(id millrace.TableID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.told, id)
}

// inLake says whether rows of a table leave the log only when they are in the lake.
func inLake(d *millrace.Table) bool { return d.Options.Lake != nil && d.Options.Lake.Enabled }

// terms are on which the records of a bucket expire.
type terms struct {
	ttl   time.Duration
	ends  bool            // false: nothing is known, or they live for ever
	limit millrace.Offset // what stands beyond stays
}

func (e *expiry) terms(b *bucketState) terms {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.told[b.id.Table]
	if d == nil {
		return terms{}
	}
	ttl, forever := d.Options.Retention()
	limit := bucket.NoLimit
	if inLake(d) {
		limit = millrace.Offset(b.tiered.Load())
	}
	return terms{ttl, !forever, limit}
}

// Tiered tells the shard how far the logs of buckets are in the lake: of tables that
// are kept there nothing else expires. What was told last counts, since a lake may lose
// what it had; buckets of other shards, and those without rows, are passed over.
func (s *Shard) Tiered(next map[millrace.BucketID]millrace.Offset) {
	moved := false
	for id, at := range next {
		b := s.bucket(id)
		if b == nil {
			continue
		}
		moved = b.tiered.Swap(int64(at)) < int64(at) || moved
	}
	if moved {
		wake(s.expiry.soon)
	}
}

// Tell shows the shard tables as they are in the catalog, at the start and after each
// ALTER: it goes by what they say of how long records are kept.
func (s *Shard) Tell(tables ...*millrace.Table) {
	for _, t := range tables {
		s.expiry.tell(t)
	}
}

// Expire ends the records that are older than their table's time to live, now, and
// returns when readers no longer see them. The shard does so by itself; their bytes go
// later, see Options.KeepExpired.
func (s *Shard) Expire(ctx context.Context) error {
	if err := s.Err(); err != nil {
		return err
	}
	asked := make(chan *pending, 1)
	select {
	case s.expiry.ask <- asked:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.flushDone:
		return s.stoppedError()
	case <-s.kv.Dead():
		return s.Err()
	}
	p := <-asked
	if p == nil {
		return nil
	}
	_, err := p.wait(ctx)
	return err
}

// oldest is what is known of the oldest batch that readers see of a bucket.
type oldest struct {
	start  millrace.Offset // of the log then
	micros int64           // of its last record; it may have grown since, by merging
}

// lookForExpired finds what has expired and hands it to the loop; nil when nothing
// has. While the loop has the finding before, there is no other.
func (s *Shard) lookForExpired() *pending {
	e := &s.expiry
	now := s.o.Clock.Now()
	shortest, oldestMicros := expireLatest*expirePart, now.UnixMicro()
	e.releaseAt = math.MaxInt64
	var found []trim
	for _, b := range s.allBuckets() {
		v := b.log.View()
		if at := v.Passing(); at != 0 {
			e.releaseAt = min(e.releaseAt, at+s.o.KeepExpired.Microseconds())
		}
		if v.Start == v.End {
			continue
		}
		before := int64(math.MinInt64)
		on := e.terms(b)
		if on.ends {
			shortest = min(shortest, on.ttl)
			before = now.Add(-on.ttl).UnixMicro()
		}
		if start := b.expired(v, before, on.limit); start > v.Start && len(found) < maxTrims {
			found = append(found, trim{b.id, start})
		}
		if b.oldest.start == v.Start && b.oldest.micros != 0 {
			oldestMicros = min(oldestMicros, b.oldest.micros)
		}
	}
	e.every = max(shortest/expirePart, expireSoonest)
	s.o.Metrics.oldestRecord(s.o.ID, now.Sub(time.UnixMicro(oldestMicros)))
	if e.under != nil && !e.under.answered() {
		return e.under
	}
	if len(found) == 0 {
		return nil
	}
	if len(found) == maxTrims {
		e.every = expireSoonest // there may be more
	}
	return e.hand(s, &trimEntry{micros: now.UnixMicro(), trims: found})
}

// hand gives a finding to the loop, which has taken the one before unless it ended.
func (e *expiry) hand(s *Shard, found *trimEntry) *pending {
	p := &pending{trim: found, shard: s, room: func() {}, done: make(chan struct{})}
	select {
	case e.trims <- p:
		e.under = p
		return p
	default:
		return nil
	}
}

// expired is where the bucket's log would begin without what is older than a time (µs)
// and within a limit. It looks into the log only when something may be.
func (b *bucketState) expired(v *bucket.View, before int64, limit millrace.Offset) millrace.Offset {
	if b.oldest.start == v.Start && b.oldest.micros >= before && b.oldest.micros != 0 {
		return v.Start
	}
	start, micros := v.Expired(before, limit)
	if start == v.Start {
		b.oldest = oldest{start, micros}
	}
	return start
}

// takeTrims adds a finding of the flush loop to a group.
func (s *Shard) takeTrims(g *group, p *pending) {
	g.trims = append(g.trims, p.trim)
	g.answers = append(g.answers, answer{to: p})
}

// trimAll moves the starts of logs, and returns how many records they passed. Buckets
// that were dropped meanwhile are left out.
func (s *Shard) trimAll(e *trimEntry) int64 {
	var n int64
	for _, t := range e.trims {
		if b := s.bucket(t.bucket); b != nil {
			n += b.log.Trim(t.start, e.micros)
		}
	}
	return n
}

// sooner makes the next look come soon, unless it does already.
func (e *expiry) sooner(t *time.Timer) {
	if e.every > expireSoonest {
		e.every = expireSoonest
		t.Reset(expireSoonest)
	}
}
