package router

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// What has outlived its table's TTL lies below a log's start. Reads that begin see
// nothing of it; those that were planned before (running ones, tickets, page tokens,
// cursors within keyed state) read on, until the shard lets go of it (View.Kept): an
// hour later at the earliest, which is the life of a ticket.

// tellTime bounds what is waited for an owner to take note of something.
const tellTime = 5 * time.Second

// AlteredTable shows the shards a table's new descriptor: what it says of how long
// records are kept counts from now on. Owners elsewhere learn of it from the catalog, too.
func (r *Router) AlteredTable(ctx context.Context, t *millrace.Table) {
	ids := r.shards()
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	_ = r.onEach(ids, func(i int) error { // which is nobody's failure
		err := r.on(ctx, ids[i], func(sh *shard.Shard) error {
			sh.Tell(t)
			return nil
		}, func(rem Remote) error { return rem.Tell(ctx, t) })
		if err != nil {
			r.o.Logger.WarnContext(ctx, "a shard is not told that a table was altered", slog.String("table", t.Path.String()), errAttr(err))
		}
		return nil
	})
}

// begins says whether a read may begin at the part's place, as far as its log's start
// is concerned. asks says that only what the shard promised can tell.
func (p *Part) begins() (ok, asks bool) {
	switch {
	case p.State || p.Overlay || p.Start >= p.look.Start:
		return true, false
	case p.Start < p.look.Kept:
		return false, false
	case !p.named:
		return true, false // it was the start, a moment ago
	}
	// The changelog from where a ticket's rows stand is there as long as the ticket.
	return false, true
}

// outOfRange refuses places outside the logs, naming what each has.
func (p *Plan) outOfRange(ctx context.Context, r *Router) error {
	unsure := refs(p.Parts, func(part *Part) bool {
		_, asks := part.begins()
		return !part.LakeOnly && asks
	})
	promised := map[millrace.BucketID]bool{}
	if len(unsure) > 0 {
		for _, part := range unsure {
			part.look.Promised = millrace.NoOffset
		}
		if err := r.look(ctx, p, Question{Promised: true}, unsure); err != nil {
			return err
		}
		for _, part := range unsure {
			at := part.look.Promised
			promised[part.Bucket] = at != millrace.NoOffset && part.Start >= at
		}
	}
	out := ranges{}
	for i := range p.Parts {
		part := &p.Parts[i]
		if part.LakeOnly {
			continue
		}
		begins, _ := part.begins()
		begins = begins || promised[part.Bucket]
		// State may be ahead of a view by what is being published this instant.
		if part.State || part.Overlay || begins && part.Start <= part.look.End && part.End <= part.look.End {
			continue
		}
		out.add(part, part.look.LogRange)
	}
	return out.err()
}

// keepable refuses to renew a ticket that reads what has expired: it would outlive
// what it reads.
func (p *Plan) keepable(ctx context.Context, r *Router) error {
	if err := r.look(ctx, p, Question{}, refs(p.Parts, hasLog)); err != nil {
		return err
	}
	out := ranges{}
	for i := range p.Parts {
		part := &p.Parts[i]
		reads := part.State || part.Overlay || part.End == millrace.NoOffset || part.Start < part.End
		if !part.LakeOnly && reads && part.Start < part.look.Start {
			out.add(part, part.look.LogRange)
		}
	}
	return out.err()
}

// ranges gathers the places that are outside their logs, for an error that says what
// each log holds.
type ranges struct {
	offsets map[string]any
	first   string // the bucket key of which detail speaks
	detail  string
}

func (o *ranges) add(part *Part, v LogRange) {
	if o.offsets == nil {
		o.offsets = map[string]any{}
	}
	o.offsets[part.Key] = map[string]millrace.Offset{"start": v.Start, "end": v.End}
	if o.first == "" || part.Key < o.first {
		o.first, o.detail = part.Key, sayOutside(part, v)
	}
}

func (o *ranges) err() error {
	if len(o.offsets) == 0 {
		return nil
	}
	return errs.New(errs.OffsetOutOfRange, "%s", o.detail).With("offsets", o.offsets)
}

// sayOutside says which offset of the part is outside its log, and what that holds.
func sayOutside(part *Part, v LogRange) string {
	asked := part.Start
	if asked >= v.Start && asked <= v.End {
		asked = part.End
	}
	holds := fmt.Sprintf("which holds offsets %d to %d (the next is %d)", v.Start, v.End-1, v.End)
	if v.Start == v.End {
		holds = fmt.Sprintf("which is empty (the next offset is %d)", v.End)
	}
	text := fmt.Sprintf("offset %d is outside the log of bucket %s, %s", asked, part.Key, holds)
	if asked < v.Start {
		text += ": what was there has expired (table.log.ttl)"
	}
	return text
}
