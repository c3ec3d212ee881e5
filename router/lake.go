package router

import (
	"context"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

// Lake is what the router needs of the lake: the snapshots that reads put before the
// log, and a hand in the end of partitions and tables.
type Lake interface {
	// Newest is the newest snapshot of a table's lake table; nil when there is none.
	Newest(ctx context.Context, t *millrace.Table) (lake.Snapshot, error)
	// Snapshot is a snapshot by number; errs.SnapshotGone when it is no longer kept.
	Snapshot(ctx context.Context, t *millrace.Table, id int64) (lake.Snapshot, error)
	// TakeOver returns when the lake has all rows of a sealed partition.
	TakeOver(ctx context.Context, t *millrace.Table, p *millrace.Partition) error
	// DropPartition removes the rows of a partition from the lake.
	DropPartition(ctx context.Context, t *millrace.Table, p *millrace.Partition) error
	// DropTable ends tiering of a table that the catalog has let go of, and begins to
	// remove its lake table when the catalog says that it is to be removed.
	DropTable(ctx context.Context, t *millrace.Table) error
}
