package stream

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// Log is the log of one shard.
type Log struct {
	s       *Streams
	shard   millrace.ShardID
	name    string // of the stream
	subject string
	writer  string // our name in the headers of what we publish
	st      jetstream.Stream
	size    prometheus.Gauge

	mu        sync.Mutex // held by Append and Refresh: one at a time
	enc, noop *wal.Encoder
	logID     uint64 // that the stream's metadata says
	stopped   error  // why nothing is appended (T3)
	mustRaise bool   // the next append begins an epoch (T3)
	// damagedEnd lets the end be one that does not read, for who looks what does.
	damagedEnd bool

	at struct {
		sync.Mutex
		end   wal.Tail
		bytes int64 // in the stream, about
		// How much lies where, of the records from..: what this Log has written or replayed.
		from  millrace.LSN
		marks []mark
		// Where a replay ended with a record in which no entry goes on: who follows the
		// log goes on there.
		passed wal.Tail
	}
}

var _ wal.Log = (*Log)(nil)

// mark says that about markBytes lie between it and the mark before.
type mark struct {
	lsn   millrace.LSN
	bytes int64
}

const (
	markBytes = 32 << 20
	// messageBytes is about what a message takes besides its record.
	messageBytes = 256
)

// Tail is the end of the log, as far as this Log knows.
func (l *Log) Tail() wal.Tail {
	l.at.Lock()
	defer l.at.Unlock()
	return l.at.end
}

// Writes says whether the log takes appends; the error is why not.
func (l *Log) Writes() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// moved takes note of a record of ours that landed.
func (l *Log) moved(end wal.Tail, bytes int) {
	l.at.Lock()
	defer l.at.Unlock()
	l.at.end = end
	l.at.bytes += int64(bytes + messageBytes)
	l.size.Set(float64(l.at.bytes))
	l.markLocked(end.LSN, bytes)
}

// markLocked remembers where in the log about markBytes end.
//
// REQUIRES: l.at is held.
func (l *Log) markLocked(lsn millrace.LSN, bytes int) {
	n := len(l.at.marks)
	switch {
	case n > 0 && lsn <= l.at.marks[n-1].lsn:
		return
	case n == 0 || lsn != l.at.marks[n-1].lsn+1: // how much lies before is not known
		l.at.from, l.at.marks, n = lsn, append(l.at.marks[:0], mark{lsn: lsn}), 1
	case l.at.marks[n-1].bytes >= markBytes:
		l.at.marks, n = append(l.at.marks, mark{}), n+1
	}
	m := &l.at.marks[n-1]
	m.lsn, m.bytes = lsn, m.bytes+int64(bytes)
}

// wait waits, unless ctx or the connection's life ends first.
func (l *Log) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-l.s.conn.Done():
	case <-t.C:
	}
}

func (l *Log) now() time.Time {
	if l.s.opts.Clock == nil {
		return time.Time{}
	}
	return l.s.opts.Clock.Now()
}

func (l *Log) observe(begun time.Time) {
	if l.s.opts.Clock != nil {
		l.s.met.append.Observe(l.s.opts.Clock.Now().Sub(begun).Seconds())
	}
}

// over says why waiting is over; nil while it is not.
func (l *Log) over(ctx context.Context) error {
	select {
	case <-l.s.conn.Done():
		return errs.New(errs.Draining, "the connection to NATS is closed")
	default:
		return ctx.Err()
	}
}

// corrupt is the error of damage at a sequence of the stream.
func (l *Log) corrupt(seq uint64, what string) error {
	l.s.met.damaged.Inc()
	return l.damage(seq, what)
}

func (l *Log) damage(seq uint64, what string) error {
	return errs.New(errs.CorruptData, "shard %d: the log is damaged in stream %s at sequence %d: %s", l.shard, l.name, seq, what)
}
