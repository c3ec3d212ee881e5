package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/storage/wal"
)

// bug is what is planted.
type bug int

const (
	noBug       bug = iota
	lostFence       // the log takes appends of deposed owners
	lostOverlay     // after an unknown outcome the shard goes on as if nothing were in the log
	earlyPurge      // the log is purged before the checkpoint is in the object store
	staleRead       // the lease is never looked at
)

// faultyLog is a log as one process has it.
type faultyLog struct {
	wal.Log
	p *process

	mu   sync.Mutex
	rng  *rand.Rand
	dead error
}

func (l *faultyLog) away(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.p.gone.Err() != nil {
		return errs.Wrap(errs.NotOwner, "log", fmt.Errorf("the process was killed: %w", wal.ErrStopped))
	}
	if l.p.noLog.Load() {
		return errs.New(errs.Unavailable, "the log is away")
	}
	return nil
}

// draw says what becomes of an append: with the likelihood of the process's faults.
func (l *faultyLog) draw() (kind int, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(100) >= int(l.p.logFaults.Load()) {
		return 0, 0
	}
	return []int{1, 2, 3, 4, 4, 5, 5}[l.rng.IntN(7)], time.Duration(l.rng.IntN(40_000)) * time.Millisecond
}

func (l *faultyLog) stop(code errs.Code, why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead == nil {
		l.dead = errs.Wrap(code, "log", fmt.Errorf("%s: %w", why, wal.ErrStopped))
	}
	return l.dead
}

func (l *faultyLog) stopped() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead == nil {
		return nil
	}
	return errs.Wrap(errs.NotOwner, "log", l.dead)
}

// Append appends, or does what the faults make of it. The record of an epoch is never
// waited for: who begins one holds mutexes.
func (l *faultyLog) Append(ctx context.Context, entries []wal.Entry) (millrace.LSN, error) {
	if err := l.stopped(); err != nil {
		return 0, err
	}
	if err := l.away(ctx); err != nil {
		return 0, err
	}
	kind, delay := l.draw()
	epoch := len(entries) > 0 && entries[0].Kind == wal.Epoch
	switch kind {
	case 1:
		return 0, errs.New(errs.Unavailable, "the log refuses")
	case 2: // nothing is there
		return 0, l.stop(errs.UnknownOutcome, "no answer came")
	case 3: // it is there
		lsn, err := l.append(ctx, entries)
		if err != nil {
			return lsn, err
		}
		if l.p.w.bug == lostOverlay && !epoch {
			return 0, errs.New(errs.Unavailable, "no answer came")
		}
		return 0, l.stop(errs.UnknownOutcome, "no answer came")
	case 4: // it lands late, whatever becomes of the process
		if !epoch {
			held := make([]wal.Entry, len(entries))
			for i, e := range entries {
				held[i] = wal.Entry{Kind: e.Kind, Ignorable: e.Ignorable, Data: bytes.Join(append([][]byte{e.Data}, e.More...), nil)}
			}
			l.p.w.late.Go(func() {
				time.Sleep(delay)
				_, _ = l.append(context.Background(), held)
			})
			return 0, l.stop(errs.UnknownOutcome, "no answer came")
		}
	case 5: // it takes its time
		if !epoch {
			if err := l.p.sleep(delay); err != nil {
				return 0, l.stop(errs.UnknownOutcome, err.Error())
			}
		}
	}
	return l.append(ctx, entries)
}

func (l *faultyLog) append(ctx context.Context, entries []wal.Entry) (millrace.LSN, error) {
	if l.p.w.bug == lostFence {
		if _, err := l.Log.Refresh(ctx); err != nil {
			return 0, err
		}
	}
	return l.Log.Append(ctx, entries)
}

func (l *faultyLog) Replay(ctx context.Context, after millrace.LSN, fn func(millrace.LSN, millrace.Epoch, wal.Entry) error) error {
	if err := l.away(ctx); err != nil {
		return err
	}
	return l.Log.Replay(ctx, after, fn)
}

func (l *faultyLog) Refresh(ctx context.Context) (wal.Tail, error) {
	if err := l.away(ctx); err != nil {
		return wal.Tail{}, err
	}
	return l.Log.Refresh(ctx)
}

func (l *faultyLog) HashAt(ctx context.Context, lsn millrace.LSN) (uint64, bool, error) {
	if err := l.away(ctx); err != nil {
		return 0, false, err
	}
	return l.Log.HashAt(ctx, lsn)
}

// Purge purges; now and then it is on its way for a while, whatever becomes of the process.
func (l *faultyLog) Purge(ctx context.Context, upTo millrace.LSN) error {
	if err := l.away(ctx); err != nil {
		return err
	}
	if kind, delay := l.draw(); kind > 0 {
		l.p.w.late.Go(func() {
			time.Sleep(delay)
			_ = l.Log.Purge(context.Background(), upTo)
		})
		return nil
	}
	return l.Log.Purge(ctx, upTo)
}

// hastyRemote purges the log first.
type hastyRemote struct {
	shard.Remote
	stream *storagetest.Stream
}

func (r hastyRemote) Publish(ctx context.Context, c *shard.RemoteCheckpoint) error {
	if err := r.stream.Open().Purge(ctx, c.Manifest.LSN); err != nil {
		return err
	}
	return r.Remote.Publish(ctx, c)
}
