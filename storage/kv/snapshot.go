package kv

import (
	"cmp"
	"context"

	"github.com/cockroachdb/pebble/v2"

	millrace "github.com/millrace/millrace"
)

// Snapshot is the state of a shard at one instant. It is safe for concurrent use
// until Close.
type Snapshot struct {
	s  *Store
	sn *pebble.Snapshot
}

// Close lets the store forget the instant.
func (s *Snapshot) Close() error { return s.sn.Close() }

// Meta is what the snapshot knows of a bucket; the zero Meta when nothing.
func (s *Snapshot) Meta(b millrace.BucketID) (Meta, error) { return meta(s.s, s.sn, b) }

// Rows walks the rows of a bucket in key order, from the first key above
// afterKey (all when it is nil) and below the keys that do not begin with prefix.
// The caller closes the iterator.
func (s *Snapshot) Rows(ctx context.Context, b millrace.BucketID, prefix, afterKey []byte) (*Rows, error) {
	lower := AppendRowKey(nil, b, prefix)
	upper := after(lower)
	if afterKey != nil {
		// The least key above k is k with a zero byte.
		lower = append(AppendRowKey(nil, b, afterKey), 0)
	}
	it, err := s.sn.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, s.s.readError("kv.Rows", err)
	}
	return &Rows{s: s.s, it: it}, nil
}

// Rows is a walk over the rows of a bucket.
type Rows struct {
	s       *Store
	it      *pebble.Iterator
	started bool
	ended   error // why the walk was cut short
}

// Next moves on and says whether there is a row.
func (r *Rows) Next() bool {
	if p := r.s.interrupted.Load(); p != nil {
		r.ended = *p
		return false
	}
	if !r.started {
		r.started = true
		return r.it.First()
	}
	return r.it.Next()
}

// Key is the row's primary key. It is valid until Next.
func (r *Rows) Key() []byte { return r.it.Key()[RowPrefixLen:] }

// Row is the compact row. It is valid until Next.
func (r *Rows) Row() []byte { return r.it.Value() }

// Close ends the walk and tells of an error on the way.
func (r *Rows) Close() error {
	return cmp.Or(r.s.readError("kv.Rows", r.it.Close()), r.ended)
}
