package tier

import (
	"cmp"
	"context"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/router"
)

// piece is a bucket of which something is not in the lake, and where its log ended when
// the job began.
type piece struct {
	partition *millrace.Partition // nil on a table without partitions
	bucket    uint16
	end       millrace.Offset
}

func (p *piece) id(t *millrace.Table) millrace.BucketID {
	if p.partition == nil {
		return t.BucketID(p.bucket)
	}
	return p.partition.BucketID(p.bucket)
}

// slice is where rows of the piece go.
func (p *piece) slice(t *millrace.Table) lake.Slice {
	if !ownFiles(t) {
		return lake.Slice{Partition: p.partition, Bucket: lake.NoBucket}
	}
	return lake.Slice{Partition: p.partition, Bucket: int(p.bucket)}
}

// ownFiles says whether each bucket of a table has lake files of its own.
func ownFiles(t *millrace.Table) bool {
	return t.Keyed() || len(t.BucketKey) == 1 && t.Buckets > 1
}

// backlog is what of a table is not in the lake.
type backlog struct {
	pieces []piece // in the order of partitions and buckets
	rows   int64
	// oldest is when the oldest record of it was written; zero when there is none, or
	// nothing is known of it.
	oldest time.Time
	// broken says that the lake has more of a bucket than its log ever held, or has lost
	// something: no round goes on from there.
	broken error
	// again says that the lake has lost what the next round writes anew.
	again error
}

// partitions are those of a table that hold rows, a nil one on a table without.
func (m *Manager) partitions(ctx context.Context, desc *millrace.Table) ([]*millrace.Partition, error) {
	if !desc.Partitioned() {
		return []*millrace.Partition{nil}, nil
	}
	all, err := m.o.Catalog.Partitions(ctx, desc.ID)
	if err != nil {
		return nil, err
	}
	out := make([]*millrace.Partition, 0, len(all))
	for _, p := range all {
		if takesPart(p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// isAhead is the error of a lake that is ahead of a log: records that are written next
// would get offsets that the lake has already.
func isAhead(desc *millrace.Table, p *piece, at millrace.Offset) error {
	return errs.New(errs.CorruptData, "the lake has bucket %s of table %s up to offset %d, where its log does not reach: the log is older than the lake, as when a copy of the data directory was put back: stop all processes and run millrace wal repair before the log is as far", millrace.BucketKey(nameOf(p.partition), p.bucket), desc.Path, at)
}

// takesPart says whether rounds take rows of a partition: not of one that has expired,
// whose rows are there, and not of one that is being dropped.
func takesPart(p *millrace.Partition) bool {
	return p.State != millrace.PartitionExpired && !p.Dropping
}

// backlog compares the ends of all logs with what the newest snapshot has. times says whether it
// is wanted how old the oldest record is.
func (t *table) backlog(ctx context.Context, src Source, desc *millrace.Table, s lake.Snapshot, times bool) (*backlog, error) {
	have := offsetsOf(s)
	ps, err := t.m.partitions(ctx, desc)
	if err != nil {
		return nil, err
	}
	logs, err := src.LogRanges(ctx, desc, ps)
	if err != nil {
		return nil, err
	}
	out := &backlog{}
	if out.broken, out.again, err = t.wentBack(ctx, desc, s); err != nil {
		return nil, err
	}
	var oldest []router.LogPlace // of each bucket with something pending
	for i, p := range ps {
		for n := range uint16(desc.Buckets) {
			lr := logs[i][n]
			pc := piece{p, n, lr.End}
			id := pc.id(desc)
			at, known := have[id]
			if at > lr.End && (lr.End > 0 || p == nil) { // else the partition is leaving
				out.broken = isAhead(desc, &pc, at)
			}
			if at < lr.Kept && seenAll(desc, s) {
				if desc.Keyed() {
					out.again = cmp.Or(out.again, isRewritten(desc, &pc, at, lr.Kept))
				} else {
					out.broken = cmp.Or(out.broken, isLost(desc, &pc, at, lr.Kept))
				}
			}
			if lr.End == 0 || known && at >= lr.End {
				continue
			}
			out.pieces = append(out.pieces, pc)
			at = max(at, lr.Start)
			out.rows += int64(lr.End - at)
			if times && at < lr.End {
				oldest = append(oldest, router.LogPlace{Partition: p, Bucket: n, Offset: at})
			}
		}
	}
	if times {
		out.oldest, err = t.oldestOf(ctx, src, desc, oldest)
	}
	return out, err
}

// oldestOf is when the oldest of some records was written; zero when nothing is known of
// them. What the last look found out is not asked for again.
func (t *table) oldestOf(ctx context.Context, src Source, desc *millrace.Table, at []router.LogPlace) (oldest time.Time, err error) {
	seen := make(map[millrace.BucketID]writtenAt, len(at))
	var ask []router.LogPlace
	idOf := func(l *router.LogPlace) millrace.BucketID {
		p := piece{l.Partition, l.Bucket, 0}
		return p.id(desc)
	}
	t.mu.Lock()
	for i := range at {
		id := idOf(&at[i])
		if w, ok := t.oldest[id]; ok && w.offset == at[i].Offset {
			seen[id] = w
		} else {
			ask = append(ask, at[i])
		}
	}
	t.mu.Unlock()
	when, err := src.WrittenAt(ctx, desc, ask)
	if err != nil {
		return oldest, err
	}
	for i := range ask {
		seen[idOf(&ask[i])] = writtenAt{ask[i].Offset, when[i]}
	}
	for _, w := range seen {
		if oldest.IsZero() || !w.at.IsZero() && w.at.Before(oldest) {
			oldest = w.at
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.oldest = seen
	return oldest, nil
}
