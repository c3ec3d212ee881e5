package catalog

import (
	"context"
	"fmt"
)

// KV is the store under a catalog: small keys, thousands to a few hundred thousand,
// that are read once and changed by compare-and-set on one of them.
type KV interface {
	// Load returns every entry in key order.
	Load(ctx context.Context) ([]Entry, error)
	// Commit makes all the writes or none. The first write's key must have the
	// revision expect (0: be absent); if not, the error is a *ConflictError and nothing
	// has changed. When Commit returns without an error the writes are durable and
	// have the returned revision, which is above every earlier one. After any other
	// error it is not known what has changed.
	Commit(ctx context.Context, expect uint64, writes ...Write) (revision uint64, err error)
	// Err is the error after which the store takes no more writes, if there was one.
	Err() error
	// Close releases the store.
	Close() error
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

// ConflictError says that the guarding key had another revision than expected.
type ConflictError struct {
	Key       string
	Want, Got uint64
}

// Error names the key and both revisions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q has revision %d, not %d", e.Key, e.Got, e.Want)
}
