package stream

import (
	"context"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// Append makes entries durable. It goes on for Options.Patience when the servers do
// not answer, whatever ctx says: what was begun has an outcome. errs.NotOwner: another
// has written to the log; errs.StorageFull and errs.Overloaded: nothing was written;
// errs.UnknownOutcome: the servers stayed away.
func (l *Log) Append(ctx context.Context, entries []wal.Entry) (millrace.LSN, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if l.stopped != nil {
		return 0, l.stopped
	}
	if len(entries) == 0 {
		return l.Tail().LSN, nil
	}
	if l.mustRaise && entries[0].Kind != wal.Epoch {
		return 0, errs.New(errs.NotOwner, "the log of shard %d was read anew: its owner begins an epoch first", l.shard)
	}
	begun := l.now()
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.s.opts.Patience)
	defer cancel()
	defer l.enc.Release()
	if err := l.land(work, entries); err != nil {
		return 0, err
	}
	l.mustRaise = false
	l.observe(begun)
	return l.Tail().LSN, nil
}

// land publishes entries until all are in the stream.
func (l *Log) land(ctx context.Context, entries []wal.Entry) error {
	done := 0 // entries that are in it whole
	for {
		if err := l.enc.Encode(l.Tail(), entries[done:]); err != nil {
			return err
		}
		if done == 0 {
			if err := l.room(ctx); err != nil {
				return err
			}
		}
		here, err := l.publishAll(ctx, done > 0)
		if all, _ := l.enc.Size(); here == all {
			return nil
		}
		done += l.ended(here)
		if err == nil { // a noop is in the place of a record: what is left goes behind it
			err = l.over(ctx)
		}
		switch {
		case err == nil:
		case done > 0: // the caller cannot tell them from those that are not in it
			return l.stop(errs.New(errs.UnknownOutcome, "the first %d of %d entries are in the log of shard %d: %v", done, len(entries), l.shard, err))
		case ctx.Err() != nil && errs.Is(err, errs.Internal): // it is ctx's
			return errs.New(errs.Unavailable, "NATS did not answer for %v: nothing was written to the log of shard %d", l.s.opts.Patience, l.shard)
		default:
			return err
		}
	}
}

// stop lets nothing more be appended (T3), and returns err. Who appends afterwards is
// told that nothing was written.
func (l *Log) stop(err *errs.Error) error {
	err.Err = wal.ErrStopped
	later := &errs.Error{Code: err.Code, Message: err.Message, Err: err.Err}
	if err.Code == errs.UnknownOutcome {
		later.Code, later.Message = errs.Unavailable, fmt.Sprintf("the log of shard %d has to be opened anew: %s", l.shard, err.Message)
	}
	if l.stopped == nil {
		l.stopped = later
	}
	l.mustRaise = true
	return err
}

// publishAll publishes the records of the encoder one after the other, and says how
// many are in the stream. When not all are and there is no error, a noop is in the
// place of the next.
func (l *Log) publishAll(ctx context.Context, begun bool) (int, error) {
	here := 0
	for end, rec := range l.enc.Records() {
		if is, err := l.publishOne(ctx, end, rec, begun || here > 0); !is {
			return here, err
		}
		l.moved(end, len(rec))
		l.s.met.records.Inc()
		l.s.met.bytes.Add(float64(len(rec)))
		here++
	}
	return here, nil
}

// ended is how many entries end in the first records of the encoder.
func (l *Log) ended(records int) int {
	n := 0
	for _, rec := range l.enc.Records() {
		if records--; records < 0 {
			break
		}
		if r, err := wal.ParseRecord(rec); err == nil {
			n += r.Ends()
		}
	}
	return n
}

// publishOne publishes one record and says whether it is in the stream. When it is not
// and there is no error, a noop is. An append that has begun waits for room.
func (l *Log) publishOne(ctx context.Context, end wal.Tail, rec []byte, begun bool) (bool, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		out, err := l.publish(ctx, uint64(end.LSN), rec)
		switch out {
		case stored:
			return true, nil
		case doubtful:
			return l.settle(ctx, end, rec, err)
		case full:
			if l.s.met.full.Inc(); !begun {
				return false, errs.New(errs.StorageFull, "stream %s of shard %d has no room: %v", l.name, l.shard, err)
			}
		case refused:
			return false, errs.New(errs.InvalidRequest, "NATS does not take a record into stream %s of shard %d: %v", l.name, l.shard, err)
		case unsent:
			if _, why := l.info(ctx); errs.Is(why, errs.CorruptData) {
				return false, why
			}
		case busy:
		}
		l.s.met.refused.Inc()
		l.wait(ctx, pause)
		if over := l.over(ctx); over != nil {
			switch out {
			case busy:
				return false, errs.New(errs.Overloaded, "NATS has too much to do for stream %s of shard %d: %v", l.name, l.shard, err)
			case full:
				return false, errs.New(errs.StorageFull, "stream %s of shard %d has no room: %v", l.name, l.shard, err)
			default:
			}
			return false, errs.New(errs.Unavailable, "stream %s of shard %d cannot be reached: %v", l.name, l.shard, err)
		}
	}
}

// room refuses what does not fit before any of it is written. The size that it knows
// is above the real one after a purge by another, so it asks before it refuses.
func (l *Log) room(ctx context.Context) error {
	records, bytes := l.enc.Size()
	need := int64(bytes + records*messageBytes)
	fits := func() bool {
		l.at.Lock()
		defer l.at.Unlock()
		return l.at.bytes+need <= l.s.opts.MaxBytes
	}
	if fits() {
		return nil
	}
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	if l.sized(info); fits() {
		return nil
	}
	l.s.met.full.Inc()
	return errs.New(errs.StorageFull, "stream %s of shard %d has no room for %d bytes: it holds %d of %d", l.name, l.shard, need, info.State.Bytes, l.s.opts.MaxBytes)
}
