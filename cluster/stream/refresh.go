package stream

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// Refresh reads the end of the log from the stream's leader. A Log that had stopped
// takes appends again afterwards, the first of which must begin an epoch (T3): an
// owner that was deposed does not go on by mistake.
func (l *Log) Refresh(ctx context.Context) (wal.Tail, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := l.info(ctx)
	if err != nil {
		return wal.Tail{}, err
	}
	end := l.Tail()
	if end.LogID != l.logID || info.State.LastSeq != uint64(end.LSN) {
		l.mustRaise = true
		end, err = l.readEnd(ctx, info.State)
		if l.damagedEnd && errs.Is(err, errs.CorruptData) {
			end, err = wal.Tail{LogID: l.logID, LSN: millrace.LSN(info.State.LastSeq)}, nil
		}
		if err != nil {
			return wal.Tail{}, err
		}
	}
	l.at.Lock()
	l.at.end = end
	l.at.Unlock()
	l.sized(info)
	l.stopped = nil
	return end, nil
}

// readEnd reads the last record.
func (l *Log) readEnd(ctx context.Context, state jetstream.StreamState) (wal.Tail, error) {
	if state.LastSeq == 0 {
		return wal.Tail{LogID: l.logID}, nil
	}
	rctx, cancel := l.s.conn.Request(ctx, l.s.opts.AnswerTimeout)
	defer cancel()
	msg, err := l.fetch(rctx, lastOf{l.subject})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return wal.Tail{}, l.corrupt(state.LastSeq, "all records were removed, the last one too")
	case isGone(err):
		return wal.Tail{}, l.gone()
	case err != nil:
		return wal.Tail{}, errs.New(errs.Unavailable, "reading the end of stream %s of shard %d: %v", l.name, l.shard, err)
	case msg.Sequence < state.LastSeq:
		return wal.Tail{}, l.corrupt(state.LastSeq, "the last record was removed")
	}
	r, err := l.parse(msg.Sequence, msg.Data)
	if err != nil {
		return wal.Tail{}, err
	}
	return r.Tail(), nil
}

// parse reads the record of a message and checks that it belongs there.
func (l *Log) parse(seq uint64, b []byte) (wal.Record, error) {
	r, err := wal.ParseRecord(b)
	switch t := r.Tail(); {
	case errs.Is(err, errs.NotImplemented):
		return r, errs.New(errs.NotImplemented, "shard %d: stream %s at sequence %d: %v", l.shard, l.name, seq, err)
	case err != nil:
		return r, l.corrupt(seq, err.Error())
	case r.Cluster() != l.s.opts.ClusterID || r.Shard() != l.shard || t.LogID != l.logID:
		return r, l.corrupt(seq, "the record is of another log")
	case uint64(t.LSN) != seq:
		return r, l.corrupt(seq, "the record there has another number")
	}
	return r, nil
}

// sized takes note of what the stream holds.
func (l *Log) sized(info *jetstream.StreamInfo) {
	l.at.Lock()
	defer l.at.Unlock()
	l.at.bytes = int64(info.State.Bytes)
	l.size.Set(float64(l.at.bytes))
}
