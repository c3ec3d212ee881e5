package tier

import (
	"context"
	"log/slog"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// The newest snapshot may be older than one before: its metadata was lost, or somebody put
// an older copy back. What it holds is sound as of then. Where the log still has what comes
// after, and of the state of keyed tables, it is made up for; the rows of log tables that
// left the log in between, and of partitions that only the lake had, are lost, which is
// for people to decide.

// seenAll says whether a snapshot has gone over all buckets since records could leave the
// log without being in the lake: what is missing after it was there, and is lost.
func seenAll(desc *millrace.Table, s lake.Snapshot) bool {
	gaps := int64(0)
	if s != nil {
		gaps = s.Gaps()
	}
	return gaps >= desc.Options.Lake.Gaps
}

const accept = "put the newest metadata back, or give up what is lost: set table.datalake.enabled to false, and then to true; nothing is written to the lake table before"

// isLost is the error of records that are neither in the lake nor in the log.
func isLost(desc *millrace.Table, p *piece, at, kept millrace.Offset) error {
	return errs.New(errs.CorruptData, "the lake has bucket %s of table %s up to offset %d, and its log begins at offset %d: the lake has lost what is between, as when its newest metadata is lost or an older copy of it was put back: %s",
		millrace.BucketKey(nameOf(p.partition), p.bucket), desc.Path, at, kept, accept)
}

// isRewritten is what is said of a keyed bucket of which that is so: its state has all rows.
func isRewritten(desc *millrace.Table, p *piece, at, kept millrace.Offset) error {
	return errs.New(errs.CorruptData, "the lake has bucket %s of table %s up to offset %d, and its log begins at offset %d: the lake has lost what is between; the next round writes the bucket anew from its state",
		millrace.BucketKey(nameOf(p.partition), p.bucket), desc.Path, at, kept)
}

// wentBack compares the newest snapshot with the ones before it. lost is the error when
// rows may be gone from the lake; again says that a keyed table's are being written anew.
func (t *table) wentBack(ctx context.Context, desc *millrace.Table, s lake.Snapshot) (lost, again, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s != t.newest {
		return nil, nil, nil // another one is by now
	}
	gaps := desc.Options.Lake.Gaps
	if t.whole != nil && s != t.whole && gaps <= t.wholeGaps {
		at, partition, found, err := t.lowerThan(ctx, desc, offsetsOf(s), t.whole.Offsets())
		switch {
		case err != nil:
			return nil, nil, err
		case found:
			was, now := t.whole.Offsets()[at], offsetsOf(s)[at]
			key := millrace.BucketKey(nameOf(partition), at.Bucket)
			if !desc.Keyed() || partition != nil && !takesPart(partition) {
				return errs.New(errs.CorruptData, "the lake has bucket %s of table %s up to offset %d, and had it up to offset %d before: its newest metadata is lost, or an older copy of it was put back: %s", key, desc.Path, now, was, accept), nil, nil
			}
			again = errs.New(errs.CorruptData, "the lake has bucket %s of table %s up to offset %d, and had it up to offset %d before: its newest metadata is lost, or an older copy of it was put back; the next round makes up for it", key, desc.Path, now, was)
			if s == nil || s.ID() != t.warned {
				t.m.o.Logger.WarnContext(ctx, "the lake went back", tableAttr(desc), slog.String("bucket", key), slog.Int64("from", int64(was)), slog.Int64("to", int64(now)))
			}
			if s != nil {
				t.warned = s.ID()
			}
			return nil, again, nil
		}
	}
	t.whole, t.wholeGaps = s, gaps
	return nil, nil, nil
}

// lowerThan finds a bucket whose offset is lower than it was, the worst one first: one of
// a partition that only the lake has. Partitions that were dropped are left out.
func (t *table) lowerThan(ctx context.Context, desc *millrace.Table, now, was lake.Offsets) (at millrace.BucketID, p *millrace.Partition, found bool, err error) {
	var ps map[millrace.PartitionID]*millrace.Partition
	for b, off := range was {
		if now[b] >= off {
			continue
		}
		if !desc.Partitioned() {
			if !found || b.Compare(at) < 0 {
				at, found = b, true
			}
			continue
		}
		if ps == nil {
			all, err := t.m.o.Catalog.Partitions(ctx, desc.ID)
			if err != nil {
				return at, nil, false, err
			}
			ps = make(map[millrace.PartitionID]*millrace.Partition, len(all))
			for _, q := range all {
				ps[q.ID] = q
			}
		}
		q := ps[b.Partition]
		if q == nil || q.Dropping {
			continue
		}
		worse := found && !takesPart(q) && takesPart(p)
		if !found || worse || takesPart(q) == takesPart(p) && b.Compare(at) < 0 {
			at, p, found = b, q, true
		}
	}
	return at, p, found, nil
}
