package router

import (
	"context"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
)

// Retire takes a partition of the lake to expired, as a keeper does.
func (r *Router) Retire(ctx context.Context, p *millrace.Partition) error { return r.retire(ctx, p) }

// LetGoOf takes an expired one from the shards, when it is time.
func (r *Router) LetGoOf(ctx context.Context, p *millrace.Partition) error {
	_, err := r.letGo(ctx, p)
	return err
}

// Behind says that another router owns the shards of this one: how keyed tables are read
// is set for both.
func (r *Router) Behind(owner *Router) { behind.Store(r, owner) }

var behind sync.Map // *Router → *Router

func (r *Router) set(keyed keyedReads, most int64) {
	r.keyed, r.overlayBytes = keyed, most
	if o, ok := behind.Load(r); ok {
		o.(*Router).set(keyed, most)
	}
}

// StateOnly makes a router read keyed tables from their state, where that has them.
func (r *Router) StateOnly() { r.set(stateOnly, r.overlayBytes) }

// OverlayOnly makes it put the log on top of the lake wherever that is possible, with
// room for the keys of so many bytes.
func (r *Router) OverlayOnly(most int64) { r.set(overlayOnly, most) }

// Choose makes it read what is less.
func (r *Router) Choose() { r.set(choose, overlayBytes) }

// Overlaid is how many parts of a plan are read from the lake with the log on top.
func (p *Plan) Overlaid() int {
	n := 0
	for _, part := range p.Parts {
		if part.Overlay {
			n++
		}
	}
	return n
}

// DropWithin bounds what a keeper waits for a partition to be dropped.
func (k *Keeper) DropWithin(d time.Duration) { k.dropTime = d }

// DropWaits bounds what DROP PARTITION waits for the lake.
func (r *Router) DropWaits(d time.Duration) { r.dropWait = d }

// Patient sets how long reads wait for room.
func (r *Router) Patient(first, later time.Duration) {
	r.firstPatience, r.laterPatience = first, later
	if o, ok := behind.Load(r); ok {
		o.(*Router).Patient(first, later)
	}
}
