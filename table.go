package millrace

import (
	"slices"
	"time"
)

// TableKind is log or keyed.
type TableKind string

// The kinds of tables.
const (
	LogTable   TableKind = "log"
	KeyedTable TableKind = "keyed"
)

// Column is a column of a table, or a nested field of a type.
type Column struct {
	ID            ColumnID `json:"id"`
	Name          string   `json:"name"`
	Type          DataType `json:"type"`
	Nullable      bool     `json:"nullable"`
	Comment       string   `json:"comment,omitempty"`
	AutoIncrement bool     `json:"auto_increment,omitempty"`
}

// Schema is one version of a table's columns, in order. It is immutable.
type Schema struct {
	ID      SchemaID `json:"id"`
	Columns []Column `json:"columns"`
}

// Index is the position of the column with this name, or -1.
func (s *Schema) Index(name string) int {
	return slices.IndexFunc(s.Columns, func(c Column) bool { return c.Name == name })
}

// IndexID is the position of the column with this id, or -1.
func (s *Schema) IndexID(id ColumnID) int {
	return slices.IndexFunc(s.Columns, func(c Column) bool { return c.ID == id })
}

// AutoIncrement is the position of the column that the server numbers, or -1.
func (s *Schema) AutoIncrement() int {
	return slices.IndexFunc(s.Columns, func(c Column) bool { return c.AutoIncrement })
}

// Table is the descriptor of a table as of one version. It is immutable: a
// change makes a new one with a higher Version.
type Table struct {
	ID          TableID    `json:"id"`
	DatabaseID  DatabaseID `json:"database_id"`
	Path        TablePath  `json:"path"`
	Kind        TableKind  `json:"kind"`
	Schema      *Schema    `json:"schema"`
	PrimaryKey  []ColumnID `json:"primary_key,omitempty"`
	PartitionBy []ColumnID `json:"partition_by,omitempty"`
	BucketKey   []ColumnID `json:"bucket_key,omitempty"` // resolved: never empty on a keyed table
	Buckets     int        `json:"buckets"`
	// Shards are those of the buckets, by bucket number; empty on a partitioned table,
	// whose partitions have their own.
	Shards     []ShardID         `json:"shards"`
	Properties map[string]string `json:"properties,omitempty"`
	// Options are what Properties say, resolved.
	Options   TableOptions `json:"options,omitzero"`
	Comment   string       `json:"comment,omitempty"`
	Version   int64        `json:"version"`
	CreatedAt time.Time    `json:"created_at"`
	// LastColumnID is the highest column or field id ever given in this table.
	LastColumnID ColumnID `json:"last_column_id"`
}

// Keyed says whether the table has a primary key.
func (t *Table) Keyed() bool { return t.Kind == KeyedTable }

// Partitioned says whether the table has partition columns.
func (t *Table) Partitioned() bool { return len(t.PartitionBy) > 0 }

// Columns returns the columns with the given ids, in that order.
// REQUIRES: each id is of the current schema.
func (t *Table) Columns(ids []ColumnID) []Column {
	out := make([]Column, len(ids))
	for i, id := range ids {
		out[i] = t.Schema.Columns[t.Schema.IndexID(id)]
	}
	return out
}

// Names returns the names of the columns with the given ids.
func (t *Table) Names(ids []ColumnID) []string {
	out := make([]string, len(ids))
	for i, c := range t.Columns(ids) {
		out[i] = c.Name
	}
	return out
}

// KeyIndexes returns the positions in the current schema of the given columns.
func (t *Table) KeyIndexes(ids []ColumnID) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = t.Schema.IndexID(id)
	}
	return out
}

// BucketID is the id of bucket n of an unpartitioned table.
func (t *Table) BucketID(n uint16) BucketID { return BucketID{Table: t.ID, Bucket: n} }
