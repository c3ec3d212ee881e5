package iceberg

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/millrace/millrace/errs"
)

// Fields of position delete files, as Iceberg reserves their ids.
const (
	pathFieldID = 2147483546
	posFieldID  = 2147483545
)

// contents are the files of a snapshot. They are immutable.
type contents struct {
	data    []*lakeFile // in the snapshot's order
	deletes []*deleteFile
}

// lakeFile is a data file of a snapshot.
type lakeFile struct {
	path, key   string
	bytes, rows int64
	sequence    int64
	values      []string // canonical texts of its partition's values
	bucket      int
	spec        int    // of its partition
	tuple       string // its partition spec and partition, which deletes share
	stats       []columnStats
	deletes     []*deleteFile // that may hold positions of it
	refused     error         // why it cannot be read
}

// columnStats are what a manifest says of a column of a file.
type columnStats struct {
	id           int
	nulls, nans  int64
	lower, upper []byte
}

// deleteFile is a file of position deletes of a snapshot.
type deleteFile struct {
	path, key       string
	bytes, rows     int64
	sequence        int64
	values          []string
	bucket          int
	tuple           string
	first, last     string // bounds of the paths in it
	bounded, single bool   // they are known; and equal
}

// contentsOf reads the manifests of a snapshot, or remembers them.
func (t *lakeTable) contentsOf(ctx context.Context, meta table.Metadata, s *table.Snapshot) (*contents, error) {
	return t.f.contents.get(ctx, s.ManifestList, func(ctx context.Context) (*contents, int64, error) {
		return t.readContents(ctx, meta, s)
	})
}

func (t *lakeTable) readContents(ctx context.Context, meta table.Metadata, s *table.Snapshot) (*contents, int64, error) {
	c, size := &contents{}, int64(0)
	var equality []*deleteFile // and whatever else we cannot apply
	byTuple := map[string][]*deleteFile{}
	err := t.eachFile(ctx, meta, s, func(e ice.ManifestEntry, spec *ice.PartitionSpec) error {
		df := e.DataFile()
		values, err := partitionTexts(t.desc, spec, df.Partition())
		if err != nil {
			return err
		}
		tuple := tupleOf(spec, df.Partition())
		key, err := keyOf(t.f.o.Store, df.FilePath())
		if err != nil {
			return errs.New(errs.NotImplemented, "file %s of lake table %s lies outside of the lake", df.FilePath(), t.location)
		}
		if df.ContentType() == ice.EntryContentData {
			f := &lakeFile{
				path: df.FilePath(), key: key, bytes: df.FileSizeBytes(), rows: df.Count(), sequence: e.SequenceNum(),
				values: values, bucket: bucketOf(t.desc, spec, df), spec: spec.ID(), tuple: tuple, stats: statsOf(df),
			}
			if df.FileFormat() != ice.ParquetFile {
				f.refused = errs.New(errs.NotImplemented, "file %s of lake table %s is %s; only Parquet is read", f.path, t.location, df.FileFormat())
			}
			c.data = append(c.data, f)
			size += 256 + int64(len(f.path)+len(tuple))
			for _, st := range f.stats {
				size += 80 + int64(len(st.lower)+len(st.upper))
			}
			return nil
		}
		d := newDeleteFile(df)
		d.key, d.sequence, d.values, d.bucket, d.tuple = key, e.SequenceNum(), values, bucketOf(t.desc, spec, df), tuple
		size += 256 + int64(len(d.path)+len(tuple))
		if df.ContentType() != ice.EntryContentPosDeletes || df.FileFormat() != ice.ParquetFile {
			if df.ContentType() == ice.EntryContentEqDeletes {
				d.sequence-- // they take older rows only
			}
			if spec.IsUnpartitioned() {
				d.tuple = "" // of all partitions
			}
			equality = append(equality, d)
			return nil
		}
		c.deletes = append(c.deletes, d)
		byTuple[tuple] = append(byTuple[tuple], d)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	for _, f := range c.data {
		for _, d := range byTuple[f.tuple] {
			if d.appliesTo(f) {
				f.deletes = append(f.deletes, d)
			}
		}
		size += 8 * int64(len(f.deletes))
		for _, d := range equality {
			if d.sequence >= f.sequence && (d.tuple == "" || d.tuple == f.tuple) && f.refused == nil {
				f.refused = errs.New(errs.NotImplemented, "lake table %s has deletes of another kind than by position (%s), which another writer made: compact the table with that writer", t.location, d.path)
			}
		}
	}
	slices.SortFunc(c.data, (*lakeFile).compare)
	slices.SortFunc(c.deletes, func(a, b *deleteFile) int {
		return cmp.Or(cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.path, b.path))
	})
	return c, size, nil
}

// compare is the order of files in a snapshot, which depends on nothing but them.
func (f *lakeFile) compare(o *lakeFile) int {
	return cmp.Or(slices.Compare(f.values, o.values), cmp.Compare(f.bucket, o.bucket), cmp.Compare(f.sequence, o.sequence), cmp.Compare(f.path, o.path))
}

// tupleOf names a partition spec and the values of a partition in it.
func tupleOf(spec *ice.PartitionSpec, values map[int]any) string {
	out := fmt.Appendf(nil, "%d", spec.ID())
	for i := range spec.NumFields() {
		out = fmt.Appendf(out, "|%#v", values[spec.Field(i).FieldID])
	}
	return string(out)
}

// statsOf are what a manifest says of columns.
func statsOf(df ice.DataFile) []columnStats {
	nulls, nans, lower, upper := df.NullValueCounts(), df.NaNValueCounts(), df.LowerBoundValues(), df.UpperBoundValues()
	ids := maps.Clone(nulls)
	if ids == nil {
		ids = map[int]int64{}
	}
	for id := range lower {
		ids[id] = 0
	}
	for id := range upper {
		ids[id] = 0
	}
	out := make([]columnStats, 0, len(ids))
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		st := columnStats{id: id, nulls: unknown, nans: unknown, lower: lower[id], upper: upper[id]}
		if n, ok := nulls[id]; ok {
			st.nulls = n
		}
		if n, ok := nans[id]; ok {
			st.nans = n
		}
		out = append(out, st)
	}
	return out
}

func newDeleteFile(df ice.DataFile) *deleteFile {
	d := &deleteFile{path: df.FilePath(), bytes: df.FileSizeBytes(), rows: df.Count()}
	if ref := df.ReferencedDataFile(); ref != nil {
		d.first, d.last, d.bounded, d.single = *ref, *ref, true, true
		return d
	}
	lower, lok := df.LowerBoundValues()[pathFieldID]
	upper, uok := df.UpperBoundValues()[pathFieldID]
	d.first, d.last, d.bounded = string(lower), string(upper), lok && uok
	// Equal bounds are those of one path: an upper bound that was cut is not a lower one.
	d.single = d.bounded && d.first == d.last
	return d
}

// appliesTo says whether a file of position deletes may hold positions of a data file
// of its partition.
func (d *deleteFile) appliesTo(f *lakeFile) bool {
	return f.sequence <= d.sequence && (!d.bounded || d.first <= f.path && f.path <= d.last)
}

// deleted is how many rows of a file deletes have taken; unknown when only reading
// them would tell.
func (f *lakeFile) deleted() int64 {
	n := int64(0)
	for _, d := range f.deletes {
		if !d.single {
			return unknown
		}
		n += d.rows
	}
	return n
}
