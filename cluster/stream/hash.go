package stream

import (
	"context"
	"errors"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/wal"
)

// HashAt reads the record from the stream's leader, or the one after it.
func (l *Log) HashAt(ctx context.Context, lsn millrace.LSN) (hash uint64, ok bool, err error) {
	if end := l.Tail(); lsn == end.LSN {
		return end.Hash, true, nil
	}
	info, err := l.info(ctx)
	if err != nil {
		return 0, false, err
	}
	first, last := millrace.LSN(info.State.FirstSeq), millrace.LSN(info.State.LastSeq)
	var r wal.Record
	switch {
	case lsn > last || lsn+1 < first:
		return 0, false, nil
	case lsn >= max(first, 1):
		r, err = l.record(ctx, uint64(lsn))
		hash = r.Tail().Hash
	case last == 0: // nothing was written yet
		return 0, true, nil
	default:
		r, err = l.record(ctx, uint64(lsn+1))
		hash = r.Prev()
	}
	if errors.Is(err, wal.ErrPurged) { // in between
		return 0, false, nil
	}
	return hash, err == nil, err
}
