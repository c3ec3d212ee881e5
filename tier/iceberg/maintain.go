package iceberg

import (
	"context"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

const (
	// keepFor is how long everything stays at least: snapshots after they were replaced,
	// versions of metadata after that too, and files that nobody refers to after they
	// were written.
	keepFor = 24 * time.Hour
	// maxSnapshots is how many stay if they may; what is beyond goes once no reader can
	// hold it.
	maxSnapshots = 1000
	// sweepEvery is how often a table's folder is looked through for files to remove.
	sweepEvery = time.Hour
)

// Maintain implements lake.Table.
func (t *lakeTable) Maintain(ctx context.Context, desc *millrace.Table) (lake.Maintained, error) {
	var done lake.Maintained
	o := desc.Options.Lake
	if o == nil {
		return done, nil
	}
	if o.Compact {
		if err := t.compact(ctx, desc, &done); err != nil {
			return done, err
		}
	}
	if !o.Expire {
		return done, nil
	}
	if err := t.expire(ctx, &done); err != nil {
		return done, err
	}
	if done.SnapshotsExpired == 0 && !t.f.sweepIsDue(t.id) {
		return done, nil
	}
	err := t.sweep(ctx, &done)
	if err == nil {
		t.f.swept(t.id)
	}
	return done, err
}

// sweepIsDue says whether a table's folder was not looked through for long.
func (f *Format) sweepIsDue(id millrace.TableID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, ok := f.mu.swept[id]
	return !ok || f.o.Clock.Now().Sub(last) >= sweepEvery
}

func (f *Format) swept(id millrace.TableID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.swept[id] = f.o.Clock.Now()
}
