package catalog

import (
	"fmt"
	"maps"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
)

// Entries are decoded alike when a store is read and when commits are followed.
// Whatever is wrong is damage, since each was checked before it was written.

// REQUIRES: s came from edit, here and below.
func (s *snapshot) setHead(e Entry) error {
	var head headRecord
	if err := decodeRecord(e, &head); err != nil {
		return err
	}
	if head.FeatureLevel > FeatureNewest {
		return newerRelease(fmt.Sprintf("the catalog has feature level %d, and this release knows up to %d", head.FeatureLevel, FeatureNewest))
	}
	if head.Shards < 1 {
		return corrupt("key %q says there are %d shards", keyHead, head.Shards)
	}
	s.head, s.headRevision = head, e.Revision
	return nil
}

func (s *snapshot) setSigning(e Entry) error {
	var r signingRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	for _, k := range r.Keys {
		if len(k.Secret) != len(SigningKey{}.Secret) {
			return corrupt("signing key %d has %d bytes", k.ID, len(k.Secret))
		}
	}
	s.signing = r
	return nil
}

func decodeDatabase(e Entry) (*database, error) {
	var r databaseRecord
	if err := decodeRecord(e, &r); err != nil {
		return nil, err
	}
	if databaseKey(r.ID) != e.Key {
		return nil, corrupt("key %q holds database %d, %q", e.Key, r.ID, r.Name)
	}
	return &database{
		Database: Database{ID: r.ID, Name: r.Name, Comment: r.Comment, CreatedAt: time.UnixMicro(r.CreatedMicros).UTC()},
		byName:   map[string]*table{},
	}, nil
}

func decodeIDs(e Entry) (idsRecord, error) {
	var r idsRecord
	if err := decodeRecord(e, &r); err != nil {
		return r, err
	}
	if idsKey(r.TableID) != e.Key || r.Next < 1 {
		return r, corrupt("key %q holds ids of table %d from %d on", e.Key, r.TableID, r.Next)
	}
	return r, nil
}

func (s *snapshot) decodePartition(e Entry) (partitionRecord, error) {
	var r partitionRecord
	if err := decodeRecord(e, &r); err != nil {
		return r, err
	}
	switch {
	case partitionKey(r.TableID, r.ID) != e.Key:
		return r, corrupt("key %q holds partition %d of table %d", e.Key, r.ID, r.TableID)
	case r.ID == 0 || r.ID >= s.head.NextPartition:
		return r, corrupt("partition %d has an id that has not been given yet", r.ID)
	case !slices.Contains(partitionStates, r.State):
		return r, corrupt("partition %d has the state %q", r.ID, r.State)
	}
	return r, s.checkShards(r.Shards, fmt.Sprintf("partition %d", r.ID))
}

// of is the partition, of the table t.
func (r *partitionRecord) of(t *millrace.Table) (*millrace.Partition, error) {
	if !t.Partitioned() || len(r.Values) != len(t.PartitionBy) || len(r.Shards) != t.Buckets {
		return nil, corrupt("partition %d of table %d has %d values and %d shards of buckets", r.ID, t.ID, len(r.Values), len(r.Shards))
	}
	if r.Gone && r.State != millrace.PartitionExpired {
		return nil, corrupt("partition %d of table %d is gone and %s", r.ID, t.ID, r.State)
	}
	return r.partition(t), nil
}

// checkShards checks that the shards of buckets exist.
func (s *snapshot) checkShards(shards []millrace.ShardID, what string) error {
	for _, shard := range shards {
		if int(shard) >= s.head.Shards {
			return corrupt("%s has a bucket in shard %d of %d", what, shard, s.head.Shards)
		}
	}
	return nil
}

func (s *snapshot) decodePurge(e Entry) (*millrace.Purge, error) {
	var r purgeRecord
	if err := decodeRecord(e, &r); err != nil {
		return nil, err
	}
	if purgeKey(r.TableID) != e.Key || r.TableID == 0 || r.TableID >= s.head.NextTable {
		return nil, corrupt("key %q holds the purge of table %d", e.Key, r.TableID)
	}
	return r.purge(), nil
}

func decodeSchema(e Entry) (schemaRecord, error) {
	var r schemaRecord
	if err := decodeRecord(e, &r); err != nil {
		return r, err
	}
	if r.Schema == nil || schemaKey(r.TableID, r.Schema.ID) != e.Key {
		return r, corrupt("key %q holds another schema", e.Key)
	}
	return r, nil
}

// decodeTable is the table of a record, in the database d (nil: there is none), with
// its schemas.
func (s *snapshot) decodeTable(e Entry, r *tableRecord, d *database, schemas []*millrace.Schema) (*table, error) {
	switch {
	case tableKey(r.ID) != e.Key:
		return nil, corrupt("key %q holds table %d", e.Key, r.ID)
	case d == nil:
		return nil, corrupt("table %d is in database %d, which does not exist", r.ID, r.DatabaseID)
	case r.ID >= s.head.NextTable:
		return nil, corrupt("table %d has an id that has not been given yet", r.ID)
	case r.Buckets < 1 || len(r.PartitionBy) == 0 && len(r.Shards) != r.Buckets || len(r.PartitionBy) > 0 && len(r.Shards) != 0:
		return nil, corrupt("table %d has %d buckets and %d shards of buckets", r.ID, r.Buckets, len(r.Shards))
	}
	if err := s.checkShards(r.Shards, fmt.Sprintf("table %d", r.ID)); err != nil {
		return nil, err
	}
	t := &table{schemas: schemas}
	if r.ExpiredMicros != 0 {
		t.expired = time.UnixMicro(r.ExpiredMicros).UTC()
	}
	i := slices.IndexFunc(t.schemas, func(s *millrace.Schema) bool { return s.ID == r.SchemaID })
	if i < 0 {
		return nil, corrupt("table %d has schema %d, which does not exist", r.ID, r.SchemaID)
	}
	schema := t.schemas[i]
	for _, ids := range [][]millrace.ColumnID{r.PrimaryKey, r.PartitionBy, r.BucketKey} {
		for _, id := range ids {
			if schema.IndexID(id) < 0 {
				return nil, corrupt("table %d has column %d in a key, which does not exist", r.ID, id)
			}
		}
	}
	var err error
	if t.Table, err = r.table(d.Name, schema); err != nil {
		return nil, corrupt("table %d has properties that make no sense: %v", r.ID, err)
	}
	return t, checkOptions(t.Table)
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
