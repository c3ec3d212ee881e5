package router

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// Owners says where shards are. It is asked for each call, since a shard may change its
// owner between any two.
type Owners interface {
	// Shards is how many shards there are; they are numbered from 0.
	Shards() int
	// Owner is the shard when this process owns it; else the way to the process that does.
	Owner(id millrace.ShardID) (*shard.Shard, Remote)
}

// Local are shards that are all here, by id. One that is damaged answers with its error.
type Local []*shard.Shard

// Shards implements Owners.
func (l Local) Shards() int { return len(l) }

// Owner implements Owners.
func (l Local) Owner(id millrace.ShardID) (*shard.Shard, Remote) { return l[id], nil }

// Remote is a shard that another process owns. Each call answers errs.NotOwner when that
// process is not found or owns the shard no more, and nothing was done: the router asks
// Owners again. A call whose outcome is not known is errs.UnknownOutcome.
type Remote interface {
	// Look answers what a plan wants to know of buckets, in their order.
	Look(ctx context.Context, q *Question) (*Looks, error)
	// Rehold says anew how long a snapshot is held; see shard.Shard.Rehold.
	Rehold(ctx context.Context, id string, idle, ttl time.Duration) error
	// LetGo ends the holding of a snapshot.
	LetGo(ctx context.Context, id string) error
	// Lookup reads the rows of keys, as one list in the order in which the buckets have
	// them; errs.TooLarge when they have more than most bytes.
	Lookup(ctx context.Context, of []BucketKeys, most int64) ([][]byte, error)
	// Prefixes reads the rows whose keys begin with prefixes, by prefix, of one instant: of
	// each at most limit (-1: all); errs.TooLarge when they have more than most bytes.
	Prefixes(ctx context.Context, of []BucketPrefix, limit, most int64) ([][][]byte, error)
	// Write makes ops durable and visible, each by itself. Their lines do not go with them.
	Write(ctx context.Context, ops []*shard.Op) ([]Written, error)
	// Read reads parts of a plan; the form is FarRead's.
	Read(ctx context.Context, form []byte) (Frames, error)
	// Schemas are the schemas of a table that rows of the shard are stored with.
	Schemas(ctx context.Context, table millrace.TableID) ([]*millrace.Schema, error)
	// End drops or seals what a table or partition has in the shard.
	End(ctx context.Context, e Ending) error
	// Tell shows the shard a table's new descriptor.
	Tell(ctx context.Context, t *millrace.Table) error
	// Tiered tells it how far the logs of buckets are in the lake.
	Tiered(ctx context.Context, next map[millrace.BucketID]millrace.Offset) error
	// Status tells how it stands.
	Status(ctx context.Context) (shard.Status, error)
}

// BucketKeys are primary keys of one bucket.
type BucketKeys struct {
	Bucket millrace.BucketID
	Keys   [][]byte
}

// BucketPrefix is a prefix of primary keys of one bucket.
type BucketPrefix struct {
	Bucket millrace.BucketID
	Prefix []byte
}

// Written is the outcome of an op.
type Written struct {
	Result shard.Result
	Err    error
}

// Ending is how a table, or a partition of it, ends in a shard.
type Ending struct {
	Table     millrace.TableID
	Partition millrace.PartitionID // 0: the whole table
	Seal      bool                 // a partition takes no more writes; else it is dropped
}

// Bounds of what is done while a shard has no owner.
const (
	// patience is how long a shard without an owner is waited for; requests with an
	// earlier end wait until that.
	patience = 30 * time.Second
	// firstPause and longestPause are between two questions, and each a random part of it.
	firstPause   = 4 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// pauses are the pauses while a shard has no owner.
type pauses struct {
	next   time.Duration
	waited time.Duration
}

// wait waits until the shard is asked for again; errs.Unavailable when there is no time
// left for that.
func (p *pauses) wait(ctx context.Context, id millrace.ShardID) error {
	if p.next == 0 {
		p.next = firstPause
	}
	d := p.next/2 + rand.N(p.next/2)
	p.next = min(2*p.next, longestPause)
	end, bounded := ctx.Deadline()
	p.waited += d
	if p.waited > patience || bounded && time.Until(end) < d {
		return errs.New(errs.Unavailable, "shard %d has no owner that answers at the moment; nothing was done: try again", id)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notHere is the error of who looks here for a shard that is elsewhere.
func notHere(id millrace.ShardID) error {
	return errs.New(errs.NotOwner, "shard %d is owned by another process", id)
}

// here is a shard that this process owns; else errs.NotOwner.
func (r *Router) here(id millrace.ShardID) (*shard.Shard, error) {
	sh, _ := r.o.Owners.Owner(id)
	if sh == nil {
		return nil, notHere(id)
	}
	return sh, nil
}

// on does something with a shard, wherever it is, and again while the shard has no owner
// or changes it.
func (r *Router) on(ctx context.Context, id millrace.ShardID, here func(*shard.Shard) error, there func(Remote) error) error {
	var p pauses
	for {
		err := notHere(id)
		switch sh, rem := r.o.Owners.Owner(id); {
		case sh != nil:
			err = here(sh)
		case rem != nil:
			err = there(rem)
		}
		if !errs.Is(err, errs.NotOwner) {
			return err
		}
		if err := p.wait(ctx, id); err != nil {
			return err
		}
	}
}

// maxCalls is how many shards a request calls at a time.
const maxCalls = 64

// onEach does something for each of some shards: at once, when some are elsewhere.
func (r *Router) onEach(ids []millrace.ShardID, do func(i int) error) error {
	away := 0
	for _, id := range ids {
		if sh, _ := r.o.Owners.Owner(id); sh == nil {
			away++
		}
	}
	if away == 0 || len(ids) == 1 {
		for i := range ids {
			if err := do(i); err != nil {
				return err
			}
		}
		return nil
	}
	eg := errgroup.Group{}
	eg.SetLimit(maxCalls)
	for i := range ids {
		eg.Go(func() error { return do(i) })
	}
	return eg.Wait()
}

// shards are the numbers of all shards.
func (r *Router) shards() []millrace.ShardID {
	out := make([]millrace.ShardID, r.o.Owners.Shards())
	for i := range out {
		out[i] = millrace.ShardID(i)
	}
	return out
}

// Answer ends something in a shard that is here. One that serves nothing lets it be: it
// drops at its next start what the catalog has forgotten.
func (e Ending) Answer(ctx context.Context, sh *shard.Shard) error {
	if err := sh.Err(); err != nil {
		if errs.Is(err, errs.NotOwner) {
			return err
		}
		return nil
	}
	switch {
	case e.Seal:
		return sh.SealPartition(ctx, e.Table, e.Partition)
	case e.Partition != 0:
		return sh.DropPartition(ctx, e.Table, e.Partition)
	}
	return sh.DropTable(ctx, e.Table)
}

// end does so wherever the shard is.
func (r *Router) end(ctx context.Context, id millrace.ShardID, e Ending) error {
	return r.on(ctx, id,
		func(sh *shard.Shard) error { return e.Answer(ctx, sh) },
		func(rem Remote) error { return rem.End(ctx, e) })
}
