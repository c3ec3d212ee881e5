package kv

import (
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	millrace "github.com/millrace/millrace"
)

// Buckets are the buckets of which the store holds something, in order.
func (s *Store) Buckets(ctx context.Context) ([]millrace.BucketID, error) {
	it, err := s.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: after(appliedKey)})
	if err != nil {
		return nil, s.readError("kv.Buckets", err)
	}
	var out []millrace.BucketID
	for ok := it.First(); ok; {
		k := it.Key()
		id := millrace.BucketID{
			Table: millrace.TableID(binary.BigEndian.Uint32(k)), Partition: millrace.PartitionID(binary.BigEndian.Uint32(k[4:])), Bucket: binary.BigEndian.Uint16(k[8:]),
		}
		out = append(out, id)
		ok = it.SeekGE(after(k[:prefixLen:prefixLen]))
	}
	return out, s.readError("kv.Buckets", it.Close())
}

// DropBucket removes everything of a bucket.
func (b *Batch) DropBucket(id millrace.BucketID) error {
	lower := appendPrefix(nil, id, 0)[:prefixLen]
	return b.b.DeleteRange(lower, after(lower), nil)
}

// Writers are the writers that a bucket knows, by scope.
func (s *Store) Writers(ctx context.Context, id millrace.BucketID) (map[string]*Writer, error) {
	it, err := s.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: appendPrefix(nil, id, kindWriter), UpperBound: appendPrefix(nil, id, kindWriter+1)})
	if err != nil {
		return nil, s.readError("kv.Writers", err)
	}
	out := map[string]*Writer{}
	for ok := it.First(); ok; ok = it.Next() {
		w, err := decodeWriter(it.Value())
		if err != nil {
			_ = it.Close() // the damage says more
			return nil, s.corrupt("%v", err)
		}
		out[string(it.Key()[prefixLen+1:])] = w
	}
	return out, s.readError("kv.Writers", it.Close())
}
