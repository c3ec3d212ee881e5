package catalog

import (
	"fmt"
	"maps"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Limits of a table.
const (
	// MaxColumns is the most columns a table may have.
	MaxColumns = 2000
	// MaxFields is the most columns and nested fields together.
	MaxFields = 10_000
	// maxDescriptorBytes bounds each stored record, so that it fits into one message
	// of a replicated store.
	maxDescriptorBytes = 768 << 10
)

// Spec describes a table to be made; its JSON form is the body of "create table".
type Spec struct {
	Name        string            `json:"name"`
	Columns     []ColumnSpec      `json:"columns"`
	PrimaryKey  []string          `json:"primary_key,omitempty"` // none: a log table
	PartitionBy []string          `json:"partition_by,omitempty"`
	BucketKey   []string          `json:"bucket_key,omitempty"` // keyed tables: the primary key by default
	Buckets     *int              `json:"buckets,omitempty"`    // 1 by default
	Properties  map[string]string `json:"properties,omitempty"`
	Comment     string            `json:"comment,omitempty"`
}

// ColumnSpec describes a column to be made.
type ColumnSpec struct {
	Name          string `json:"name"`
	Type          string `json:"type"`               // as millrace.ParseType reads it
	Nullable      *bool  `json:"nullable,omitempty"` // by default true, false for columns of keys
	Comment       string `json:"comment,omitempty"`
	AutoIncrement bool   `json:"auto_increment,omitempty"`
}

// definition is a checked Spec: everything of a table that the spec alone decides.
type definition struct {
	name         string
	kind         millrace.TableKind
	columns      []millrace.Column
	primaryKey   []millrace.ColumnID
	bucketKey    []millrace.ColumnID
	buckets      int
	properties   map[string]string
	comment      string
	lastColumnID millrace.ColumnID
}

// table is the descriptor of the definition, made as a table of d.
func (def *definition) table(d *database, id millrace.TableID, now time.Time, shards []millrace.ShardID) *millrace.Table {
	return &millrace.Table{
		ID: id, DatabaseID: d.ID, Path: millrace.TablePath{Database: d.Name, Table: def.name}, Kind: def.kind,
		Schema:     &millrace.Schema{ID: firstSchema, Columns: def.columns},
		PrimaryKey: def.primaryKey, BucketKey: def.bucketKey, Buckets: def.buckets, Shards: shards,
		Properties: def.properties, Comment: def.comment, Version: firstVersion, CreatedAt: now, LastColumnID: def.lastColumnID,
	}
}

// define checks everything about a spec that does not hang on other tables.
func (spec *Spec) define() (*definition, error) {
	if err := checkName("table", spec.Name); err != nil {
		return nil, err
	}
	def := &definition{name: spec.Name, kind: millrace.LogTable, comment: spec.Comment}
	if len(spec.PrimaryKey) > 0 {
		def.kind = millrace.KeyedTable
	}
	if err := def.setColumns(spec.Columns); err != nil {
		return nil, err
	}
	bucketKey, buckets, err := spec.bucketing()
	if err != nil {
		return nil, err
	}
	if err := def.setKeys(spec, bucketKey); err != nil {
		return nil, err
	}
	if buckets < 1 || buckets > millrace.MaxBuckets {
		return nil, field(errs.InvalidSchema, "buckets", "buckets is %d; it is 1 to %d", buckets, millrace.MaxBuckets)
	}
	def.buckets = buckets
	if err := checkProperties(spec.Properties, def); err != nil {
		return nil, err
	}
	def.properties = keptProperties(spec.Properties)
	return def, spec.refuseLater()
}

// refuseLater refuses what is well formed and comes with a later release.
func (spec *Spec) refuseLater() error {
	if len(spec.PartitionBy) > 0 {
		return notYet("partition_by", "partitioned tables (partition_by)")
	}
	for _, c := range spec.Columns {
		if c.AutoIncrement {
			return notYet(c.Name, "auto_increment columns")
		}
	}
	return refuseLaterProperties(spec.Properties)
}

func (def *definition) setColumns(specs []ColumnSpec) error {
	if len(specs) == 0 {
		return field(errs.InvalidSchema, "columns", "a table has at least one column")
	}
	if len(specs) > MaxColumns {
		return field(errs.InvalidSchema, "columns", "the table has %d columns; at most %d are allowed", len(specs), MaxColumns)
	}
	seen := make(map[string]string, len(specs))
	def.columns = make([]millrace.Column, len(specs))
	for i, cs := range specs {
		if err := checkName("column", cs.Name); err != nil {
			return err
		}
		if other, ok := seen[fold(cs.Name)]; ok {
			if other == cs.Name {
				return field(errs.InvalidSchema, cs.Name, "column %q stands twice", cs.Name)
			}
			return caseClash(errs.InvalidSchema, "column", cs.Name, other)
		}
		seen[fold(cs.Name)] = cs.Name
		typ, err := millrace.ParseType(cs.Type)
		if err != nil {
			return field(errs.InvalidSchema, cs.Name, "column %q: %v", cs.Name, err)
		}
		def.columns[i] = millrace.Column{Name: cs.Name, Type: typ, Nullable: cs.Nullable == nil || *cs.Nullable, Comment: cs.Comment}
	}
	if def.lastColumnID = numberFields(def.columns, 0); def.lastColumnID > MaxFields {
		return field(errs.InvalidSchema, "columns", "the table has %d columns and nested fields; at most %d are allowed", def.lastColumnID, MaxFields)
	}
	return nil
}

// numberFields gives columns and their nested fields ids after last, each before
// its children, and returns the last id given.
func numberFields(cols []millrace.Column, last millrace.ColumnID) millrace.ColumnID {
	for i := range cols {
		last++
		cols[i].ID = last
		last = numberFields(cols[i].Type.Children, last)
	}
	return last
}

// keptProperties are those that are stored and shown: all but the ones that are
// another spelling of a field.
func keptProperties(props map[string]string) map[string]string {
	kept := maps.Clone(props)
	delete(kept, propBucketNum)
	delete(kept, propBucketKey)
	if len(kept) == 0 {
		return nil
	}
	return kept
}

func checkName(noun, name string) error {
	if err := millrace.ValidateName(noun, name); err != nil {
		return field(errs.InvalidName, clipped(name), "%v", err)
	}
	return nil
}

// caseClash is the error for a name that meets another one but for its case.
func caseClash(code errs.Code, noun, name, other string) error {
	return field(code, name, "the %s name %q differs from the existing %q in case only", noun, name, other)
}

func tooLong(what string, n int) error {
	return field(errs.InvalidSchema, "", "the %s takes %d bytes; at most %d are allowed", what, n, maxDescriptorBytes)
}

func notYet(name, feature string) error {
	return field(errs.NotImplemented, name, "%s are not there yet: they come with a later release", feature)
}

// field is an error about one named thing of a request.
func field(code errs.Code, name, format string, args ...any) error {
	e := errs.New(code, format, args...)
	if name != "" {
		e.Fields = []errs.FieldError{{Field: name, Code: code, Message: e.Message}}
	}
	return e
}

const clipBytes = 64

func clipped(s string) string { return s[:min(len(s), clipBytes)] }

// clip quotes a name for a message, cut when it is long.
func clip(s string) string {
	if len(s) > clipBytes {
		return fmt.Sprintf("%q…", clipped(s))
	}
	return fmt.Sprintf("%q", s)
}
