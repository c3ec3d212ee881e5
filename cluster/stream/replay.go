package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// replay is one Replay on its way.
type replay struct {
	l     *Log
	after millrace.LSN
	fn    func(millrace.LSN, millrace.Epoch, wal.Entry) error
	first millrace.LSN // in the stream

	at  wal.Tail // after the last record passed; LSN 0: the chain is not known yet
	on  bool     // an entry goes on behind it
	asm wal.Assembler
}

// Replay reads what is in the stream when its leader is asked. errs.Unavailable: the
// servers gave nothing for Options.Patience.
func (l *Log) Replay(ctx context.Context, after millrace.LSN, fn func(millrace.LSN, millrace.Epoch, wal.Entry) error) error {
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	first, end := millrace.LSN(info.State.FirstSeq), millrace.LSN(info.State.LastSeq)
	if after >= end {
		return ctx.Err()
	}
	if after+1 < first {
		return l.purged(after, first)
	}
	r := &replay{l: l, after: after, fn: fn, first: first}
	from, err := r.begin(ctx)
	if err != nil {
		return err
	}
	rd := &reader{l: l, next: uint64(from), end: uint64(end)}
	defer rd.close()
	for err == nil && rd.next <= rd.end {
		err = r.next(ctx, rd)
	}
	if err == nil && !r.on {
		l.at.Lock()
		l.at.passed = r.at
		l.at.Unlock()
	}
	if n := r.asm.Abandoned(); n > 0 && err == nil {
		l.s.met.abandoned.Add(float64(n))
		l.s.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "log entries that were never finished are left out",
			slog.Int("shard", int(l.shard)), slog.Int("entries", n))
	}
	return err
}

func (l *Log) purged(after, first millrace.LSN) error {
	return errs.Wrap(errs.CorruptData, "stream.Replay", fmt.Errorf("shard %d: records %d to %d of stream %s were purged: %w", l.shard, after+1, first-1, l.name, wal.ErrPurged))
}

// begin says from which record to read: the one after which the caller wants entries,
// since the chain goes on from it, or an earlier one in which an entry begins that it
// does not end.
func (r *replay) begin(ctx context.Context) (millrace.LSN, error) {
	if r.after < r.first {
		return r.first, nil
	}
	r.l.at.Lock()
	passed := r.l.at.passed
	r.l.at.Unlock()
	if passed.LSN == r.after && passed.LogID == r.l.logID {
		r.at = passed
		return r.after + 1, nil
	}
	from, err := r.l.beginning(ctx, r.after, r.first)
	if errs.Is(err, errs.CorruptData) { // it is one that the caller has
		r.l.s.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "damaged log record is passed, it was applied before", slog.Any("err", err))
		return r.after + 1, nil
	}
	return from, err
}

// next takes the next record.
func (r *replay) next(ctx context.Context, rd *reader) error {
	seq := rd.next
	rec, size, err := rd.read(ctx)
	if err != nil {
		return err
	}
	t := rec.Tail()
	switch known := r.at.LSN > 0; {
	case t.LSN == 1 && rec.Prev() != 0, known && rec.Prev() != r.at.Hash:
		return r.l.corrupt(seq, "the record does not continue the chain")
	case known && t.Epoch < r.at.Epoch:
		return r.l.corrupt(seq, fmt.Sprintf("the record is of epoch %d, and comes after one of epoch %d", t.Epoch, r.at.Epoch))
	}
	r.at, r.on = t, rec.Continues()
	fn := r.fn
	switch {
	case t.LSN == r.after && !rec.Continues():
		return nil // it is read for the chain alone, and may end what began before it
	case t.LSN <= r.after:
		fn = nil
	default:
		r.l.at.Lock()
		r.l.markLocked(t.LSN, size)
		r.l.at.Unlock()
	}
	err = r.asm.Feed(&rec, fn)
	if bad, ok := errors.AsType[*wal.Malformed](err); ok {
		if t.LSN == r.first && r.first > 1 { // the entry began before it
			return r.l.purged(r.after, t.LSN+1)
		}
		return r.l.corrupt(seq, bad.Error())
	}
	return err
}

// record reads one record from the stream's leader, again for Options.Patience while
// it does not answer.
func (l *Log) record(ctx context.Context, seq uint64) (wal.Record, error) {
	rec, _, err := l.recordSize(ctx, seq)
	return rec, err
}

func (l *Log) recordSize(ctx context.Context, seq uint64) (wal.Record, int, error) {
	patient, cancel := context.WithTimeout(ctx, l.s.opts.Patience)
	defer cancel()
	times := 0
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		msg, err := l.message(patient, seq)
		if err == nil {
			r, err := l.parse(seq, msg.Data)
			return r, len(msg.Data), err
		}
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			why := l.missing(patient, seq)
			if why != nil {
				times++
			}
			if errors.Is(why, wal.ErrPurged) || times == missingTimes {
				return wal.Record{}, 0, why
			}
		}
		l.wait(patient, pause)
		if err := l.over(ctx); err != nil {
			return wal.Record{}, 0, err
		}
		if patient.Err() != nil {
			return wal.Record{}, 0, errs.New(errs.Unavailable, "reading sequence %d of stream %s of shard %d: %v", seq, l.name, l.shard, err)
		}
	}
}

// missingTimes is how often a record has to be missing where it should be: the answers
// may be of a leader that has been deposed, and of its successor.
const missingTimes = 4

// missing says why there is no message with the sequence; nil when that is not known,
// or when it may come yet.
func (l *Log) missing(ctx context.Context, seq uint64) error {
	info, err := l.info(ctx)
	switch {
	case errs.Is(err, errs.CorruptData):
		return err
	case info == nil || info.State.LastSeq < seq:
		return nil
	case seq < info.State.FirstSeq:
		return l.purged(millrace.LSN(seq)-1, millrace.LSN(info.State.FirstSeq))
	}
	return l.damage(seq, "the record is missing")
}
