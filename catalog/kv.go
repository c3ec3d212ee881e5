package catalog

import (
	"context"
	"fmt"
)

// KV is the store under a catalog: small keys, thousands to a few hundred thousand,
// that are read once, changed by compare-and-set on one of them, and followed. Several
// processes may have a KV each on one store.
type KV interface {
	// Load returns every entry in key order, as of the returned revision, the last
	// commit's.
	Load(ctx context.Context) (entries []Entry, revision uint64, err error)
	// Commit makes all the writes or none. The first write's key must have the
	// revision expect (0: be absent); if not, the error is a *ConflictError and nothing
	// has changed. When Commit returns without an error the writes are durable and
	// have the returned revision, which is above every earlier one. Refusals of which
	// nothing is stored are too_large, draining and unavailable; after any other error
	// it is not known what has changed.
	Commit(ctx context.Context, expect uint64, writes ...Write) (revision uint64, err error)
	// Follow calls fn, one call at a time, with every commit after a revision, in order,
	// this KV's own ones too, until ctx ends or fn fails, and returns the error. When the
	// commits are not at hand any more fn is given everything there is instead. A
	// revision counts as seen by this process when fn has returned.
	Follow(ctx context.Context, after uint64, fn func(Committed) error) error
	// Sync returns a revision, not below that of any commit that was acknowledged to
	// anybody before the call, which Load and Follow have reached.
	Sync(ctx context.Context) (revision uint64, err error)
	// Settle waits until every process that reads the store has seen the revision, or
	// may not answer from what it has seen before (Lease).
	Settle(ctx context.Context, revision uint64) error
	// Settled is the highest revision that is known here to be settled.
	Settled() uint64
	// Lease returns at once while what this process has seen may be answered from: no
	// revision that it has not seen counts as settled. Otherwise it gets that back first.
	Lease(ctx context.Context) error
	// Err is the error after which the store takes no more writes, or cannot be
	// followed any more, if there was one.
	Err() error
	// Close ends Follow and releases the store.
	Close() error
}

// Committed is a commit as followers see it.
type Committed struct {
	Revision uint64
	// Writes are not to be changed. There are none of a commit that is the store's own
	// business.
	Writes []Write
	// Own says that this KV made the commit.
	Own bool
	// Whole says that commits are missing: Entries are all there is at Revision, and
	// there are no Writes.
	Whole   bool
	Entries []Entry
}

// Entry is a key as it stands.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64 // of the commit that wrote it
}

// Write gives a key a value; nil deletes the key.
type Write struct {
	Key   string
	Value []byte
}

// ConflictError says that the guarding key had another revision than expected. Where
// several processes change a store, Got may be one that it has had since, and not the last.
type ConflictError struct {
	Key       string
	Want, Got uint64
}

// Error names the key and both revisions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q has revision %d, not %d", e.Key, e.Got, e.Want)
}
