package wal

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
)

// HashAt looks where the files begin before it reads one.
func (l *shardLog) HashAt(ctx context.Context, lsn millrace.LSN) (uint64, bool, error) {
	spans, end := l.f.pin(l.shard)
	defer l.f.unpin()
	if lsn == end.LSN {
		return end.Hash, true, nil
	}
	for i := len(spans) - 1; i >= 0; i-- {
		switch h := spans[i].head(l.shard); {
		case h.LSN == lsn:
			return h.Hash, true, nil
		case h.LSN < lsn:
			return l.hashIn(ctx, &spans[i], lsn)
		}
	}
	return 0, false, nil
}

// hashIn looks for a record in a file.
func (l *shardLog) hashIn(ctx context.Context, sp *span, lsn millrace.LSN) (hash uint64, found bool, err error) {
	f := l.f
	name := f.path(sp.number, fileSuffix)
	file, err := f.fs.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return 0, false, f.fileError("opening", name, err)
	}
	defer func() { _ = file.Close() }() // only read
	sc := newScanner(file, name, sp.number, f.opts.ClusterID, sp.data, sp.end)
	epoch := sp.head(l.shard).Epoch
	for {
		it, ok, err := sc.next()
		if err != nil || !ok {
			return hash, found, err
		}
		if it.bad || it.shard != l.shard || it.rec.epoch < epoch {
			continue // damage is for Replay to report; the others are nobody's
		}
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		if epoch = it.rec.epoch; it.rec.lsn >= lsn {
			return it.rec.hash, it.rec.lsn == lsn, nil
		}
	}
}
