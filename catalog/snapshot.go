package catalog

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
)

// snapshot is the catalog at one revision. Once stored in Catalog.current it is
// immutable, with everything it points to: a change copies what it changes, a map or
// slice of one level, and shares the rest.
type snapshot struct {
	head         headRecord
	headRevision uint64 // of the key in the store

	databases  []*database          // by name
	byName     map[string]*database // by folded name
	byID       map[millrace.DatabaseID]*database
	tables     map[millrace.TableID]*table
	partitions map[millrace.TableID]*partitions // of partitioned tables that have some
	nextIDs    map[millrace.TableID]int64       // the next auto-increment ids, of tables that have given some

	purges []*millrace.Purge // by number
	grants []*millrace.Grant // by number

	quotas  []*millrace.Quota          // by number
	quotaOf map[string]*millrace.Quota // by principal

	signing signingRecord
}

// database is a database with its tables. Names are looked up folded, so that
// names which differ in case only meet.
type database struct {
	Database

	tables []*table          // by name
	byName map[string]*table // by folded name
}

// table is a table with every version of its schema, oldest first.
type table struct {
	*millrace.Table

	schemas []*millrace.Schema
	// expired is the time before which no auto-partition is made any more.
	expired time.Time
}

// fold is what names are compared by; it does not allocate for lower-case names.
func fold(name string) string { return strings.ToLower(name) }

// edit is a copy of s that may be changed by the methods below.
func (s *snapshot) edit() *snapshot {
	next := *s
	return &next
}

// findDatabase is where the database is, or where it would be inserted.
func (s *snapshot) findDatabase(name string) (int, bool) {
	return slices.BinarySearchFunc(s.databases, name, func(d *database, n string) int { return cmp.Compare(d.Name, n) })
}

// findTable is where the table is, or where it would be inserted.
func (d *database) findTable(name string) (int, bool) {
	return slices.BinarySearchFunc(d.tables, name, func(t *table, n string) int { return cmp.Compare(t.Path.Table, n) })
}

// databaseOf is the database of a table. REQUIRES: the table is of s.
func (s *snapshot) databaseOf(t *table) *database { return s.byName[fold(t.Path.Database)] }

// REQUIRES: s came from edit, here and below.
func (s *snapshot) addDatabase(d *database) {
	i, _ := s.findDatabase(d.Name)
	s.databases = slices.Insert(slices.Clip(s.databases), i, d)
	s.byName = with(s.byName, fold(d.Name), d)
	s.byID = with(s.byID, d.ID, d)
}

func (s *snapshot) removeDatabase(d *database) {
	i, _ := s.findDatabase(d.Name)
	s.databases = slices.Delete(slices.Clone(s.databases), i, i+1)
	s.byName = without(s.byName, fold(d.Name))
	s.byID = without(s.byID, d.ID)
	ids := make([]millrace.TableID, len(d.tables))
	for i, t := range d.tables {
		ids[i] = t.ID
	}
	s.forget(ids...)
	s.dropGrants(func(g *millrace.Grant) bool { return g.Database == d.ID })
}

// editDatabase puts a copy of d into s whose own maps and slices may be changed.
func (s *snapshot) editDatabase(d *database) *database {
	next := *d
	next.tables, next.byName = slices.Clone(d.tables), maps.Clone(d.byName)
	i, _ := s.findDatabase(d.Name)
	s.databases = slices.Clone(s.databases)
	s.databases[i] = &next
	s.byName = with(s.byName, fold(d.Name), &next)
	s.byID = with(s.byID, d.ID, &next)
	return &next
}

func (s *snapshot) addTable(d *database, t *table) {
	d = s.editDatabase(d)
	i, _ := d.findTable(t.Path.Table)
	d.tables = slices.Insert(d.tables, i, t)
	d.byName[fold(t.Path.Table)] = t
	s.tables = with(s.tables, t.ID, t)
}

// replaceTable puts t in the place of the table with its id and name.
func (s *snapshot) replaceTable(t *table) {
	d := s.editDatabase(s.databaseOf(t))
	i, _ := d.findTable(t.Path.Table)
	d.tables[i] = t
	d.byName[fold(t.Path.Table)] = t
	s.tables = with(s.tables, t.ID, t)
}

func (s *snapshot) removeTable(t *table) {
	d := s.editDatabase(s.databaseOf(t))
	i, _ := d.findTable(t.Path.Table)
	d.tables = slices.Delete(d.tables, i, i+1)
	delete(d.byName, fold(t.Path.Table))
	s.forget(t.ID)
}

// forget removes what there is of tables besides their databases' lists.
func (s *snapshot) forget(ids ...millrace.TableID) {
	s.tables = without(s.tables, ids...)
	s.partitions = without(s.partitions, ids...)
	s.nextIDs = without(s.nextIDs, ids...)
	s.dropGrants(func(g *millrace.Grant) bool { return g.Table != 0 && slices.Contains(ids, g.Table) })
}

// with is a copy of m that has the key.
func with[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	next := make(map[K]V, len(m)+1)
	maps.Copy(next, m)
	next[key] = value
	return next
}

// without is a copy of m that lacks the keys, or m when it has none of them.
func without[K comparable, V any](m map[K]V, keys ...K) map[K]V {
	if !slices.ContainsFunc(keys, func(k K) bool { _, ok := m[k]; return ok }) {
		return m
	}
	next := maps.Clone(m)
	for _, k := range keys {
		delete(next, k)
	}
	return next
}
