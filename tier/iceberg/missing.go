package iceberg

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
)

// missingFile is the reason of an error about a file that is not there.
type missingFile struct{ key string }

func (m *missingFile) Error() string { return "file " + m.key + " of the lake is not there" }

// damage is a file that a kept snapshot refers to and that is not there.
type damage struct {
	snapshot int64
	key      string
	since    time.Time
}

// missing says what it means that a file of a snapshot is not there: files go after the
// metadata that lets go of their snapshot is published, so one of a snapshot that is kept
// was lost. Other errors are as they were.
func (t *lakeTable) missing(ctx context.Context, snapshot int64, err error) error {
	file, ok := errors.AsType[*missingFile](err)
	if !ok {
		return err
	}
	v, lerr := t.load(ctx)
	if lerr != nil {
		return lerr
	}
	if v == nil || v.meta.SnapshotByID(snapshot) == nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.damage == nil {
		t.mu.damage = &damage{snapshot, file.key, t.f.o.Clock.Now()}
	}
	return t.lost(file.key)
}

func (t *lakeTable) lost(key string) error {
	return errs.New(errs.CorruptData, "file %s of the lake was lost: its snapshot is kept, and the file is not there; restore it from a backup or an older version in the bucket", uriOf(t.f.o.Store, key))
}

// Damage implements lake.Table. What was found is looked at again: the file may be back, or
// its snapshot let go of.
func (t *lakeTable) Damage(ctx context.Context) *lake.Failure {
	t.mu.Lock()
	d := t.mu.damage
	t.mu.Unlock()
	if d == nil {
		return nil
	}
	_, err := t.f.o.Store.Stat(ctx, d.key)
	over := err == nil
	if errors.Is(err, objstore.ErrNotExist) {
		v, err := t.load(ctx)
		over = err == nil && v != nil && v.meta.SnapshotByID(d.snapshot) == nil
	}
	if over {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.mu.damage == d {
			t.mu.damage = nil
		}
		return nil
	}
	return &lake.Failure{Code: errs.CorruptData, Detail: t.lost(d.key).Error(), Since: d.since}
}
