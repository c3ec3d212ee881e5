package router

import (
	"context"

	"github.com/millrace/millrace/errs"
)

// anewTries bounds how often a read is begun anew.
const anewTries = 4

// Anew reads, and reads anew when the snapshot of keyed state that it stood on is gone:
// a shard moved meanwhile. It is for whoever has shown nothing of what was read, and
// does not go on from a page or a ticket, whose snapshot is that of others too.
func Anew(ctx context.Context, read func() error) error {
	for tries := 1; ; tries++ {
		err := read()
		if tries == anewTries || ctx.Err() != nil || !errs.Is(err, errs.SnapshotGone) {
			return err
		}
	}
}
