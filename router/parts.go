package router

import (
	"context"
	"encoding/binary"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Parts as tickets and page tokens carry them: a plan of a table with thousands of
// partitions has tens of thousands. Varints, a part after the other: difference of the
// partition to the one before, zigzag · bucket · flags · start · end less start, zigzag,
// unless it has none · the key read last, where there is one · file and row of the lake
// that are read next, where there are any · the file to stop at, where there is one · the
// offset of the changes on top of the lake, where there are such. The prefix of keys is the same for all and stands elsewhere.
const (
	partState    = 1
	partEndless  = 2
	partAfter    = 4
	partLake     = 8
	partLakeOnly = 16
	partFiles    = 32
	partOverlay  = 64
)

// maxPlanBuckets bounds what a plan can cover at all.
const maxPlanBuckets = 1 << 18

func appendParts(b []byte, parts []Part) []byte {
	last := int64(0)
	for i := range parts {
		p := &parts[i]
		flags := uint64(0)
		if p.State {
			flags |= partState
		}
		if p.End == millrace.NoOffset {
			flags |= partEndless
		}
		if p.After != nil {
			flags |= partAfter
		}
		if p.Lake {
			flags |= partLake
		}
		if p.LakeOnly {
			flags |= partLakeOnly
		}
		if p.Files >= 0 {
			flags |= partFiles
		}
		if p.Overlay {
			flags |= partOverlay
		}
		b = binary.AppendVarint(b, int64(p.Bucket.Partition)-last)
		last = int64(p.Bucket.Partition)
		b = binary.AppendUvarint(b, uint64(p.Bucket.Bucket))
		b = binary.AppendUvarint(b, flags)
		b = binary.AppendUvarint(b, uint64(p.Start))
		if p.End != millrace.NoOffset {
			b = binary.AppendVarint(b, int64(p.End-p.Start))
		}
		if p.After != nil {
			b = appendBytes(b, p.After)
		}
		if p.Lake {
			b = binary.AppendUvarint(b, uint64(p.File))
			b = binary.AppendUvarint(b, uint64(p.Row))
		}
		if p.Files >= 0 {
			b = binary.AppendUvarint(b, uint64(p.Files))
		}
		if p.Overlay {
			b = binary.AppendUvarint(b, uint64(p.Tail))
		}
	}
	return b
}

// openParts reads what appendParts wrote. A plan that follows the log goes on without
// the partitions that have ended since.
func (r *Router) openParts(ctx context.Context, p *Plan, b []byte) error {
	in := varints{b: b}
	last := int64(0)
	var of *millrace.Partition
	var err error
	for len(in.b) > 0 && len(p.Parts) < maxPlanBuckets {
		part := Part{End: millrace.NoOffset, Files: -1}
		last += in.nextSigned()
		n, flags := uint16(in.next()), in.next()
		part.read(&in, flags)
		if in.bad || int(n) >= p.Table.Buckets && (n != NoBucket || !part.Lake) || last > 0 != p.Table.Partitioned() {
			break
		}
		if id := millrace.PartitionID(last); id != 0 && (of == nil || of.ID != id) {
			if of, err = r.livePartition(ctx, p.Table, id); err != nil && (!p.Follow || !errs.Is(err, errs.PartitionNotFound)) {
				return err
			}
		}
		if of == nil && last > 0 {
			if p.fixed {
				return FarError(len(p.Parts), errs.New(errs.PartitionNotFound, "partition %d of table %s has ended, and its rows are gone", last, p.Table.Path))
			}
			continue // it has ended
		}
		at := newPart(p.Table, of, n)
		part.Bucket, part.Partition, part.Key, part.Shard = at.Bucket, at.Partition, at.Key, at.Shard
		p.Parts = append(p.Parts, part)
	}
	if in.bad || len(in.b) > 0 {
		return errs.New(errs.InvalidValue, "the ticket or page token is not one of table %s as it is now", p.Table.Path)
	}
	return nil
}

// read reads what follows a part's flags.
func (p *Part) read(in *varints, flags uint64) {
	p.State, p.Lake, p.LakeOnly = flags&partState != 0, flags&partLake != 0, flags&partLakeOnly != 0
	p.Start = millrace.Offset(in.next())
	if flags&partEndless == 0 {
		p.End = p.Start + millrace.Offset(in.nextSigned())
	}
	if flags&partAfter != 0 {
		p.After = slices.Clone(in.bytes())
	}
	if p.Lake {
		p.File, p.Row = int(in.next()&0xffffff), int64(in.next()&(1<<62-1))
	}
	if flags&partFiles != 0 {
		p.Files = int(in.next() & 0xffffff)
	}
	if p.Overlay = flags&partOverlay != 0; p.Overlay {
		p.Tail = millrace.Offset(in.next())
	}
	in.bad = in.bad || flags >= partOverlay<<1
}

// livePartition is a partition whose rows are there: with the workers, or in the lake.
func (r *Router) livePartition(ctx context.Context, t *millrace.Table, id millrace.PartitionID) (*millrace.Partition, error) {
	p, err := r.o.Catalog.PartitionByID(ctx, t.ID, id)
	if errs.Is(err, errs.PartitionNotFound) || err == nil && p.State == millrace.PartitionExpired && !r.inLake(t) {
		return nil, errs.New(errs.PartitionNotFound, "a partition of table %s that the ticket or page token reads has ended, and its rows are gone: start the read again", t.Path)
	}
	return p, err
}
