package shard

import (
	"cmp"
	"context"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/segment"
)

// Log is a bucket's log and its view as of now; nil when nothing was ever written
// to the bucket: its log is empty and begins at 0.
func (s *Shard) Log(id millrace.BucketID) (*bucket.Log, *bucket.View, error) {
	b := s.bucket(id)
	var v *bucket.View
	if b != nil {
		v = b.log.View()
	}
	// Only now: what was seen before is of a time when the shard still answered.
	if err := s.refusal(); err != nil || b == nil {
		return nil, nil, err
	}
	return b.log, v, nil
}

// Schemas finds the schemas of a table, for reading what is stored.
func (s *Shard) Schemas(id millrace.TableID) segment.Schemas {
	t := s.knownTable(id)
	if t == nil {
		return func(millrace.SchemaID) *millrace.Schema { return nil }
	}
	return t.schema
}

// AllSchemas are the schemas of a table that rows here are written with.
func (s *Shard) AllSchemas(id millrace.TableID) []*millrace.Schema {
	t := s.knownTable(id)
	if t == nil {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return values(t.schemas)
}

// lookupRows is how many rows a lookup reads before it looks whether it still has to.
const lookupRows = 1024

// NewestSchema is the newest schema that rows of a table are written with here; nil
// when there are none.
func (s *Shard) NewestSchema(id millrace.TableID) *millrace.Schema {
	t := s.knownTable(id)
	if t == nil {
		return nil
	}
	return t.newest().Schema
}

// Lookup reads the current rows with the given primary keys (row.AppendKey): a
// compact row each, nil where there is none.
func (s *Shard) Lookup(ctx context.Context, id millrace.BucketID, primaryKeys [][]byte) ([][]byte, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	if !s.reads.enter() {
		return nil, s.stoppedError()
	}
	defer s.reads.leave()
	out := make([][]byte, len(primaryKeys))
	size := 0
	for _, k := range primaryKeys {
		size += kv.RowPrefixLen + len(k)
	}
	arena, keys := make([]byte, 0, size), make([][]byte, len(primaryKeys))
	for i, k := range primaryKeys {
		at := len(arena)
		arena = kv.AppendRowKey(arena, id, k)
		keys[i] = arena[at:]
	}
	for at := 0; at < len(keys); at += lookupRows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := min(at+lookupRows, len(keys))
		if err := s.kv.Rows(keys[at:to], out[at:to]); err != nil {
			return nil, err
		}
	}
	if err := s.refusal(); err != nil {
		return nil, err
	}
	return out, nil
}

// Rows is the number of rows of keyed state in a bucket.
func (s *Shard) Rows(id millrace.BucketID) (int64, error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	if !s.reads.enter() {
		return 0, s.stoppedError()
	}
	defer s.reads.leave()
	m, err := s.kv.Meta(id)
	return m.Rows, cmp.Or(err, s.refusal())
}

// Status is how a shard stands.
type Status struct {
	ID            millrace.ShardID
	Epoch         millrace.Epoch
	LSN           millrace.LSN // of the last record applied
	CheckpointLSN millrace.LSN
	Buckets       int
	Err           error // why it serves nothing; nil when it does
	Trouble       error // see Shard.Trouble
}

// Status tells how the shard stands.
func (s *Shard) Status() Status {
	st := Status{ID: s.o.ID, Err: s.Err(), Trouble: s.Trouble(), CheckpointLSN: millrace.LSN(s.checkpointed.Load())}
	if at := s.applied.Load(); at != nil {
		st.Epoch, st.LSN = at.tail.Epoch, at.lsn
	}
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	st.Buckets = len(s.buckets)
	return st
}

// Subscription tells its holder that some of its buckets may have new records.
type Subscription struct {
	// C receives after a change; several changes may give one receive.
	C    chan struct{}
	of   *subscribers
	ids  []millrace.BucketID
	once sync.Once
}

// subscribers are those who wait for changes, by bucket.
type subscribers struct {
	mu       sync.Mutex
	byBucket map[millrace.BucketID]map[*Subscription]struct{}
}

func (t *subscribers) init() {
	t.byBucket = map[millrace.BucketID]map[*Subscription]struct{}{}
}

// notifyAll wakes everybody.
func (t *subscribers) notifyAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, subs := range t.byBucket {
		for sub := range subs {
			wake(sub.C)
		}
	}
}

func (t *subscribers) notify(id millrace.BucketID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for sub := range t.byBucket[id] {
		wake(sub.C)
	}
}

// Subscribe wakes c (capacity 1) after records were appended to one of the
// buckets, or its table was dropped. The caller closes the subscription.
func (s *Shard) Subscribe(c chan struct{}, ids []millrace.BucketID) *Subscription {
	sub := &Subscription{C: c, of: &s.subs, ids: ids}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for _, id := range ids {
		if s.subs.byBucket[id] == nil {
			s.subs.byBucket[id] = map[*Subscription]struct{}{}
		}
		s.subs.byBucket[id][sub] = struct{}{}
	}
	return sub
}

// Close ends the subscription.
func (sub *Subscription) Close() {
	sub.once.Do(func() {
		sub.of.mu.Lock()
		defer sub.of.mu.Unlock()
		for _, id := range sub.ids {
			delete(sub.of.byBucket[id], sub)
			if len(sub.of.byBucket[id]) == 0 {
				delete(sub.of.byBucket, id)
			}
		}
	})
}
