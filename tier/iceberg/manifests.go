package iceberg

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/millrace/millrace/errs"
)

// A snapshot refers to manifests, and those to files. A commit writes a manifest for what
// it adds, rewrites those that hold what it removes, and refers to the others as they
// are. Manifests that stayed small are merged when there are mergeCount of them, into
// manifests of up to manifestBytes, so that their number stays bounded however many
// commits there are.
const (
	mergeCount    = 32
	manifestBytes = 4 << 20
)

// manifestSet is the manifests of a snapshot in the making.
type manifestSet struct {
	ctx      context.Context //nolint:containedctx // Of one commit.
	t        *lakeTable
	io       *storeIO
	meta     table.Metadata
	schema   *ice.Schema
	snapshot int64 // the id of the new one
	list     []ice.ManifestFile
	tally
}

// build gives the manifests that follow from those of parent by an edit.
func (m *manifestSet) build(parent *table.Snapshot, e *edit, spec *ice.PartitionSpec) error {
	if parent != nil {
		list, err := parent.Manifests(m.io)
		if err != nil {
			return metaError(err, "read the manifests of lake table %s", m.t.location)
		}
		m.list = list
	}
	if err := m.takeOut(e.remove); err != nil {
		return err
	}
	if err := m.merge(); err != nil {
		return err
	}
	for _, part := range []struct {
		content ice.ManifestContent
		files   []ice.DataFile
	}{{ice.ManifestContentData, e.addData}, {ice.ManifestContentDeletes, e.addDeletes}} {
		if len(part.files) == 0 {
			continue
		}
		entries := make([]ice.ManifestEntry, len(part.files))
		for i, f := range part.files {
			entries[i] = ice.NewManifestEntry(ice.EntryStatusADDED, &m.snapshot, nil, nil, f)
			m.add(f)
		}
		if err := m.write(part.content, spec, entries, nil); err != nil {
			return err
		}
	}
	return nil
}

// takeOut rewrites the manifests that hold files to be removed.
func (m *manifestSet) takeOut(remove map[string]struct{}) error {
	if len(remove) == 0 {
		return nil
	}
	left := maps.Clone(remove)
	old := m.list
	m.list = nil
	for _, mf := range old {
		if len(left) == 0 {
			m.list = append(m.list, mf)
			continue
		}
		entries, err := m.entries(mf)
		if err != nil {
			return err
		}
		var stay, gone []ice.ManifestEntry
		for _, e := range entries {
			if _, ok := left[e.DataFile().FilePath()]; ok {
				delete(left, e.DataFile().FilePath())
				m.remove(e.DataFile())
				gone = append(gone, e)
				continue
			}
			stay = append(stay, e)
		}
		if len(gone) == 0 {
			m.list = append(m.list, mf)
			continue
		}
		spec, err := m.t.specByID(m.meta, mf)
		if err != nil {
			return err
		}
		if err := m.write(mf.ManifestContent(), spec, stay, gone); err != nil {
			return err
		}
	}
	for p := range left {
		return errs.New(errs.Internal, "file %s is to be removed from lake table %s, which does not have it", p, m.t.location)
	}
	return nil
}

// merge merges small manifests, those of one kind and partition spec.
func (m *manifestSet) merge() error {
	type kind struct {
		content ice.ManifestContent
		spec    int32
	}
	small := map[kind][]ice.ManifestFile{}
	var rest []ice.ManifestFile
	for _, mf := range m.list {
		if mf.Length() >= manifestBytes/2 {
			rest = append(rest, mf)
			continue
		}
		k := kind{mf.ManifestContent(), mf.PartitionSpecID()}
		small[k] = append(small[k], mf)
	}
	m.list = rest
	for _, k := range slices.SortedFunc(maps.Keys(small), func(a, b kind) int {
		return int(a.content-b.content)*1000 + int(a.spec-b.spec)
	}) {
		if files := small[k]; len(files) < mergeCount {
			m.list = append(m.list, files...)
			continue
		}
		var entries []ice.ManifestEntry
		size := int64(0)
		for i, mf := range small[k] {
			more, err := m.entries(mf)
			if err != nil {
				return err
			}
			entries, size = append(entries, more...), size+mf.Length()
			if last := i == len(small[k])-1; len(entries) == 0 || !last && size < manifestBytes {
				continue
			}
			spec, err := m.t.specByID(m.meta, mf)
			if err != nil {
				return err
			}
			if err := m.write(k.content, spec, entries, nil); err != nil {
				return err
			}
			entries, size = nil, 0
		}
	}
	return nil
}

// entries are the live entries of a manifest.
func (m *manifestSet) entries(mf ice.ManifestFile) ([]ice.ManifestEntry, error) {
	if err := m.ctx.Err(); err != nil {
		return nil, err
	}
	var out []ice.ManifestEntry
	for e, err := range mf.Entries(m.io, true) {
		if err != nil {
			return nil, metaError(err, "read manifest %s", mf.FilePath())
		}
		out = append(out, e)
	}
	return out, nil
}

// write writes a manifest: of entries that are new or stay, and of some that go.
func (m *manifestSet) write(content ice.ManifestContent, spec *ice.PartitionSpec, stay, gone []ice.ManifestEntry) error {
	var buf bytes.Buffer
	w, err := ice.NewManifestWriter(formatVersion, &buf, *spec, m.schema, m.snapshot, ice.WithManifestWriterContent(content))
	if err != nil {
		return fmt.Errorf("begin a manifest of lake table %s: %w", m.t.location, err)
	}
	for _, e := range stay {
		if e.Status() == ice.EntryStatusADDED && e.SnapshotID() == m.snapshot {
			err = w.Add(e)
		} else {
			err = w.Existing(e)
		}
		if err != nil {
			return fmt.Errorf("write a manifest of lake table %s: %w", m.t.location, err)
		}
	}
	for _, e := range gone {
		if err := w.Delete(e); err != nil {
			return fmt.Errorf("write a manifest of lake table %s: %w", m.t.location, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write a manifest of lake table %s: %w", m.t.location, err)
	}
	uri := m.t.location + "/metadata/" + uuid.NewString() + "-m.avro"
	mf, err := w.ToManifestFile(uri, int64(buf.Len()))
	if err != nil {
		return fmt.Errorf("write a manifest of lake table %s: %w", m.t.location, err)
	}
	if err := m.io.WriteFile(uri, buf.Bytes()); err != nil {
		return storeError(err, "write manifest %s", uri)
	}
	m.list = append(m.list, mf)
	return nil
}

// writeList writes the manifest list and gives its URI.
func (m *manifestSet) writeList(sequence int64, parent *table.Snapshot) (string, error) {
	var parentID *int64
	if parent != nil {
		parentID = &parent.SnapshotID
	}
	var buf bytes.Buffer
	w, err := ice.NewManifestListWriterV2(&buf, m.snapshot, sequence, parentID)
	if err == nil {
		err = w.AddManifests(m.list)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", fmt.Errorf("write the manifest list of lake table %s: %w", m.t.location, err)
	}
	uri := fmt.Sprintf("%s/metadata/snap-%d-%s.avro", m.t.location, m.snapshot, uuid.NewString())
	if err := m.io.WriteFile(uri, buf.Bytes()); err != nil {
		return "", storeError(err, "write manifest list %s", uri)
	}
	return uri, nil
}

// specByID is the partition spec of a manifest.
func (t *lakeTable) specByID(meta table.Metadata, mf ice.ManifestFile) (*ice.PartitionSpec, error) {
	spec := meta.PartitionSpecByID(int(mf.PartitionSpecID()))
	if spec == nil {
		return nil, errs.New(errs.CorruptData, "manifest %s has partition spec %d, which lake table %s does not know", mf.FilePath(), mf.PartitionSpecID(), t.location)
	}
	return spec, nil
}

// eachFile gives the live entries of a snapshot, data and delete files, in its order.
func (t *lakeTable) eachFile(ctx context.Context, meta table.Metadata, s *table.Snapshot, give func(ice.ManifestEntry, *ice.PartitionSpec) error) error {
	m := &manifestSet{ctx: ctx, t: t, io: &storeIO{ctx: ctx, store: t.f.o.Store}, meta: meta}
	list, err := s.Manifests(m.io)
	if err != nil {
		return metaError(err, "read the manifests of lake table %s", t.location)
	}
	for _, mf := range list {
		spec, err := t.specByID(meta, mf)
		if err != nil {
			return err
		}
		entries, err := m.entries(mf)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := give(e, spec); err != nil {
				return err
			}
		}
	}
	return nil
}
