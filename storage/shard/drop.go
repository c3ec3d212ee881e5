package shard

import (
	"context"
	"log/slog"
	"path"
	"slices"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// ending is what a request does to the buckets of a table, or of one partition of it:
// it drops them, or seals the partition.
type ending struct {
	of   partitionRef
	seal bool
}

// partitionRef names a partition of a table; partition 0 stands for the whole table
// (that of an unpartitioned table is all of it).
type partitionRef struct {
	table     millrace.TableID
	partition millrace.PartitionID
}

func refOf(id millrace.BucketID) partitionRef { return partitionRef{id.Table, id.Partition} }

// holds says whether a bucket is of what the ref names.
func (r partitionRef) holds(id millrace.BucketID) bool {
	return id.Table == r.table && (r.partition == 0 || id.Partition == r.partition)
}

// DropTable removes all buckets of a table. It answers when that is durable. A shard
// that serves nothing lets it be: what the catalog does not know is dropped at the
// next start (storage.Worker.DropUnknown).
func (s *Shard) DropTable(ctx context.Context, id millrace.TableID) error {
	return s.drop(ctx, partitionRef{table: id})
}

// DropPartition removes the buckets of one partition, as DropTable does those of all.
func (s *Shard) DropPartition(ctx context.Context, table millrace.TableID, id millrace.PartitionID) error {
	return s.drop(ctx, partitionRef{table, id})
}

func (s *Shard) drop(ctx context.Context, ref partitionRef) error {
	if s.failed() {
		return nil
	}
	_, err := s.submit(ctx, &pending{end: &ending{of: ref}})
	return err
}

// DropUnknown drops the data of tables, and of partitions, that are not known: their
// DROP was decided and not carried out when the shard was last served. known is asked
// about partition 0 for the table itself.
func (s *Shard) DropUnknown(ctx context.Context, known func(millrace.TableID, millrace.PartitionID) bool) error {
	for _, id := range s.Tables() {
		if !known(id, 0) {
			if err := s.DropTable(ctx, id); err != nil {
				return err
			}
			continue
		}
		for _, p := range s.Partitions(id) {
			if !known(id, p) {
				if err := s.DropPartition(ctx, id, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takeEnding adds a drop or seal to a group.
func (s *Shard) takeEnding(g *group, p *pending) {
	if !p.end.seal && p.end.of.partition == 0 {
		s.expiry.forget(p.end.of.table)
	}
	switch e := *p.end; {
	case e.seal:
		s.takeSeal(g, e)
	case s.anythingOf(g, e.of):
		g.endings = append(g.endings, e)
	case s.isDropped(g, e.of): // already, or by what was prepared before and may still fail
	default:
		// What has no bucket here, nor one that is about to be opened, needs no record:
		// writes to it are refused from now on, and after a restart nobody has its
		// descriptor.
		s.dropped[e.of] = struct{}{}
	}
	g.answers = append(g.answers, answer{to: p})
}

// anythingOf says whether there is something to drop, as of what was prepared before.
func (s *Shard) anythingOf(g *group, ref partitionRef) bool {
	if s.isDropped(g, ref) {
		return false
	}
	if ref.partition == 0 {
		return s.preparedTable(ref.table) != nil
	}
	return len(s.bucketsOf(ref)) > 0 || s.isSealed(g, ref)
}

// isDropped says whether a table or partition is gone as of what was prepared before.
func (s *Shard) isDropped(g *group, ref partitionRef) bool {
	for _, r := range []partitionRef{ref, {table: ref.table}} {
		if _, done := s.dropped[r]; done || s.prepared(g, ending{of: r}) {
			return true
		}
	}
	return false
}

// prepared says whether an ending was prepared and is not applied yet.
func (s *Shard) prepared(g *group, e ending) bool {
	return slices.Contains(g.endings, e) || s.inFlight != nil && slices.Contains(s.inFlight.endings, e)
}

// goneError is the error of a write to what was dropped; nil while it is there.
func (s *Shard) goneError(g *group, op *Op) error {
	switch ref := refOf(op.Bucket); {
	case !s.isDropped(g, ref):
		return nil
	case s.isDropped(g, partitionRef{table: ref.table}):
		return gone(partitionRef{table: ref.table})
	default:
		return gone(ref)
	}
}

// bucketsOf are the open buckets of a table or partition, and those that are about to
// be opened.
func (s *Shard) bucketsOf(ref partitionRef) []*bucketState {
	var out []*bucketState
	for _, b := range s.unborn {
		if ref.holds(b.id) {
			out = append(out, b)
		}
	}
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	if ref.partition != 0 {
		return append(out, s.byPartition[ref]...)
	}
	for r, bs := range s.byPartition {
		if r.table == ref.table {
			out = append(out, bs...)
		}
	}
	return out
}

// list makes a bucket findable.
// REQUIRES: s.bucketsMu is held, or nobody else knows the shard yet.
func (s *Shard) listLocked(b *bucketState) {
	s.buckets[b.id] = b
	s.tables[b.id.Table] = b.of
	ref := refOf(b.id)
	s.byPartition[ref] = append(s.byPartition[ref], b)
}

// unlist forgets the buckets of a table or partition and returns them.
func (s *Shard) unlist(ref partitionRef) []*bucketState {
	out := s.bucketsOf(ref)
	s.bucketsMu.Lock()
	defer s.bucketsMu.Unlock()
	for _, b := range out {
		delete(s.buckets, b.id)
		delete(s.byPartition, refOf(b.id))
	}
	for r := range s.sealed {
		if r == ref || ref.partition == 0 && r.table == ref.table {
			delete(s.sealed, r)
		}
	}
	if ref.partition == 0 {
		delete(s.tables, ref.table)
	}
	return out
}

// closeDropped closes the logs of buckets that the record lsn dropped. Their files
// stay until a manifest covers that record: a start before that opens them, and the
// log then drops them again.
func (s *Shard) closeDropped(ref partitionRef, dropped []*bucketState, lsn millrace.LSN) {
	for _, b := range dropped {
		if err := b.log.Close(gone(ref)); err != nil {
			s.o.Logger.Warn("files of a dropped bucket do not close", slogBucket(b.id), slogErr(err))
		}
		s.tailBytes.Add(-b.log.View().TailBytes())
		s.subs.notify(b.id)
	}
	if len(dropped) > 0 {
		s.doomed.add(ref, lsn)
	}
}

// gone is the error of a table or partition that was dropped.
func gone(ref partitionRef) error {
	if ref.partition == 0 {
		return errs.New(errs.TableNotFound, "table %d was dropped", ref.table)
	}
	return errs.New(errs.PartitionExpired, "partition %d of table %d was dropped", ref.partition, ref.table)
}

// doomedDirs are what was dropped and has directories, with the record that dropped it.
type doomedDirs struct {
	mu sync.Mutex
	at map[partitionRef]millrace.LSN
}

func (d *doomedDirs) add(ref partitionRef, lsn millrace.LSN) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		d.at = map[partitionRef]millrace.LSN{}
	}
	d.at[ref] = lsn
}

// upTo takes out what was dropped by records up to lsn.
func (d *doomedDirs) upTo(lsn millrace.LSN) []partitionRef {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []partitionRef
	for ref, at := range d.at {
		if at <= lsn {
			out = append(out, ref)
			delete(d.at, ref)
		}
	}
	return out
}

// removeDoomed removes the files of what was dropped and is covered by a manifest.
// What cannot be removed stays: the next start removes what no manifest names.
func (s *Shard) removeDoomed(covered millrace.LSN) {
	for _, ref := range s.doomed.upTo(covered) {
		dir := path.Join(s.o.Dir, segmentsDir, tableDir(ref.table))
		if ref.partition != 0 {
			dir = path.Join(dir, partitionDir(ref.partition))
		}
		if err := s.o.FS.RemoveAll(dir); err != nil {
			s.o.Logger.Warn("files of what was dropped stay", slog.String("dir", dir), slogErr(err))
		}
	}
}
