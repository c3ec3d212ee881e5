package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// settle finds out what became of a record whose publish has no answer that tells: it
// is in the stream (true), or a noop of ours is in its place (false). last is what
// was said instead of an answer.
func (l *Log) settle(ctx context.Context, end wal.Tail, rec []byte, last error) (bool, error) {
	l.s.met.unanswered.Inc()
	before := l.Tail()
	if err := l.noop.Encode(before, []wal.Entry{{Kind: wal.Noop}}); err != nil {
		return false, err
	}
	var noopEnd wal.Tail
	var noop []byte
	for t, b := range l.noop.Records() {
		noopEnd, noop = t, b
	}
	seq := uint64(end.LSN)
	var behind bool
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if over := l.over(ctx); over != nil {
			l.s.met.settled.WithLabelValues(unknown).Inc()
			if behind {
				return false, l.stop(errs.New(errs.CorruptData, "shard %d: stream %s ends before sequence %d, which it had stored: it lost records", l.shard, l.name, seq-1))
			}
			return false, l.stop(errs.New(errs.UnknownOutcome, "whether record %d is in the log of shard %d is not known, NATS does not tell: %v", seq, l.shard, last))
		}
		out, err := l.publish(ctx, seq, noop)
		if out == stored {
			return l.settled(noopEnd, noop, false)
		}
		last = err
		msg, err := l.message(ctx, seq)
		switch {
		case err == nil && msg.Header.Get(writerHeader) == l.writer && bytes.Equal(msg.Data, rec):
			return l.settled(end, rec, true)
		case err == nil && msg.Header.Get(writerHeader) == l.writer && bytes.Equal(msg.Data, noop):
			return l.settled(noopEnd, noop, false)
		case err == nil: // of another, or ours from before a Refresh, that came late
			return false, l.fenced(seq, msg)
		case errors.Is(err, jetstream.ErrMsgNotFound):
			info, err := l.info(ctx)
			if gone, ok := errors.AsType[*errs.Error](err); ok && gone.Code == errs.CorruptData {
				return false, l.stop(gone)
			}
			behind = err == nil && info.State.LastSeq < seq-1
		default:
			last = fmt.Errorf("%w; %w", last, err)
		}
		l.wait(ctx, pause)
	}
}

func (l *Log) settled(end wal.Tail, rec []byte, is bool) (bool, error) {
	what := landed
	if !is {
		what = lost
		l.moved(end, len(rec))
	}
	l.s.met.settled.WithLabelValues(what).Inc()
	l.s.opts.Logger.LogAttrs(context.Background(), slog.LevelInfo, "log record without an answer was settled",
		slog.String("stream", l.name), slog.Uint64("sequence", uint64(end.LSN)), slog.String("outcome", what))
	return is, nil
}

// fenced is the error of an owner that found another's record in the place of its own.
func (l *Log) fenced(seq uint64, msg *jetstream.RawStreamMsg) error {
	l.s.met.settled.WithLabelValues(fenced).Inc()
	whose := "a record that cannot be read"
	if r, err := wal.ParseRecord(msg.Data); err == nil {
		whose = fmt.Sprintf("a record of epoch %d", r.Tail().Epoch)
	}
	err := l.stop(errs.New(errs.NotOwner, "another owner writes the log of shard %d: at %d is %s, ours is epoch %d", l.shard, seq, whose, l.Tail().Epoch))
	l.s.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "log has another owner", slog.String("stream", l.name), slog.Uint64("sequence", seq), slog.Any("err", err))
	return err
}

// message reads a message from the stream's leader. Its error is
// jetstream.ErrMsgNotFound when there is none, which a leader that has been deposed
// may say of one that is there.
func (l *Log) message(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	rctx, cancel := l.s.conn.Request(ctx, l.s.opts.AnswerTimeout)
	defer cancel()
	return l.fetch(rctx, bySequence{seq})
}

// info asks the stream's leader about it. The error is errs.CorruptData when the stream
// is gone, or is another one of the same name.
func (l *Log) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	rctx, cancel := l.s.conn.Request(ctx, l.s.opts.AnswerTimeout)
	defer cancel()
	info, err := l.st.Info(rctx)
	switch {
	case isGone(err):
		return nil, l.gone()
	case err != nil:
		return nil, errs.New(errs.Unavailable, "stream %s of shard %d does not answer: %v", l.name, l.shard, err)
	}
	id, err := l.readMetadata(info.Config.Metadata)
	if err != nil {
		return nil, err
	}
	if id != l.logID {
		return nil, errs.New(errs.CorruptData, "stream %s of shard %d was removed and made anew: its log id is %x, and was %x", l.name, l.shard, id, l.logID)
	}
	return info, nil
}

func isGone(err error) bool {
	return err != nil && (errors.Is(err, jetstream.ErrStreamNotFound) || strings.Contains(err.Error(), "stream not found"))
}

func (l *Log) gone() error {
	return errs.New(errs.CorruptData, "stream %s of shard %d is not there any more: restore it, or the shard", l.name, l.shard)
}
