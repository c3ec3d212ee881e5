package router

import (
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
)

// What has outlived its table's TTL lies below a log's start. Reads that begin see
// nothing of it; those that were planned before (running ones, tickets, page tokens,
// cursors within keyed state) read on, until the shard lets go of it (View.Kept): an
// hour later at the earliest, which is the life of a ticket.

// AlteredTable shows the shards a table's new descriptor: what it says of how long
// records are kept counts from now on.
func (r *Router) AlteredTable(t *millrace.Table) {
	for _, sh := range r.o.Shards {
		sh.Tell(t)
	}
}

// begins says whether a read may begin at the part's place, as far as its log's start
// is concerned.
func (r *Router) begins(part *Part, v *bucket.View) (bool, error) {
	switch {
	case part.State || part.Overlay || part.Start >= v.Start:
		return true, nil
	case part.Start < v.Kept:
		return false, nil
	case !part.named:
		return true, nil // it was the start, a moment ago
	}
	// The changelog from where a ticket's rows stand is there as long as the ticket.
	promised, err := r.shard(part.Shard).Promised(part.Bucket)
	return err == nil && promised != millrace.NoOffset && part.Start >= promised, err
}

// outOfRange refuses places outside the logs, naming what each has.
func (p *Plan) outOfRange(r *Router) error {
	out := ranges{}
	for i := range p.Parts {
		part := &p.Parts[i]
		if part.LakeOnly {
			continue
		}
		v, err := r.view(part)
		if err != nil {
			return err
		}
		begins, err := r.begins(part, v)
		if err != nil {
			return err
		}
		// State may be ahead of a view by what is being published this instant.
		if part.State || part.Overlay || begins && part.Start <= v.End && part.End <= v.End {
			continue
		}
		out.add(part, v)
	}
	return out.err()
}

// view is the view of a part's log, one without records when nothing was ever written
// to the bucket.
func (r *Router) view(part *Part) (*bucket.View, error) {
	_, v, err := r.shard(part.Shard).Log(part.Bucket)
	if v == nil {
		v = &bucket.View{}
	}
	return v, err
}

// keepable refuses to renew a ticket that reads what has expired: it would outlive
// what it reads.
func (p *Plan) keepable(r *Router) error {
	out := ranges{}
	for i := range p.Parts {
		part := &p.Parts[i]
		if part.LakeOnly {
			continue
		}
		v, err := r.view(part)
		if err != nil {
			return err
		}
		reads := part.State || part.Overlay || part.End == millrace.NoOffset || part.Start < part.End
		if reads && part.Start < v.Start {
			out.add(part, v)
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

func (o *ranges) add(part *Part, v *bucket.View) {
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
func sayOutside(part *Part, v *bucket.View) string {
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
