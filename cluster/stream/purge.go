package stream

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

const (
	// blindStep is how many records are surely not above the bytes of a step.
	blindStep = 256 << 20 / (1 << 20)
	// markStep is how many marks are: the one that it begins in, each with a record more.
	markStep = 256<<20/(markBytes+1<<20) - 1

	purgeTimeout = 30 * time.Second
)

// Purge removes records up to upTo, in steps of at most 256 MiB, during each of which
// the stream takes nothing. The record upTo itself stays, the chain goes on from it,
// and so do those before it that an entry which ends behind it begins in.
func (l *Log) Purge(ctx context.Context, upTo millrace.LSN) error {
	upTo = min(upTo, l.Tail().LSN)
	if upTo <= 1 {
		return ctx.Err()
	}
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	first := millrace.LSN(info.State.FirstSeq)
	if upTo <= first {
		return nil
	}
	keep, err := l.beginning(ctx, upTo, first)
	if err != nil {
		return err
	}
	for first < keep {
		first = l.step(first, keep)
		rctx, cancel := l.s.conn.Request(ctx, purgeTimeout)
		err := l.st.Purge(rctx, jetstream.WithPurgeSequence(uint64(first)))
		cancel()
		if isGone(err) {
			return l.gone()
		}
		if err != nil {
			return errs.New(errs.Unavailable, "purging stream %s of shard %d up to %d: %v", l.name, l.shard, first, err)
		}
	}
	l.at.Lock()
	l.at.marks = slices.DeleteFunc(l.at.marks, func(m mark) bool { return m.lsn < keep })
	l.at.Unlock()
	if info, err = l.info(ctx); err == nil {
		l.sized(info)
	}
	return nil // what is left is told some other time
}

// step is the record up to which one step may go.
func (l *Log) step(first, keep millrace.LSN) millrace.LSN {
	l.at.Lock()
	defer l.at.Unlock()
	blind := min(keep, first+blindStep)
	if len(l.at.marks) == 0 || first < l.at.from {
		return blind
	}
	i, _ := slices.BinarySearchFunc(l.at.marks, first, func(m mark, lsn millrace.LSN) int { return cmp.Compare(m.lsn, lsn) })
	if i == len(l.at.marks) {
		return blind
	}
	return max(blind, min(keep, l.at.marks[min(i+markStep, len(l.at.marks)-1)].lsn))
}

// beginning is the record in which the entry begins that goes on behind lsn; lsn
// itself when none does.
func (l *Log) beginning(ctx context.Context, lsn, first millrace.LSN) (millrace.LSN, error) {
	for at := lsn; at >= first; at-- {
		r, err := l.record(ctx, uint64(at))
		if err != nil {
			return 0, err
		}
		if !r.Continues() {
			return min(at+1, lsn), nil
		}
	}
	return first, nil
}
