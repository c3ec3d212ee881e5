package router

import (
	"context"
	"sync"
	"sync/atomic"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// opWrite is an op on its way to its shard, wherever that is.
type opWrite struct {
	r  *Router
	op *shard.Op
	id millrace.ShardID

	sh      *shard.Shard   // when it was here
	pending *shard.Pending // there
	refused error          // when it was not taken up
	call    *writeCall     // when the shard is elsewhere
	at      int            // in the call

	before  []*opWrite  // in line, which are answered before this is sent again
	settled atomic.Bool // the outcome is final, and was seen

	mu    sync.Mutex
	again bool // it was sent again
	out   Written
}

// writeCall is the ops of a batch that go to one shard elsewhere.
type writeCall struct {
	ops  []*shard.Op
	outs []Written
	done chan struct{}
}

// start hands the ops of a batch to their shards: those of a shard elsewhere at once.
func (r *Router) start(ctx context.Context, parts []pendingPart) {
	var calls map[millrace.ShardID]*writeCall
	for i := range parts {
		w := &parts[i].opWrite
		if w.sh != nil {
			w.pending, w.refused = w.sh.Start(ctx, w.op)
			continue
		}
		c := calls[w.id]
		if c == nil {
			if calls == nil {
				calls = map[millrace.ShardID]*writeCall{}
			}
			c = &writeCall{done: make(chan struct{})}
			calls[w.id] = c
		}
		w.call, w.at = c, len(c.ops)
		c.ops = append(c.ops, w.op)
	}
	for id, c := range calls {
		go func() {
			defer close(c.done)
			c.outs = r.write(ctx, id, c.ops, make([]bool, len(c.ops)))
		}()
	}
}

// wait is the outcome of the op. What a shard refused because it has moved is sent again
// by who waits first.
func (w *opWrite) wait(ctx context.Context) (shard.Result, error) {
	var out Written
	switch {
	case w.call != nil:
		select {
		case <-w.call.done:
			out = w.call.outs[w.at]
		case <-ctx.Done():
			return shard.Result{}, errs.New(errs.UnknownOutcome, "the write was sent and not answered in time: %v", ctx.Err())
		}
	case w.pending != nil:
		out.Result, out.Err = w.pending.Wait(ctx)
	default:
		out.Err = w.refused
	}
	if w.call == nil && w.r.sendsAgain(ctx, w.op, out.Err, false) {
		out = w.sendAgain(ctx, errs.Is(out.Err, errs.UnknownOutcome))
	}
	if ctx.Err() == nil || out.Err == nil {
		w.settled.Store(true)
		w.mu.Lock()
		w.before = nil
		w.mu.Unlock()
	}
	return out.Result, out.Err
}

// decided waits until nothing keeps the op from being taken but its log. REQUIRES: it is
// in line.
func (w *opWrite) decided(ctx context.Context) error {
	if w.pending != nil {
		if err := w.pending.Decided(ctx); err != nil {
			return err
		}
		if !w.pending.Refused(errs.NotOwner) {
			return nil
		}
	}
	_, err := w.wait(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return nil // the line knows of failures
}

// sendAgain sends the op to where its shard is now, when what stands before it in line
// was answered. Who comes while that is done waits for the same outcome.
func (w *opWrite) sendAgain(ctx context.Context, unknown bool) Written {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again {
		return w.out
	}
	for _, b := range w.before {
		_, _ = b.wait(ctx) // the line knows of failures
	}
	w.out = w.r.write(ctx, w.id, []*shard.Op{w.op}, []bool{unknown})[0]
	w.again = ctx.Err() == nil || w.out.Err == nil
	return w.out
}

// sendsAgain says whether an op that got an error goes to where its shard is then.
// unknown says that an outcome before was not known: then what refuses it for the moment
// does not end it, either.
func (r *Router) sendsAgain(ctx context.Context, op *shard.Op, err error, unknown bool) bool {
	numbered := op.Writer != nil && !r.fixed && ctx.Err() == nil
	switch errs.CodeOf(err) {
	case errs.NotOwner:
		return true
	case errs.UnknownOutcome:
		return numbered
	case errs.Unavailable, errs.Draining, errs.Overloaded:
		return numbered && unknown
	default:
		return false
	}
}

// write writes ops to one shard, wherever it is: those that it does not take, because it
// is not there, and numbered ones of which that is not known, are sent again while there
// is time. unknown says of which an outcome before was not known.
func (r *Router) write(ctx context.Context, id millrace.ShardID, ops []*shard.Op, unknown []bool) []Written {
	outs := make([]Written, len(ops))
	left := indexes(len(ops))
	var p pauses
	for {
		some := make([]*shard.Op, len(left))
		for k, i := range left {
			some[k] = ops[i]
		}
		got := r.writeOnce(ctx, id, some)
		still := left[:0:0]
		for k, i := range left {
			outs[i] = got[k]
			if err := got[k].Err; r.sendsAgain(ctx, ops[i], err, unknown[i]) {
				unknown[i] = unknown[i] || errs.Is(err, errs.UnknownOutcome)
				still = append(still, i)
			}
		}
		if left = still; len(left) == 0 {
			break
		}
		if err := p.wait(ctx, id); err != nil {
			for _, i := range left {
				outs[i].Err = err
			}
			break
		}
	}
	for i := range outs {
		if err := outs[i].Err; err != nil {
			if unknown[i] && !errs.Is(err, errs.UnknownOutcome) {
				outs[i].Err = errs.New(errs.UnknownOutcome, "the write was sent and not answered, and then: %v", err)
			}
			if ops[i].Line != nil {
				ops[i].Line.Fail(ops[i].Place)
			}
		}
	}
	return outs
}

// writeOnce writes ops to where their shard is now.
func (r *Router) writeOnce(ctx context.Context, id millrace.ShardID, ops []*shard.Op) []Written {
	outs := make([]Written, len(ops))
	sh, rem := r.o.Owners.Owner(id)
	if sh != nil {
		return WriteHere(ctx, sh, ops)
	}
	err := notHere(id)
	if rem != nil {
		var got []Written
		if got, err = rem.Write(ctx, ops); err == nil && len(got) == len(ops) {
			return got
		} else if err == nil {
			err = errs.New(errs.UnknownOutcome, "shard %d was sent %d writes and answers %d", id, len(ops), len(got))
		}
	}
	for i := range outs {
		outs[i].Err = err
	}
	return outs
}

// WriteHere writes ops to a shard that is here, and waits for them.
func WriteHere(ctx context.Context, sh *shard.Shard, ops []*shard.Op) []Written {
	outs := make([]Written, len(ops))
	under := make([]*shard.Pending, len(ops))
	for i, op := range ops {
		under[i], outs[i].Err = sh.Start(ctx, op)
	}
	for i, p := range under {
		if p != nil {
			outs[i].Result, outs[i].Err = p.Wait(ctx)
		}
	}
	return outs
}
