package catalog

import (
	"fmt"
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
}

func loadSnapshot(entries []Entry) (*snapshot, error) {
	l := loader{
		snapshot:  &snapshot{byName: map[string]*database{}, tables: map[millrace.TableID]*table{}},
		databases: map[millrace.DatabaseID]*database{},
		schemas:   map[millrace.TableID][]*millrace.Schema{},
	}
	// In key order: databases, head, schemas, signing, tables; each refers to what
	// came before it only.
	for _, e := range entries {
		if err := l.load(e); err != nil {
			return nil, err
		}
	}
	if l.snapshot.headRevision == 0 {
		return nil, corrupt("key %q is missing", keyHead)
	}
	for id := range l.schemas {
		if l.snapshot.tables[id] == nil {
			return nil, corrupt("there are schemas of table %d, which does not exist", id)
		}
	}
	for id := range l.databases {
		if id >= l.snapshot.head.NextDatabase {
			return nil, corrupt("database %d has an id that has not been given yet", id)
		}
	}
	return l.snapshot, nil
}

func (l *loader) load(e Entry) error {
	switch {
	case e.Key == keyHead:
		return l.head(e)
	case e.Key == keySigning:
		return l.signing(e)
	case strings.HasPrefix(e.Key, prefixDatabase):
		return l.database(e)
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
	l.snapshot.addDatabase(d)
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
	case len(r.Shards) != r.Buckets || r.Buckets < 1:
		return corrupt("table %d has %d buckets and %d shards of buckets", r.ID, r.Buckets, len(r.Shards))
	}
	for _, shard := range r.Shards {
		if int(shard) >= l.snapshot.head.Shards {
			return corrupt("table %d has a bucket in shard %d of %d", r.ID, shard, l.snapshot.head.Shards)
		}
	}
	schemas := l.schemas[r.ID]
	t := &table{schemas: schemas}
	for _, s := range schemas {
		if s.ID == r.SchemaID {
			t.Table = r.table(d.Name, s)
		}
	}
	if t.Table == nil {
		return corrupt("table %d has schema %d, which does not exist", r.ID, r.SchemaID)
	}
	for _, ids := range [][]millrace.ColumnID{r.PrimaryKey, r.PartitionBy, r.BucketKey} {
		for _, id := range ids {
			if t.Schema.IndexID(id) < 0 {
				return corrupt("table %d has column %d in a key, which does not exist", r.ID, id)
			}
		}
	}
	l.snapshot.addTable(d, t)
	return nil
}
