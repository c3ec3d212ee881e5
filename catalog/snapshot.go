package catalog

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
)

// snapshot is the catalog at one revision. Once stored in Catalog.current it is
// immutable, with everything it points to.
type snapshot struct {
	head         headRecord
	headRevision uint64 // of the key in the store

	databases []*database          // by name
	byName    map[string]*database // by folded name
	tables    map[millrace.TableID]*table

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
}

// fold is what names are compared by; it does not allocate for lower-case names.
func fold(name string) string { return strings.ToLower(name) }

// edit is a copy of s whose own maps and slices may be changed; databases are
// copied by editDatabase before they are.
func (s *snapshot) edit() *snapshot {
	next := *s
	next.databases = slices.Clone(s.databases)
	next.byName = maps.Clone(s.byName)
	next.tables = maps.Clone(s.tables)
	return &next
}

// editDatabase puts a copy of d into s whose maps and slices may be changed.
// REQUIRES: s came from edit.
func (s *snapshot) editDatabase(d *database) *database {
	next := *d
	next.tables = slices.Clone(d.tables)
	next.byName = maps.Clone(d.byName)
	i, _ := s.findDatabase(d.Name)
	s.databases[i] = &next
	s.byName[fold(d.Name)] = &next
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

// REQUIRES: s came from edit.
func (s *snapshot) addDatabase(d *database) {
	i, _ := s.findDatabase(d.Name)
	s.databases = slices.Insert(s.databases, i, d)
	s.byName[fold(d.Name)] = d
}

// REQUIRES: s came from edit.
func (s *snapshot) removeDatabase(d *database) {
	i, _ := s.findDatabase(d.Name)
	s.databases = slices.Delete(s.databases, i, i+1)
	delete(s.byName, fold(d.Name))
	for _, t := range d.tables {
		delete(s.tables, t.ID)
	}
}

// REQUIRES: s came from edit, d from editDatabase.
func (s *snapshot) addTable(d *database, t *table) {
	i, _ := d.findTable(t.Path.Table)
	d.tables = slices.Insert(d.tables, i, t)
	d.byName[fold(t.Path.Table)] = t
	s.tables[t.ID] = t
}

// REQUIRES: s came from edit, d from editDatabase.
func (s *snapshot) removeTable(d *database, t *table) {
	i, _ := d.findTable(t.Path.Table)
	d.tables = slices.Delete(d.tables, i, i+1)
	delete(d.byName, fold(t.Path.Table))
	delete(s.tables, t.ID)
}
