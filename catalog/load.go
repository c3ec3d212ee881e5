package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
)

// loader builds a snapshot from the entries of a store and checks that they fit
// together. Whatever it finds wrong is damage, since only whole commits are
// stored and each was checked before it was made.
type loader struct {
	snapshot  *snapshot
	databases map[millrace.DatabaseID]*database
	schemas   map[millrace.TableID][]*millrace.Schema // oldest first
	// partitions are in the order of ids.
	partitions map[millrace.TableID][]partitionRecord
}

func loadSnapshot(entries []Entry) (*snapshot, error) {
	l := loader{
		snapshot: &snapshot{
			byName: map[string]*database{}, tables: map[millrace.TableID]*table{},
			partitions: map[millrace.TableID]*partitions{}, nextIDs: map[millrace.TableID]int64{},
		},
		databases:  map[millrace.DatabaseID]*database{},
		schemas:    map[millrace.TableID][]*millrace.Schema{},
		partitions: map[millrace.TableID][]partitionRecord{},
	}
	// In key order: databases, head, ids, partitions, purges, schemas, signing, tables; tables
	// gather what came before them.
	for _, e := range entries {
		if err := l.load(e); err != nil {
			return nil, err
		}
	}
	return l.snapshot, l.finish()
}

// finish sorts the lists, and finds what belongs to nothing.
func (l *loader) finish() error {
	s := l.snapshot
	if s.headRevision == 0 {
		return corrupt("key %q is missing", keyHead)
	}
	for id := range l.schemas {
		if s.tables[id] == nil {
			return corrupt("there are schemas of table %d, which does not exist", id)
		}
	}
	for id := range l.partitions {
		if s.tables[id] == nil {
			return corrupt("there are partitions of table %d, which does not exist", id)
		}
	}
	for id := range s.nextIDs {
		if t := s.tables[id]; t == nil || t.Schema.AutoIncrement() < 0 {
			return corrupt("there are ids of table %d, which has no auto-increment column", id)
		}
	}
	for _, p := range s.purges {
		if s.tables[p.Table] != nil {
			return corrupt("the lake table of table %d is to be removed, and the table exists", p.Table)
		}
	}
	for id := range l.databases {
		if id >= s.head.NextDatabase {
			return corrupt("database %d has an id that has not been given yet", id)
		}
	}
	slices.SortFunc(s.databases, func(a, b *database) int { return cmp.Compare(a.Name, b.Name) })
	for _, d := range s.databases {
		slices.SortFunc(d.tables, func(a, b *table) int { return cmp.Compare(a.Path.Table, b.Path.Table) })
	}
	return nil
}

func (l *loader) load(e Entry) error {
	switch {
	case e.Key > keyHead && l.snapshot.headRevision == 0:
		return corrupt("key %q is missing", keyHead)
	case e.Key == keyHead:
		return l.head(e)
	case e.Key == keySigning:
		return l.signing(e)
	case strings.HasPrefix(e.Key, prefixDatabase):
		return l.database(e)
	case strings.HasPrefix(e.Key, prefixIDs):
		return l.ids(e)
	case strings.HasPrefix(e.Key, prefixPartition):
		return l.partition(e)
	case strings.HasPrefix(e.Key, prefixPurge):
		return l.purge(e)
	case strings.HasPrefix(e.Key, prefixSchema):
		return l.schema(e)
	case strings.HasPrefix(e.Key, prefixTable):
		return l.table(e)
	}
	return newerRelease(fmt.Sprintf("key %q is of no known kind", e.Key))
}

func (l *loader) head(e Entry) error {
	s := l.snapshot
	s.headRevision = e.Revision
	if err := decodeRecord(e, &s.head); err != nil {
		return err
	}
	if s.head.FeatureLevel > FeatureNewest {
		return newerRelease(fmt.Sprintf("the catalog has feature level %d, and this release knows up to %d", s.head.FeatureLevel, FeatureNewest))
	}
	if s.head.Shards < 1 {
		return corrupt("key %q says there are %d shards", keyHead, s.head.Shards)
	}
	return nil
}

func (l *loader) signing(e Entry) error {
	r := &l.snapshot.signing
	if err := decodeRecord(e, r); err != nil {
		return err
	}
	for _, k := range r.Keys {
		if len(k.Secret) != len(SigningKey{}.Secret) {
			return corrupt("signing key %d has %d bytes", k.ID, len(k.Secret))
		}
	}
	return nil
}

func (l *loader) database(e Entry) error {
	var r databaseRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	if databaseKey(r.ID) != e.Key || l.snapshot.byName[fold(r.Name)] != nil {
		return corrupt("key %q holds database %d, %q", e.Key, r.ID, r.Name)
	}
	d := &database{
		Database: Database{ID: r.ID, Name: r.Name, Comment: r.Comment, CreatedAt: time.UnixMicro(r.CreatedMicros).UTC()},
		byName:   map[string]*table{},
	}
	l.databases[r.ID] = d
	l.snapshot.databases = append(l.snapshot.databases, d)
	l.snapshot.byName[fold(r.Name)] = d
	return nil
}

func (l *loader) ids(e Entry) error {
	var r idsRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	if idsKey(r.TableID) != e.Key || r.Next < 1 {
		return corrupt("key %q holds ids of table %d from %d on", e.Key, r.TableID, r.Next)
	}
	l.snapshot.nextIDs[r.TableID] = r.Next
	return nil
}

func (l *loader) partition(e Entry) error {
	var r partitionRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	switch {
	case partitionKey(r.TableID, r.ID) != e.Key:
		return corrupt("key %q holds partition %d of table %d", e.Key, r.ID, r.TableID)
	case r.ID == 0 || r.ID >= l.snapshot.head.NextPartition:
		return corrupt("partition %d has an id that has not been given yet", r.ID)
	case !slices.Contains(partitionStates, r.State):
		return corrupt("partition %d has the state %q", r.ID, r.State)
	}
	l.partitions[r.TableID] = append(l.partitions[r.TableID], r)
	return l.checkShards(r.Shards, fmt.Sprintf("partition %d", r.ID))
}

func (l *loader) purge(e Entry) error {
	var r purgeRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	if purgeKey(r.TableID) != e.Key || r.TableID == 0 || r.TableID >= l.snapshot.head.NextTable {
		return corrupt("key %q holds the purge of table %d", e.Key, r.TableID)
	}
	l.snapshot.purges = append(l.snapshot.purges, r.purge())
	return nil
}

// checkShards checks that the shards of buckets exist.
func (l *loader) checkShards(shards []millrace.ShardID, what string) error {
	for _, shard := range shards {
		if int(shard) >= l.snapshot.head.Shards {
			return corrupt("%s has a bucket in shard %d of %d", what, shard, l.snapshot.head.Shards)
		}
	}
	return nil
}

func (l *loader) schema(e Entry) error {
	var r schemaRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	if r.Schema == nil || schemaKey(r.TableID, r.Schema.ID) != e.Key {
		return corrupt("key %q holds another schema", e.Key)
	}
	l.schemas[r.TableID] = append(l.schemas[r.TableID], r.Schema)
	return nil
}

func (l *loader) table(e Entry) error {
	var r tableRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	d := l.databases[r.DatabaseID]
	switch {
	case tableKey(r.ID) != e.Key:
		return corrupt("key %q holds table %d", e.Key, r.ID)
	case d == nil:
		return corrupt("table %d is in database %d, which does not exist", r.ID, r.DatabaseID)
	case d.byName[fold(r.Name)] != nil:
		return corrupt("database %d has two tables named %q", r.DatabaseID, r.Name)
	case r.ID >= l.snapshot.head.NextTable:
		return corrupt("table %d has an id that has not been given yet", r.ID)
	case r.Buckets < 1 || len(r.PartitionBy) == 0 && len(r.Shards) != r.Buckets || len(r.PartitionBy) > 0 && len(r.Shards) != 0:
		return corrupt("table %d has %d buckets and %d shards of buckets", r.ID, r.Buckets, len(r.Shards))
	}
	if err := l.checkShards(r.Shards, fmt.Sprintf("table %d", r.ID)); err != nil {
		return err
	}
	t := &table{schemas: l.schemas[r.ID]}
	if r.ExpiredMicros != 0 {
		t.expired = time.UnixMicro(r.ExpiredMicros).UTC()
	}
	i := slices.IndexFunc(t.schemas, func(s *millrace.Schema) bool { return s.ID == r.SchemaID })
	if i < 0 {
		return corrupt("table %d has schema %d, which does not exist", r.ID, r.SchemaID)
	}
	schema := t.schemas[i]
	for _, ids := range [][]millrace.ColumnID{r.PrimaryKey, r.PartitionBy, r.BucketKey} {
		for _, id := range ids {
			if schema.IndexID(id) < 0 {
				return corrupt("table %d has column %d in a key, which does not exist", r.ID, id)
			}
		}
	}
	var err error
	if t.Table, err = r.table(d.Name, schema); err != nil {
		return corrupt("table %d has properties that make no sense: %v", r.ID, err)
	}
	if err := checkOptions(t.Table); err != nil {
		return err
	}
	d.tables = append(d.tables, t)
	d.byName[fold(r.Name)] = t
	l.snapshot.tables[r.ID] = t
	return l.partitionsOf(t.Table)
}

// checkOptions checks that options are of columns that there are.
func checkOptions(t *millrace.Table) error {
	o := &t.Options
	ids := slices.Collect(maps.Keys(o.Aggregates))
	if o.MergeEngine == millrace.Versioned || o.VersionColumn != 0 {
		ids = append(ids, o.VersionColumn)
	}
	for _, id := range ids {
		if t.Schema.IndexID(id) < 0 {
			return corrupt("table %d has options of column %d, which does not exist", t.ID, id)
		}
	}
	if a := o.AutoPartition; a != nil {
		if _, err := a.Location(); err != nil || !slices.Contains(t.PartitionBy, a.Column) {
			return corrupt("table %d is auto-partitioned by column %d in zone %q", t.ID, a.Column, a.Zone)
		}
	}
	return nil
}

// partitionsOf makes the partitions of a table.
func (l *loader) partitionsOf(t *millrace.Table) error {
	records := l.partitions[t.ID]
	if len(records) == 0 {
		return nil
	}
	ps := &partitions{}
	for _, r := range records {
		if !t.Partitioned() || len(r.Values) != len(t.PartitionBy) || len(r.Shards) != t.Buckets {
			return corrupt("partition %d of table %d has %d values and %d shards of buckets", r.ID, t.ID, len(r.Values), len(r.Shards))
		}
		if r.Gone && r.State != millrace.PartitionExpired {
			return corrupt("partition %d of table %d is gone and %s", r.ID, t.ID, r.State)
		}
		ps.byID = append(ps.byID, r.partition(t))
	}
	ps.byName = slices.Clone(ps.byID)
	slices.SortFunc(ps.byName, func(a, b *millrace.Partition) int { return cmp.Compare(a.Name, b.Name) })
	for i, p := range ps.byName[1:] {
		if p.Name == ps.byName[i].Name {
			return corrupt("table %d has two partitions named %q", t.ID, p.Name)
		}
	}
	l.snapshot.partitions[t.ID] = ps
	return nil
}
