package router

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// WriterSequence numbers a batch of a writer, or a chunk of the body that an
// idempotency key is of, so that what is sent again is not written again.
type WriterSequence struct {
	Principal string // who writes; "" without authentication
	ID        string // the writer's own name for itself, or the key
	// Key says that ID is an idempotency key. Hash is then of the chunk as it came, not
	// 0, and Seq its number in the body.
	Key   bool
	Hash  uint64
	Epoch uint64
	Seq   uint64 // from 1
}

const (
	// MaxWriterIDBytes bounds a writer's id.
	MaxWriterIDBytes = 256
	// MaxKeyLength bounds an idempotency key.
	MaxKeyLength = 255
	// KeyTTL is how long an idempotency key is remembered.
	KeyTTL = shard.KeyIdle
)

// scope names a writer or key for a bucket: who it is, and what it calls itself.
func (w *WriterSequence) scope() string {
	s := fmt.Sprintf("%d:%s%s", len(w.Principal), w.Principal, w.ID)
	if w.Key {
		return string(shard.KeyScope) + s
	}
	return s
}

func (w *WriterSequence) check() error {
	switch {
	case w == nil:
		return nil
	case w.Key:
		return CheckKey(w.ID)
	case w.ID == "" || len(w.ID) > MaxWriterIDBytes:
		return errs.New(errs.InvalidValue, "a writer id has 1 to %d bytes", MaxWriterIDBytes)
	case w.Seq == 0:
		return errs.New(errs.InvalidValue, "writer sequences begin at 1")
	}
	return nil
}

// CheckKey says whether a text can be an idempotency key.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKeyLength || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errs.New(errs.InvalidValue, "an Idempotency-Key has 1 to %d visible ASCII characters", MaxKeyLength)
	}
	return nil
}

// runningKeys are the idempotency keys whose requests this process is serving. Two
// requests with one key would find each other's chunks in the buckets and write
// nothing twice; but the second cannot be answered while the first may still fail.
type runningKeys struct {
	mu   sync.Mutex
	held map[runningKey]struct{}
}

type runningKey struct {
	table          millrace.TableID
	principal, key string
}

// BeginKey begins a request with an idempotency key; end ends it. It is
// errs.IdempotencyInProgress while another one with that key is served.
func (r *Router) BeginKey(t *millrace.Table, principal, key string) (end func(), err error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	k, running := runningKey{t.ID, principal, key}, &r.running
	running.mu.Lock()
	defer running.mu.Unlock()
	if _, taken := running.held[k]; taken {
		return nil, errs.New(errs.IdempotencyInProgress, "a request with this Idempotency-Key is still running: its outcome comes to the same request sent again after it")
	}
	if running.held == nil {
		running.held = map[runningKey]struct{}{}
	}
	running.held[k] = struct{}{}
	return func() {
		running.mu.Lock()
		defer running.mu.Unlock()
		delete(running.held, k)
	}, nil
}

// Line is the order of the batches of one stream, which are written without waiting
// for each other: none is taken behind one that failed, so that the stream can be
// sent again from there on. Numbered batches are started when all of the one before
// was taken up by its shards, so that this holds across shards, too. It belongs to the
// goroutine that starts the batches.
//
// Shards that are elsewhere do not know of the line: what goes to one is started when
// everything before it was answered, and so is what comes after that.
type Line struct {
	shard shard.Line
	place uint64
	last  []*opWrite // of the batch before
	open  []*opWrite // those that were not seen to be answered
	// at is where ops went last, by shard; nil: elsewhere.
	at map[millrace.ShardID]*shard.Shard
}

// next puts a batch's ops in line, when nothing before them failed.
func (l *Line) next(ctx context.Context, numbered bool, parts []pendingPart) error {
	if l == nil {
		return nil
	}
	l.open = slices.DeleteFunc(l.open, func(w *opWrite) bool { return w.settled.Load() })
	switch {
	case l.moved(parts):
		for _, w := range l.open {
			if _, err := w.wait(ctx); err != nil && ctx.Err() != nil {
				return ctx.Err()
			}
		}
	case numbered:
		for _, w := range l.last {
			if err := w.decided(ctx); err != nil {
				return err
			}
		}
	}
	l.last = l.last[:0]
	l.place++
	for i := range parts {
		parts[i].op.Line, parts[i].op.Place = &l.shard, l.place
		parts[i].before = l.open
	}
	return l.shard.Err(l.place)
}

// moved says whether ops go elsewhere, or went, or to a shard that was opened anew:
// places hold by themselves only in one.
func (l *Line) moved(parts []pendingPart) bool {
	for i := range parts {
		sh := parts[i].sh
		if was, before := l.at[parts[i].id]; sh == nil || before && was != sh {
			return true
		}
	}
	return slices.ContainsFunc(l.last, func(w *opWrite) bool { return w.sh == nil })
}

// started notes a batch that was started.
func (l *Line) started(parts []pendingPart) {
	if l == nil {
		return
	}
	if l.at == nil {
		l.at = map[millrace.ShardID]*shard.Shard{}
	}
	l.open = slices.Clone(l.open) // which ops refer to
	for i := range parts {
		w := &parts[i].opWrite
		l.last, l.open = append(l.last, w), append(l.open, w)
		l.at[w.id] = w.sh
	}
}
