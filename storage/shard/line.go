package shard

import (
	"sync/atomic"

	"github.com/millrace/millrace/errs"
)

// Line is the order of the ops of one stream: once one of them has failed, none of a
// later place is taken any more. A batch that was refused for the moment would
// otherwise be overtaken by the next, and could never be sent again: its bucket has
// gone on to a higher number.
//
// The shards that ops in line go to know of each other's failures as they happen. To
// know that nothing later was taken anywhere, a caller waits for each op to be decided
// (Pending.Decided) before it starts one with the next place; what is left then is a
// log that fails with the op in it.
type Line struct {
	failed atomic.Uint64 // the lowest place that failed; 0: none
}

// Err refuses an op in a place behind a failure; nil when there was none.
func (l *Line) Err(place uint64) error {
	if f := l.failed.Load(); f == 0 || f >= place {
		return nil
	}
	return errs.New(errs.Unavailable, "a batch before this one in the stream failed, so nothing of this one was written: send again from that batch on")
}

// Fail makes the ops behind a place fail.
func (l *Line) Fail(place uint64) {
	for {
		f := l.failed.Load()
		if f != 0 && f <= place || l.failed.CompareAndSwap(f, place) {
			return
		}
	}
}

// fail makes the ops behind this one fail too. A shard that has moved takes none of them,
// and who sent this one sends it to the new owner before them.
func (o *Op) fail(err error) {
	if o.Line != nil && !errs.Is(err, errs.NotOwner) {
		o.Line.Fail(o.Place)
	}
}

// inLine refuses the op when one before it in line has failed.
func (o *Op) inLine() error {
	if o.Line == nil {
		return nil
	}
	return o.Line.Err(o.Place)
}
