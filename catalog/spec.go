package catalog

import (
	"fmt"
	"maps"

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
	BucketKey   []string          `json:"bucket_key,omitempty"` // keyed tables: the primary key less the partition columns by default
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

// define checks everything about a spec that does not hang on other tables, and
// returns the table but for what only the catalog can give it: ids, shards, a
// database and a time.
func (spec *Spec) define() (*millrace.Table, error) {
	if err := checkName("table", spec.Name); err != nil {
		return nil, err
	}
	t := &millrace.Table{Path: millrace.TablePath{Table: spec.Name}, Kind: millrace.LogTable, Comment: spec.Comment, Version: firstVersion}
	if len(spec.PrimaryKey) > 0 {
		t.Kind = millrace.KeyedTable
	}
	columns, err := makeColumns(spec.Columns)
	if err != nil {
		return nil, err
	}
	t.Schema = &millrace.Schema{ID: firstSchema, Columns: columns}
	if t.LastColumnID = numberFields(columns, 0); t.LastColumnID > MaxFields {
		return nil, tooManyFields(int(t.LastColumnID))
	}
	bucketKey, buckets, err := spec.bucketing()
	if err != nil {
		return nil, err
	}
	if err := setKeys(t, spec, bucketKey); err != nil {
		return nil, err
	}
	if buckets < 1 || buckets > millrace.MaxBuckets {
		return nil, field(errs.InvalidSchema, "buckets", "buckets is %d; it is 1 to %d", buckets, millrace.MaxBuckets)
	}
	t.Buckets = buckets
	if err := checkAutoIncrement(t); err != nil {
		return nil, err
	}
	t.Properties = keptProperties(spec.Properties)
	t.Options, err = resolveOptions(t)
	return t, err
}

func makeColumns(specs []ColumnSpec) ([]millrace.Column, error) {
	if len(specs) == 0 {
		return nil, field(errs.InvalidSchema, "columns", "a table has at least one column")
	}
	if len(specs) > MaxColumns {
		return nil, tooManyColumns(len(specs))
	}
	columns := make([]millrace.Column, len(specs))
	for i, cs := range specs {
		var err error
		if columns[i], err = makeColumn(cs); err != nil {
			return nil, err
		}
	}
	return columns, checkDistinct("column", columns)
}

// makeColumn is the column that cs describes, without ids.
func makeColumn(cs ColumnSpec) (millrace.Column, error) {
	if err := checkName("column", cs.Name); err != nil {
		return millrace.Column{}, err
	}
	typ, err := parseType(cs.Name, cs.Type)
	if err != nil {
		return millrace.Column{}, err
	}
	return millrace.Column{
		Name: cs.Name, Type: typ, Nullable: cs.Nullable == nil || *cs.Nullable, Comment: cs.Comment, AutoIncrement: cs.AutoIncrement,
	}, nil
}

func parseType(column, text string) (millrace.DataType, error) {
	typ, err := millrace.ParseType(text)
	if err != nil {
		return typ, field(errs.InvalidSchema, column, "column %q: %v", column, err)
	}
	return typ, nil
}

// checkDistinct refuses names that are equal, or differ in case only.
func checkDistinct(noun string, columns []millrace.Column) error {
	seen := make(map[string]string, len(columns))
	for _, c := range columns {
		if other, ok := seen[fold(c.Name)]; ok {
			if other == c.Name {
				return field(errs.InvalidSchema, c.Name, "%s %q stands twice", noun, c.Name)
			}
			return caseClash(errs.InvalidSchema, noun, c.Name, other)
		}
		seen[fold(c.Name)] = c.Name
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

func tooManyColumns(n int) error {
	return field(errs.InvalidSchema, "columns", "the table has %d columns; at most %d are allowed", n, MaxColumns)
}

func tooManyFields(n int) error {
	return field(errs.InvalidSchema, "columns", "the table has %d columns and nested fields; at most %d are allowed", n, MaxFields)
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
