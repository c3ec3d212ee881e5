package laketest

import (
	"fmt"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

// check refuses a snapshot that nobody who keeps to package lake would commit.
func (r *Round) check(s *Snapshot) error {
	if r.base != nil {
		for b, was := range r.base.offsets {
			now, have := s.offsets[b]
			if (!have || now < was) && !r.freed(b) {
				return fmt.Errorf("laketest: the offset of bucket %s goes from %d to %d (there: %v), and its rows were not cleared", b, was, now, have)
			}
		}
	}
	for b := range s.offsets {
		if b.Table != r.t.id || int(b.Bucket) >= r.desc.Buckets {
			return fmt.Errorf("laketest: an offset of bucket %s, which table %s does not have", b, r.desc.Path)
		}
	}
	type key struct {
		partition millrace.PartitionID
		key       string
	}
	seen := map[key]string{}
	for _, f := range s.files {
		if f.bucket != lake.NoBucket {
			b := millrace.BucketID{Table: r.t.id, Partition: f.partition, Bucket: uint16(f.bucket)}
			if _, have := s.offsets[b]; !have && len(f.rows) > len(s.deleted[f]) {
				return fmt.Errorf("laketest: rows of bucket %s and no offset", b)
			}
		}
		for i, k := range f.keys {
			if _, gone := s.deleted[f][int64(i)]; gone {
				continue
			}
			k := key{f.partition, k}
			if other, twice := seen[k]; twice {
				return fmt.Errorf("laketest: key %x of bucket %d is in %s and in %s", k.key, f.bucket, other, f.path)
			}
			seen[k] = f.path
		}
	}
	return nil
}

// freed says whether the round has cleared a bucket.
func (r *Round) freed(b millrace.BucketID) bool {
	for _, s := range r.free {
		var id millrace.PartitionID
		if s.Partition != nil {
			id = s.Partition.ID
		}
		if id == b.Partition && (s.Bucket == lake.NoBucket || s.Bucket == int(b.Bucket)) {
			return true
		}
	}
	return false
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
