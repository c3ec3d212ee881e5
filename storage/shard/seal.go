package shard

import (
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// SealPartition ends the writes to a partition: those that were taken before stand
// before the seal in the log, later ones are refused with errs.PartitionExpired. It
// answers when that is durable.
func (s *Shard) SealPartition(ctx context.Context, table millrace.TableID, id millrace.PartitionID) error {
	_, err := s.submit(ctx, &pending{end: &ending{of: partitionRef{table, id}, seal: true}})
	return err
}

// takeSeal adds a seal to a group, unless it says what is known. A partition without
// buckets here is sealed too: a late write must not open one.
func (s *Shard) takeSeal(g *group, e ending) {
	if !s.isSealed(g, e.of) && !s.isDropped(g, e.of) {
		g.endings = append(g.endings, e)
	}
}

// isSealed says whether a partition is sealed as of what was prepared before.
func (s *Shard) isSealed(g *group, ref partitionRef) bool {
	_, done := s.sealed[ref]
	return done || s.prepared(g, ending{of: ref, seal: true})
}

// sealedError is the error of a write to a sealed partition; nil when it is not.
func (s *Shard) sealedError(g *group, op *Op) error {
	ref := refOf(op.Bucket)
	if ref.partition == 0 || !s.isSealed(g, ref) {
		return nil
	}
	return errs.New(errs.PartitionExpired, "the partition that the rows belong to has ended and takes no more writes")
}

// sealedList is what is sealed, in order.
// REQUIRES: s.bucketsMu is held.
func (s *Shard) sealedListLocked() []SealedPartition {
	out := make([]SealedPartition, 0, len(s.sealed))
	for ref := range s.sealed {
		out = append(out, SealedPartition{Table: ref.table, Partition: ref.partition})
	}
	slices.SortFunc(out, func(a, b SealedPartition) int {
		return millrace.BucketID{Table: a.Table, Partition: a.Partition}.Compare(millrace.BucketID{Table: b.Table, Partition: b.Partition})
	})
	return out
}

// Partitions lists the partitions of a table that have buckets here, or are sealed.
func (s *Shard) Partitions(table millrace.TableID) []millrace.PartitionID {
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	var out []millrace.PartitionID
	for ref := range s.byPartition {
		if ref.table == table {
			out = append(out, ref.partition)
		}
	}
	for ref := range s.sealed {
		if ref.table == table && len(s.byPartition[ref]) == 0 {
			out = append(out, ref.partition)
		}
	}
	slices.Sort(out)
	return out
}

// seal notes that a partition takes no more writes.
func (s *Shard) seal(ref partitionRef) {
	s.bucketsMu.Lock()
	defer s.bucketsMu.Unlock()
	s.sealed[ref] = struct{}{}
}
