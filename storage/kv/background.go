package kv

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/errs"
)

const (
	// retryDelay is how long a job of Pebble waits before it tries again what failed:
	// Pebble itself tries at once, for as long as the disk is full.
	retryDelay = 100 * time.Millisecond
	// After so many failures in a row, each further one costs a pause.
	failsBeforePause = 3
	failPause        = 20 * time.Millisecond
)

// background follows what Pebble does by itself, and ends it when it cannot go on.
// It is Pebble's logger: that is where Pebble reports what is fatal to it.
type background struct {
	logger  *slog.Logger
	dir     string
	onDeath func(error)
	mu      struct {
		sync.Mutex
		changed chan struct{} // closed and replaced at each change
		failing error         // why the last flush or compaction failed; nil after a flush that did not
		damage  error         // the first damage met
		cause   error         // of death
		lock    io.Closer     // of the directory
		fails   uint64
		row     uint64 // of them, since one did not fail
	}
	dead chan struct{}
}

func newBackground(o *Options) *background {
	b := &background{logger: o.Logger, dir: o.Dir, onDeath: o.OnDeath, dead: make(chan struct{})}
	b.mu.changed = make(chan struct{})
	return b
}

// open opens the database in a goroutine of its own, which Fatalf may end, or leave to
// wait for another one that it has ended.
func (b *background) open(dir string, o *pebble.Options) (*pebble.DB, error) {
	type opened struct {
		db  *pebble.DB
		err error
	}
	done := make(chan opened, 1)
	go func() {
		db, err := pebble.Open(dir, o)
		done <- opened{db, err}
	}()
	var made opened
	select {
	case made = <-done:
	case <-b.dead:
	}
	if cause := b.death(); cause != nil {
		b.unlock()
		return nil, cause
	}
	return made.db, made.err
}

// locked keeps the lock of the directory, which a dead Pebble does not let go of.
func (b *background) locked(lock io.Closer) io.Closer {
	once := &onceCloser{Closer: lock}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.lock = once
	return once
}

// unlock lets others open the directory.
// REQUIRES: Pebble is dead.
func (b *background) unlock() {
	b.mu.Lock()
	lock := b.mu.lock
	b.mu.Unlock()
	if lock == nil {
		return
	}
	if err := lock.Close(); err != nil {
		b.logger.Error("lock of a dead state not released", slog.String("dir", b.dir), slog.Any("err", err))
	}
}

// onceCloser is closed once, whoever closes it.
type onceCloser struct {
	io.Closer
	once sync.Once
	err  error
}

func (c *onceCloser) Close() error {
	c.once.Do(func() { c.err = c.Closer.Close() })
	return c.err
}

func (b *background) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			b.logger.Error("pebble job failed", slog.String("dir", b.dir), slog.Any("err", err))
			var row uint64
			b.note(func() {
				b.mu.failing, b.mu.fails, b.mu.row = err, b.mu.fails+1, b.mu.row+1
				row = b.mu.row
			})
			if row > failsBeforePause {
				// A compaction that cannot read is tried again at once, for ever. Pebble
				// holds a lock here, so it is not for long.
				b.pause(failPause)
			}
		},
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err == nil {
				b.note(func() { b.mu.failing, b.mu.row = nil, 0 })
			}
		},
		// The read or the compaction that met it fails; rows elsewhere are served.
		// Pebble's own answer would be to end the process.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			err := errs.New(errs.CorruptData, "%s is damaged: %v", info.Path, info.Details)
			b.logger.Error("state is damaged", slog.String("file", info.Path), slog.Any("err", info.Details))
			b.note(func() {
				if b.mu.damage == nil {
					b.mu.damage = err
				}
			})
		},
	}
}

// pause waits, until Pebble is dead at the latest.
func (b *background) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.dead:
	}
}

func (b *background) note(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	close(b.mu.changed)
	b.mu.changed = make(chan struct{})
}

// state is how things stand, and a channel that is closed when that changes.
func (b *background) state() (fails uint64, changed <-chan struct{}, failing error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.fails, b.mu.changed, b.mu.failing
}

func (b *background) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.cause != nil {
		return b.mu.cause
	}
	if b.mu.damage != nil {
		return b.mu.damage
	}
	return diskError("kv", b.mu.failing)
}

func (b *background) death() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.cause
}

// Infof is Pebble's chatter.
func (b *background) Infof(format string, args ...any) {
	b.logger.Debug("pebble", slog.String("event", fmt.Sprintf(format, args...)))
}

// Errorf is what Pebble wants an operator to know.
func (b *background) Errorf(format string, args ...any) {
	b.logger.Error("pebble", slog.String("event", fmt.Sprintf(format, args...)))
}

// Fatalf must not return: Pebble does not know any more what its manifest holds.
// It ends the calling goroutine, whose deferred calls let go of Pebble's locks, and
// the fence keeps the others from writing (K3). Ending the process instead would
// take the shards with it that are sound.
func (b *background) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	cause := errors.New(text)
	for _, a := range args {
		if err, ok := a.(error); ok {
			cause = err
		}
	}
	err := diskError("kv", fmt.Errorf("the state in %s cannot be written any more until a restart: %s: %w", b.dir, text, cause))
	first := false
	b.note(func() {
		if first = b.mu.cause == nil; first {
			b.mu.cause = err
			close(b.dead)
		}
	})
	b.logger.Error("pebble cannot go on", slog.String("dir", b.dir), slog.String("event", text))
	if first && b.onDeath != nil {
		b.onDeath(err)
	}
	runtime.Goexit()
}

// diskError gives an error of the file system its code.
func diskError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errs.CodeOf(err) != errs.Internal:
		return fmt.Errorf("%s: %w", op, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errs.Wrap(errs.StorageFull, op, err)
	}
	return errs.Wrap(errs.Unavailable, op, err)
}
