package wal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// replay is one Replay on its way.
type replay struct {
	l     *shardLog
	after millrace.LSN
	fn    func(millrace.LSN, millrace.Epoch, Entry) error

	at  Tail // after the last record passed
	asm assembler
	buf []byte // the scanner's window, from file to file
	bad int64  // of the current file: a bad stretch behind the last good record; -1 for none
}

// Replay reads the files one after the other. Files without records after the given
// LSN are left out: no entry goes on from one file to the next.
func (l *shardLog) Replay(ctx context.Context, after millrace.LSN, fn func(millrace.LSN, millrace.Epoch, Entry) error) error {
	spans, end := l.f.pin(l.shard)
	defer l.f.unpin()
	r := &replay{l: l, after: after, fn: fn}
	err := r.run(ctx, spans, end)
	if err == nil && r.asm.open {
		r.asm.abandoned++
	}
	if r.asm.abandoned > 0 {
		l.f.met.abandoned.Add(float64(r.asm.abandoned))
		l.f.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "log entries that were never finished are left out",
			slog.Int("shard", int(l.shard)), slog.Int("entries", r.asm.abandoned))
	}
	return err
}

func (r *replay) run(ctx context.Context, spans []span, end head) error {
	// Files of before the log was begun anew are left out; the first behind them says so.
	begun := func(sp span) bool { return sp.head(r.l.shard).LogID == end.LogID }
	spans = spans[max(slices.IndexFunc(spans, begun), 0):]
	started := false
	for i := range spans {
		sp, stop := &spans[i], end
		if i+1 < len(spans) {
			stop = spans[i+1].head(r.l.shard)
		}
		if stop.LSN <= r.after && stop.damage.file == 0 {
			continue
		}
		if !started {
			started = true
			r.at = sp.head(r.l.shard).Tail
			if r.at.LSN > r.after {
				return errs.Wrap(errs.CorruptData, "wal.Replay", fmt.Errorf("shard %d: records %d to %d were purged: %w", r.l.shard, r.after+1, r.at.LSN, ErrPurged))
			}
		}
		if err := r.file(ctx, sp); err != nil {
			return err
		}
		if err := r.cross(sp, stop); err != nil {
			return err
		}
	}
	return nil
}

// file passes the records of one file.
func (r *replay) file(ctx context.Context, sp *span) error {
	f := r.l.f
	name := f.path(sp.number, fileSuffix)
	file, err := f.fs.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return f.fileError("opening", name, err)
	}
	defer func() { _ = file.Close() }() // only read
	sc := newScanner(file, name, sp.number, f.opts.ClusterID, sp.data, sp.end)
	sc.buf = r.buf[:0]
	defer func() { r.buf = sc.buf }()
	r.bad = -1
	for {
		it, ok, err := sc.next()
		if err != nil || !ok {
			return err
		}
		switch {
		case it.bad && r.bad < 0 && (it.shard == r.l.shard || it.shard == noShard):
			r.bad = it.off // whether it matters, the chain tells
		case it.bad || it.shard != r.l.shard:
		default:
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := r.pass(sc, it); err != nil {
				return err
			}
		}
	}
}

// pass takes the next record of the shard.
func (r *replay) pass(sc *scanner, it item) error {
	h := &it.rec
	if h.newer() {
		return errNewer(fmt.Sprintf("shard %d: the record in %s at byte %d", r.l.shard, sc.name, it.off))
	}
	if h.epoch < r.at.Epoch { // of an owner that had been deposed
		r.l.f.met.fenced.Inc()
		return nil
	}
	if h.lsn <= r.after {
		return r.passBelow(sc, it)
	}
	if h.lsn != r.at.LSN+1 || h.logID != r.at.LogID {
		return r.gap(sc.name, it.off, fmt.Sprintf("record %d of log %x comes after record %d of log %x", h.lsn, h.logID, r.at.LSN, r.at.LogID))
	}
	if h.prev != r.at.Hash {
		return r.gap(sc.name, it.off, fmt.Sprintf("record %d does not continue the chain", h.lsn))
	}
	rec, ok, err := sc.record(it)
	if err != nil {
		return err
	}
	if !ok {
		return r.corrupt(sc.name, it.off, fmt.Sprintf("the checksum of record %d does not match", h.lsn))
	}
	r.at, r.bad = Tail{h.logID, h.lsn, h.hash, h.epoch}, -1
	err = r.asm.feed(h, rec[recordHeaderSize:], r.fn)
	if bad, ok := errors.AsType[*Malformed](err); ok {
		return r.corrupt(sc.name, it.off, bad.what)
	}
	return err
}

// passBelow takes a record that the caller has: it need not be whole, but an entry
// may go on behind it.
func (r *replay) passBelow(sc *scanner, it item) error {
	h := &it.rec
	r.at, r.bad = Tail{h.logID, h.lsn, h.hash, h.epoch}, -1
	if h.flags&recordContinues == 0 {
		r.asm.open = false
		return nil
	}
	rec, ok, err := sc.record(it)
	if err != nil {
		return err
	}
	if !ok || r.asm.feed(h, rec[recordHeaderSize:], nil) != nil {
		r.asm.open = false // that matters only if the entry turns out to end behind after
	}
	return nil
}

// cross checks what a file held against where the next one says that the shard stood.
func (r *replay) cross(sp *span, stop head) error {
	name := r.l.f.path(sp.number, fileSuffix)
	switch {
	case stop.damage.file != 0:
		return r.l.damaged(stop)
	case r.at.LSN == stop.LSN:
		if r.at.Hash != stop.Hash {
			return r.gap(name, sp.end, fmt.Sprintf("record %d is not the one that was written", stop.LSN))
		}
	case stop.LSN > r.after:
		return r.gap(name, sp.end, fmt.Sprintf("records %d to %d are missing", r.at.LSN+1, stop.LSN))
	default: // purged in between
		r.asm.open = false
	}
	r.at = stop.Tail
	return nil
}

// gap reports a chain that is broken: at the bad stretch before it, if there is one.
func (r *replay) gap(name string, off int64, what string) error {
	if r.bad >= 0 {
		off = r.bad
	}
	return r.corrupt(name, off, what)
}

func (r *replay) corrupt(name string, off int64, what string) error {
	r.l.f.met.damaged.Inc()
	return errCorrupt(r.l.shard, name, off, what)
}

func errCorrupt(s millrace.ShardID, name string, off int64, what string) error {
	return errs.New(errs.CorruptData, "shard %d: the log is damaged in %s at byte %d: %s", s, name, off, what)
}

// damaged is the error of a shard whose damage was found at a start.
func (l *shardLog) damaged(h head) error {
	return errCorrupt(l.shard, l.f.path(h.damage.file, fileSuffix), h.damage.off, fmt.Sprintf("records after %d cannot be read", h.LSN))
}
