package arrowrow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// Options say what the columns of a stream mean.
type Options struct {
	// Key names the key columns, which must be there.
	Key []string
	// Partial makes the columns of the stream the columns that are written, and asks
	// for no others than the key.
	Partial bool
	// KeyOnly does as Partial does, and lets columns outside Key hold NULL even where
	// they are NOT NULL: for deletes and for lookups.
	KeyOnly bool
	// AllowChangeType takes a column _change_type of text. Of a row that deletes (-D,
	// or -U, which is ignored by those who apply it) only the key must be there.
	AllowChangeType bool
	// Limits are those of the stream.
	Limits Limits
}

// Plan is how the batches of one stream become rows of a table.
type Plan struct {
	limits   Limits
	columns  []millrace.Column
	schema   *arrow.Schema
	sources  []source
	changes  *cast // of _change_type, at changeAt
	changeAt int
	fields   int   // of the stream
	rows     int64 // before the next batch
}

// source is where the values of one column come from.
type source struct {
	at   int   // in the stream, or -1
	cast *cast // nil when the stream does not have the column
	// lenient: NULL or absence matters only in rows that do not delete.
	lenient bool
	missing errs.Code // why absence is an error, or ""
	// numbered: the server gives the values, so that none may be given in rows that do
	// not delete.
	numbered bool
}

// NewPlan matches the columns of a stream with those of a table by name. It fails
// with all columns that are at fault: unknown_column, duplicate_field, missing_key,
// missing_column, or type_mismatch where no cast of any value can succeed.
func NewPlan(stream *arrow.Schema, table []millrace.Column, opts Options) (*Plan, error) {
	p := &Plan{limits: opts.Limits.withDefaults(), fields: stream.NumFields(), changeAt: -1}
	var faults []errs.FieldError
	fault := func(name string, code errs.Code, format string, args ...any) {
		faults = append(faults, errs.FieldError{Field: clip(name), Code: code, Message: fmt.Sprintf(format, args...)})
	}
	at := map[string]int{}
	for i, f := range stream.Fields() {
		switch _, twice := at[f.Name]; {
		case pandasIndex(f.Name):
		case twice:
			fault(f.Name, errs.DuplicateField, "the column stands twice")
		case f.Name == millrace.ColChangeType && opts.AllowChangeType:
			at[f.Name], p.changeAt = i, i
			c, err := newCast(f.Type, millrace.Column{Name: f.Name, Type: millrace.DataType{Kind: millrace.String}}, f.Name)
			if err != nil {
				faults = append(faults, *err)
			}
			p.changes = c
		case !slices.ContainsFunc(table, func(c millrace.Column) bool { return c.Name == f.Name }):
			fault(f.Name, errs.UnknownColumn, "no such column")
		default:
			at[f.Name] = i
		}
	}
	for _, c := range table {
		i, given := at[c.Name]
		key := slices.Contains(opts.Key, c.Name)
		s := source{at: -1, lenient: !key && (opts.KeyOnly || p.changeAt >= 0)}
		c.Nullable = !key && (c.Nullable || opts.KeyOnly || c.AutoIncrement) // NULL asks for the next number
		switch {
		case given:
			cast, err := newCast(stream.Field(i).Type, c, c.Name)
			if err != nil {
				faults = append(faults, *err)
			}
			s.at, s.cast, s.numbered = i, cast, c.AutoIncrement && !opts.KeyOnly
		case key:
			fault(c.Name, errs.MissingKey, "the key column is missing")
			continue
		case opts.Partial || opts.KeyOnly:
			continue
		case !c.Nullable && !s.lenient:
			fault(c.Name, errs.MissingColumn, "the column is missing, and it is NOT NULL")
			continue
		case !c.Nullable:
			s.missing = errs.MissingColumn
		}
		p.sources = append(p.sources, s)
		p.columns = append(p.columns, c)
	}
	if len(faults) > 0 {
		return nil, faultError(faults, int64(len(faults)), "column")
	}
	p.columns = original(table, p.columns)
	p.schema = row.ArrowSchema(p.columns)
	return p, nil
}

// original are the table's own columns that are in cols, without what the plan
// knows better about their nullability.
func original(table, cols []millrace.Column) []millrace.Column {
	return slices.DeleteFunc(slices.Clone(table), func(c millrace.Column) bool {
		return !slices.ContainsFunc(cols, func(o millrace.Column) bool { return o.Name == c.Name })
	})
}

// pandasIndex says whether a column is an index that pandas added: __index_level_0__.
func pandasIndex(name string) bool {
	n, ok := strings.CutPrefix(name, "__index_level_")
	if n, ok2 := strings.CutSuffix(n, "__"); ok && ok2 && n != "" {
		return strings.Trim(n, "0123456789") == ""
	}
	return false
}

// Columns are the columns that the rows have: with Partial and KeyOnly those of the
// stream, else all, in the order of the table.
func (p *Plan) Columns() []millrace.Column { return p.columns }

// faultError makes one error of the faults of many rows or columns. total counts
// them all, of which faults may be the first.
func faultError(faults []errs.FieldError, total int64, what string) *errs.Error {
	f := faults[0]
	msg := f.Message
	if f.Field != "" {
		msg = fmt.Sprintf("column %q: %s", f.Field, msg)
	}
	if f.Index != nil {
		msg = fmt.Sprintf("row %d, %s", *f.Index, msg)
	}
	if total > 1 {
		msg += fmt.Sprintf("; and %d more %ss at fault", total-1, what)
	}
	return &errs.Error{Code: f.Code, Message: msg, Fields: faults[:min(len(faults), errs.MaxFieldErrors)]}
}
