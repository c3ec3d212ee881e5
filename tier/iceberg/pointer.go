package iceberg

import (
	"context"
	"errors"

	"github.com/apache/iceberg-go/table"
)

// errConflict is a change that did not happen and never will, since a requirement of
// it does not hold.
var errConflict = errors.New("iceberg: the lake table has changed meanwhile")

// pointer says which version of a lake table's metadata is the newest, and makes the
// next one. All that decides between writers is here: one of ours keeps the versions in
// the lake itself, another can leave them to an Iceberg catalog.
type pointer interface {
	// load gives the newest version, seen when that is still it; nil when there is none.
	load(ctx context.Context, seen *version) (*version, error)
	// publish applies a change to the newest version, whatever that is by now, if the
	// change's requirements hold there. errConflict: it did not happen and never will.
	// Any other error leaves open whether it happened.
	publish(ctx context.Context, c change) (*version, error)
}

// change is a change of metadata in the making.
type change struct {
	seen         *version // a version that was loaded; nil: none
	requirements []table.Requirement
	updates      []table.Update
	// snapshot is the id of the snapshot that the change adds, by which it is found when
	// an answer was lost; 0: it adds none, and may happen twice.
	snapshot int64
}
