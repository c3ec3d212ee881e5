package iceberg

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

// formatVersion is that of the Iceberg tables we make.
const formatVersion = 2

// What the properties of a lake table of ours say.
const (
	propCluster = "millrace.cluster-id"
	propTable   = "millrace.table-id"
	propName    = "millrace.table"
)

// errNotEmpty ends a listing at its first object.
var errNotEmpty = errors.New("there is an object")

// handle is a lake table that nothing was read of yet.
func (f *Format) handle(id millrace.TableID, path millrace.TablePath) *lakeTable {
	t := &lakeTable{f: f, id: id, folder: f.folder(id)}
	t.location = uriOf(f.o.Store, t.folder)
	if f.o.Catalog != nil {
		t.pointer = &catalogPointer{catalog: f.o.Catalog, name: catalogName(path), check: t.check, wait: f.wait}
	} else {
		t.pointer = &lakePointer{store: f.o.Store, folder: t.folder, check: t.check, wait: f.wait}
	}
	return t
}

// check says whether metadata is of this lake table.
func (t *lakeTable) check(m table.Metadata) error {
	p := m.Properties()
	if p[propCluster] != t.f.cluster || p[propTable] != strconv.FormatUint(uint64(t.id), 10) {
		return foreign("the folder %s holds an Iceberg table of someone else (cluster %q, table %q): empty it, or name another place for the lake", t.location, p[propCluster], p[propTable])
	}
	if m.Version() != formatVersion {
		return foreign("the Iceberg table in %s has format version %d; this release writes version %d", t.location, m.Version(), formatVersion)
	}
	return nil
}

// errForeign is the reason of errors about what is not ours. Their code is unavailable: no
// request is wrong, and all is well when somebody has made room.
var errForeign = errors.New("a table of someone else")

func foreign(format string, args ...any) error {
	return &errs.Error{Code: errs.Unavailable, Message: fmt.Sprintf(format, args...), Err: errForeign}
}

// open opens the lake table of a table, and makes it when there is none.
func (f *Format) open(ctx context.Context, desc *millrace.Table) (*lakeTable, error) {
	t := f.handle(desc.ID, desc.Path)
	t.desc = desc
	v, err := t.load(ctx)
	if err != nil || v != nil {
		return t, err
	}
	if err := t.create(ctx, desc); err != nil {
		return nil, err
	}
	return t, nil
}

// load gives the newest version; nil when there is none.
func (t *lakeTable) load(ctx context.Context) (*version, error) {
	t.mu.Lock()
	seen := t.mu.seen
	t.mu.Unlock()
	v, err := t.pointer.load(ctx, seen)
	if err != nil {
		return nil, err
	}
	t.see(v)
	return v, nil
}

// see remembers the version that the pointer said is the newest, also when it has gone
// back: what was remembered was lost then, and nothing may build on it. A slow answer that
// is older than another one does no harm, as the next load goes up from there.
func (t *lakeTable) see(v *version) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v != nil && t.mu.seen != v {
		t.mu.seen, t.mu.newest = v, nil
	}
}

// create makes the lake table, in an empty folder only.
func (t *lakeTable) create(ctx context.Context, desc *millrace.Table) error {
	schema, err := schemaOf(desc)
	if err != nil {
		return err
	}
	first := ""
	err = t.f.o.Store.List(ctx, t.folder+"/", func(i objstore.Info) error {
		first = i.Key
		return errNotEmpty
	})
	if err != nil && !errors.Is(err, errNotEmpty) {
		return storeError(err, "list %s", t.location)
	}
	if first != "" {
		// Someone may have made it since; what they made then has a first version.
		if v, err := t.load(ctx); err != nil || v != nil {
			return err
		}
		missing := "has no metadata/v1.metadata.json or later: restore its metadata"
		if t.f.o.Catalog != nil {
			missing = "the catalog has no table for it: register its metadata there"
		}
		return errs.New(errs.CorruptData, "the folder %s of a lake table is not empty (%s), yet %s, or empty it; nothing is written to the table before", t.location, uriOf(t.f.o.Store, first), missing)
	}
	spec, order := specOf(desc), table.UnsortedSortOrder
	props := t.properties(desc)
	v, err := t.pointer.publish(ctx, change{
		requirements: []table.Requirement{table.AssertCreate()},
		updates: []table.Update{
			table.NewAssignUUIDUpdate(uuid.New()), table.NewSetLocationUpdate(t.location),
			table.NewAddSchemaUpdate(schema), table.NewSetCurrentSchemaUpdate(-1),
			table.NewAddPartitionSpecUpdate(&spec, true), table.NewSetDefaultSpecUpdate(-1),
			table.NewAddSortOrderUpdate(&order), table.NewSetDefaultSortOrderUpdate(-1),
			table.NewSetPropertiesUpdate(props),
		},
	})
	if errors.Is(err, errConflict) { // another process was first
		_, err = t.load(ctx)
		return err
	}
	if err != nil {
		return err
	}
	t.see(v)
	return nil
}

// properties are those of a lake table: whose it is, and how stock writers and
// maintenance should treat it.
func (t *lakeTable) properties(desc *millrace.Table) ice.Properties {
	target := int64(millrace.DefaultTargetFileBytes)
	if desc.Options.Lake != nil && desc.Options.Lake.TargetFileBytes > 0 {
		target = desc.Options.Lake.TargetFileBytes
	}
	return ice.Properties{
		propCluster: t.f.cluster,
		propTable:   strconv.FormatUint(uint64(t.id), 10),
		propName:    desc.Path.String(),

		table.WriteFormatDefaultKey:                           "parquet",
		table.ParquetCompressionKey:                           "zstd",
		table.WriteTargetFileSizeBytesKey:                     strconv.FormatInt(target, 10),
		table.MetadataPreviousVersionsMaxKey:                  "100",
		table.MetadataDeleteAfterCommitEnabledKey:             "false", // version files stay 24 hours
		table.CommitNumRetriesKey:                             "0",
		table.DefaultWriteMetricsModeKey:                      table.DefaultWriteMetricsModeDefault,
		"write.delete.mode":                                   table.WriteModeMergeOnRead,
		"write.update.mode":                                   table.WriteModeMergeOnRead,
		"write.merge.mode":                                    table.WriteModeMergeOnRead,
		table.MaxSnapshotAgeMsKey:                             "86400000",
		table.MinSnapshotsToKeepKey:                           "1",
		table.GCEnabledKey:                                    "true",
		"write.metadata.metrics.max-inferred-column-defaults": "1000",
	}
}
