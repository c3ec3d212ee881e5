package iceberg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Catalog is what we need of an Iceberg catalog of the user's own; those of iceberg-go
// are such ones. It keeps the pointer and writes metadata, we write everything else.
type Catalog interface {
	LoadTable(ctx context.Context, name table.Identifier) (*table.Table, error)
	// CommitTable makes the table when a requirement says that there is none.
	CommitTable(ctx context.Context, name table.Identifier, requirements []table.Requirement, updates []table.Update) (table.Metadata, string, error)
	DropTable(ctx context.Context, name table.Identifier) error
	CreateNamespace(ctx context.Context, namespace table.Identifier, props ice.Properties) error
}

// ErrRefused is in an error of a [Catalog] that does not take the credentials, or no
// longer.
var ErrRefused = errors.New("the catalog refuses the credentials")

// catalogTries bounds how often a change is put to a catalog.
const catalogTries = 5

// catalogName is a table's name in a catalog of the user's own.
func catalogName(path millrace.TablePath) table.Identifier {
	return table.Identifier{path.Database, path.Table}
}

// catalogPointer leaves the pointer to a catalog, where others commit, too.
type catalogPointer struct {
	catalog Catalog
	name    table.Identifier
	// check says whether metadata is of the table that is meant.
	check func(table.Metadata) error
	// wait waits before a try, or until the context ends.
	wait func(context.Context, time.Duration) error
}

var _ pointer = (*catalogPointer)(nil)

func (p *catalogPointer) String() string { return strings.Join(p.name, ".") }

// load implements pointer.
func (p *catalogPointer) load(ctx context.Context, seen *version) (*version, error) {
	t, err := p.catalog.LoadTable(ctx, p.name)
	switch {
	case errors.Is(err, catalog.ErrNoSuchTable), errors.Is(err, catalog.ErrNoSuchNamespace):
		return nil, nil //nolint:nilnil // There is none.
	case err != nil:
		return nil, p.unavailable(ctx, err, "load table %s", p)
	case seen != nil && seen.location == t.MetadataLocation():
		return seen, nil
	}
	return p.version(t.Metadata(), t.MetadataLocation())
}

// version checks what the catalog has. Metadata of a catalog has no number; the time of
// its change rises.
func (p *catalogPointer) version(meta table.Metadata, location string) (*version, error) {
	if err := p.check(meta); err != nil {
		return nil, fmt.Errorf("table %s of the catalog: %w", p, err)
	}
	return &version{number: meta.LastUpdatedMillis(), location: location, meta: meta}, nil
}

// publish implements pointer. A try whose outcome is not known is followed by a look:
// the snapshot is there, or the requirements hold no more, or the same is tried again,
// which cannot happen twice, since the first to happen ends what the other requires.
func (p *catalogPointer) publish(ctx context.Context, c change) (*version, error) {
	updates := c.updates
	if c.seen == nil {
		if err := p.makeNamespace(ctx); err != nil {
			return nil, err
		}
		updates = append([]table.Update{table.NewUpgradeFormatVersionUpdate(formatVersion)}, updates...)
	}
	var last error
	for i := range catalogTries {
		if i > 0 && p.wait(ctx, retryPause<<i) != nil {
			break
		}
		meta, location, err := p.catalog.CommitTable(ctx, p.name, c.requirements, updates)
		if err == nil {
			return p.version(meta, location)
		}
		last = err
		v, err := p.load(ctx, nil)
		if err != nil {
			if e, ok := errors.AsType[*errs.Error](err); ok && e.Code != errs.Unavailable || errors.Is(err, errForeign) {
				return nil, err // someone else's table has the name
			}
			continue
		}
		if v != nil && c.snapshot != 0 && v.meta.SnapshotByID(c.snapshot) != nil {
			return v, nil // it happened
		}
		if err := holds(c.requirements, v); err != nil {
			return nil, err
		}
	}
	return nil, p.unavailable(ctx, last, "change table %s, which may yet have happened", p)
}

// holds says whether requirements hold at a version.
func holds(requirements []table.Requirement, v *version) error {
	var meta table.Metadata
	if v != nil {
		meta = v.meta
	}
	for _, r := range requirements {
		if err := r.Validate(meta); err != nil {
			return fmt.Errorf("%w: %w", errConflict, err)
		}
	}
	return nil
}

// makeNamespace makes the namespace of a table unless it is there.
func (p *catalogPointer) makeNamespace(ctx context.Context) error {
	err := p.catalog.CreateNamespace(ctx, p.name[:1], nil)
	if err != nil && !errors.Is(err, catalog.ErrNamespaceAlreadyExists) {
		return p.unavailable(ctx, err, "make namespace %s", p.name[0])
	}
	return nil
}

// forget takes a table out of the catalog, unless it is not there or someone else's.
func (p *catalogPointer) forget(ctx context.Context) error {
	t, err := p.catalog.LoadTable(ctx, p.name)
	if errors.Is(err, catalog.ErrNoSuchTable) || errors.Is(err, catalog.ErrNoSuchNamespace) {
		return nil
	}
	if err != nil {
		return p.unavailable(ctx, err, "load table %s", p)
	}
	if theirs := p.check(t.Metadata()); theirs != nil {
		return nil //nolint:nilerr // What is not ours stays.
	}
	if err := p.catalog.DropTable(ctx, p.name); err != nil && !errors.Is(err, catalog.ErrNoSuchTable) {
		return p.unavailable(ctx, err, "drop table %s", p)
	}
	return nil
}

// unavailable is an error of the catalog as callers of this package see it.
func (p *catalogPointer) unavailable(ctx context.Context, err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, ErrRefused):
		return errs.New(errs.Unavailable, "the catalog did not %s, since it refuses the credentials, or they have expired: renew them in lake-catalog-properties, or where they come from: %v", what, err)
	case errors.Is(err, fs.ErrNotExist):
		return errs.New(errs.CorruptData, "the catalog did not %s, since a file of its metadata is gone: restore it; nothing is written to the table before: %v", what, err)
	}
	return errs.New(errs.Unavailable, "the catalog did not %s: %v", what, err)
}
