package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
)

// loader builds a snapshot from the entries of a store and checks that they fit
// together. Whatever it finds wrong is damage, since only whole commits are
// stored and each was checked before it was made.
type loader struct {
	snapshot *snapshot
	schemas  map[millrace.TableID][]*millrace.Schema // oldest first
	// partitions are in the order of ids.
	partitions map[millrace.TableID][]partitionRecord
}

func loadSnapshot(entries []Entry) (*snapshot, error) {
	l := loader{
		snapshot: &snapshot{
			byName: map[string]*database{}, byID: map[millrace.DatabaseID]*database{}, tables: map[millrace.TableID]*table{},
			partitions: map[millrace.TableID]*partitions{}, nextIDs: map[millrace.TableID]int64{},
			quotaOf: map[string]*millrace.Quota{},
		},
		schemas:    map[millrace.TableID][]*millrace.Schema{},
		partitions: map[millrace.TableID][]partitionRecord{},
	}
	// In key order: databases, grants, head, ids, partitions, purges, quotas, schemas, signing, tables;
	// tables gather what came before them.
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
	for id := range s.byID {
		if id >= s.head.NextDatabase {
			return corrupt("database %d has an id that has not been given yet", id)
		}
	}
	if err := s.checkGrants(s.grants); err != nil {
		return err
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
	case strings.HasPrefix(e.Key, prefixGrant):
		return l.grant(e)
	case strings.HasPrefix(e.Key, prefixIDs):
		return l.ids(e)
	case strings.HasPrefix(e.Key, prefixPartition):
		return l.partition(e)
	case strings.HasPrefix(e.Key, prefixPurge):
		return l.purge(e)
	case strings.HasPrefix(e.Key, prefixQuota):
		return l.quota(e)
	case strings.HasPrefix(e.Key, prefixSchema):
		return l.schema(e)
	case strings.HasPrefix(e.Key, prefixTable):
		return l.table(e)
	}
	return newerRelease(fmt.Sprintf("key %q is of no known kind", e.Key))
}

func (l *loader) head(e Entry) error { return l.snapshot.setHead(e) }

func (l *loader) signing(e Entry) error { return l.snapshot.setSigning(e) }

func (l *loader) database(e Entry) error {
	d, err := decodeDatabase(e)
	if err != nil {
		return err
	}
	if l.snapshot.byName[fold(d.Name)] != nil {
		return corrupt("key %q holds database %d, %q", e.Key, d.ID, d.Name)
	}
	l.snapshot.byID[d.ID] = d
	l.snapshot.databases = append(l.snapshot.databases, d)
	l.snapshot.byName[fold(d.Name)] = d
	return nil
}

func (l *loader) grant(e Entry) error {
	g, err := decodeGrant(e)
	if err != nil {
		return err
	}
	l.snapshot.grants = append(l.snapshot.grants, g)
	return nil
}

func (l *loader) ids(e Entry) error {
	r, err := decodeIDs(e)
	if err != nil {
		return err
	}
	l.snapshot.nextIDs[r.TableID] = r.Next
	return nil
}

func (l *loader) partition(e Entry) error {
	r, err := l.snapshot.decodePartition(e)
	if err != nil {
		return err
	}
	l.partitions[r.TableID] = append(l.partitions[r.TableID], r)
	return nil
}

func (l *loader) purge(e Entry) error {
	p, err := l.snapshot.decodePurge(e)
	if err != nil {
		return err
	}
	l.snapshot.purges = append(l.snapshot.purges, p)
	return nil
}

func (l *loader) schema(e Entry) error {
	r, err := decodeSchema(e)
	if err != nil {
		return err
	}
	l.schemas[r.TableID] = append(l.schemas[r.TableID], r.Schema)
	return nil
}

func (l *loader) table(e Entry) error {
	var r tableRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	d := l.snapshot.byID[r.DatabaseID]
	t, err := l.snapshot.decodeTable(e, &r, d, l.schemas[r.ID])
	if err != nil {
		return err
	}
	if d.byName[fold(r.Name)] != nil {
		return corrupt("database %d has two tables named %q", r.DatabaseID, r.Name)
	}
	d.tables = append(d.tables, t)
	d.byName[fold(r.Name)] = t
	l.snapshot.tables[r.ID] = t
	return l.partitionsOf(t.Table)
}

// partitionsOf makes the partitions of a table.
func (l *loader) partitionsOf(t *millrace.Table) error {
	records := l.partitions[t.ID]
	if len(records) == 0 {
		return nil
	}
	ps := &partitions{}
	for _, r := range records {
		p, err := r.of(t)
		if err != nil {
			return err
		}
		ps.byID = append(ps.byID, p)
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
