package shard

import (
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/kv"
)

// Sequence numbers a batch of a writer, so that a retry is recognised.
type Sequence struct {
	// Scope names the writer: principal and writer id, put together by the front; at
	// most MaxScopeBytes. One that begins with KeyScope is an idempotency key.
	Scope string
	// Epoch fences older instances of the writer; 0 when the writer has none.
	Epoch uint64
	// Seq is the batch's number, from 1. Of a key it is the chunk's number in its body.
	Seq uint64
	// Hash is of the whole chunk as the client sent it, not of this bucket's part: so
	// another body is found wherever both have rows for one bucket. Only keys have one.
	Hash uint64
}

// KeyScope begins the scope of an idempotency key.
const KeyScope = 'k'

// MaxScopeBytes bounds a writer's scope.
const MaxScopeBytes = 1024

// How long a bucket remembers a writer, or a key, of which it takes nothing.
const (
	writerIdle = 7 * 24 * time.Hour
	KeyIdle    = 24 * time.Hour
)

func isKey(scope string) bool { return scope != "" && scope[0] == KeyScope }

// forgotten says whether a writer is no longer remembered.
func forgotten(scope string, seenMicros int64, now time.Time) bool {
	idle := writerIdle
	if isKey(scope) {
		idle = KeyIdle
	}
	return seenMicros < now.Add(-idle).UnixMicro()
}

// admit decides what becomes of a numbered batch: new (nil, nil), a duplicate
// (the batch it repeats, or one without offsets when that is forgotten), or an
// error. w is what the bucket knows of the writer, nil when nothing.
func admit(w *kv.Writer, s *Sequence) (*Result, error) {
	if isKey(s.Scope) && s.Seq > kv.KeyChunks {
		return nil, errs.New(errs.TooLarge, "a request with an idempotency key has at most %d chunks: send less at once, or number the batches with X-Writer-Id and X-Writer-Seq", kv.KeyChunks)
	}
	if w == nil {
		return nil, nil
	}
	if s.Epoch < w.Epoch {
		return nil, errs.New(errs.WriterFenced, "writer epoch %d is fenced: an instance with epoch %d has written since", s.Epoch, w.Epoch)
	}
	if len(w.Taken) == 0 || s.Seq > w.Taken[len(w.Taken)-1].Seq {
		return nil, nil
	}
	i, found := slices.BinarySearchFunc(w.Taken, s.Seq, func(t kv.Taken, seq uint64) int {
		switch {
		case t.Seq < seq:
			return -1
		case t.Seq > seq:
			return 1
		}
		return 0
	})
	if found && w.Taken[i].Hash != s.Hash {
		return nil, errs.New(errs.IdempotencyKeyReused, "the idempotency key came before with another body: a key is for one request, sent again unchanged")
	}
	if found {
		return &Result{Start: w.Taken[i].Start, End: w.Taken[i].End, Duplicate: true}, nil
	}
	if i == 0 && len(w.Taken) == kv.WriterWindow && !isKey(s.Scope) {
		return &Result{Start: millrace.NoOffset, End: millrace.NoOffset, Duplicate: true}, nil
	}
	if isKey(s.Scope) {
		// Only a request that goes on after refusals leaves a chunk out.
		return nil, errs.New(errs.OutOfOrderSequence, "chunk %d was refused here when the idempotency key first came, and stays so: send what is to be written under another key", s.Seq)
	}
	last := w.Taken[len(w.Taken)-1].Seq
	return nil, errs.New(errs.OutOfOrderSequence,
		"sequence %d was never taken by this bucket, which has gone on to %d: resend unchanged batches only, in rising order", s.Seq, last)
}

// taken is w with the batch added; w itself stays as it is, since what is not
// durable yet may be dropped.
func taken(w *kv.Writer, s *Sequence, start, end millrace.Offset, timeMicros int64) *kv.Writer {
	n := &kv.Writer{Epoch: s.Epoch, SeenMicros: timeMicros}
	if w != nil {
		keep := w.Taken
		if len(keep) == kv.WriterWindow && !isKey(s.Scope) {
			keep = keep[1:]
		}
		n.Taken = append(make([]kv.Taken, 0, len(keep)+1), keep...)
	}
	n.Taken = append(n.Taken, kv.Taken{Seq: s.Seq, Start: start, End: end, Hash: s.Hash})
	return n
}

// raised is w with a higher epoch: the first that a newer instance of a writer sends
// may be a batch that the older one sent, and that one is fenced from then on.
func raised(w *kv.Writer, epoch uint64, timeMicros int64) *kv.Writer {
	return &kv.Writer{Epoch: epoch, SeenMicros: timeMicros, Taken: w.Taken}
}
