package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Limits of ALTER.
const (
	// MaxAlterSteps is the most steps of one ALTER.
	MaxAlterSteps = 1000
	// maxSchemas is the most versions that a table's schema may have; all are kept.
	maxSchemas = 10_000
)

// The kinds of an AlterStep.
const (
	AddColumn       = "add_column"
	RenameColumn    = "rename_column"
	DropColumn      = "drop_column"
	AlterType       = "alter_type"
	SetComment      = "set_comment"
	SetProperties   = "set_properties"
	ResetProperties = "reset_properties"
)

// AlterStep is one change of a table; Op says which, and the fields that it does not
// have are empty. A nested field is named by its path: "address.zip", with "element",
// "key" and "value" for what an ARRAY or MAP holds.
type AlterStep struct {
	Op string `json:"op"`
	// Column is what add_column adds, at the end or where First and After say.
	Column *ColumnSpec `json:"column,omitempty"`
	First  bool        `json:"first,omitempty"`
	After  string      `json:"after,omitempty"` // a column, or a field beside the new one
	// Name is the column of rename_column, drop_column, alter_type and set_comment;
	// the latter without it is of the table's comment.
	Name       string            `json:"name,omitempty"`
	To         string            `json:"to,omitempty"`   // the new name of rename_column
	Type       string            `json:"type,omitempty"` // the new type of alter_type
	Comment    *string           `json:"comment,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Keys       []string          `json:"keys,omitempty"` // of reset_properties
}

// errUnchanged ends a change that changes nothing.
var errUnchanged = errors.New("it is like that")

// AlterTable applies steps in order, all or none, and returns the table as it then
// is. With ifVersion the table must have that version. What changes columns or their
// comments makes a new schema; whatever changes anything raises the version, and
// what changes nothing leaves it.
func (c *Catalog) AlterTable(ctx context.Context, path millrace.TablePath, steps []AlterStep, ifVersion *int64) (*millrace.Table, error) {
	return c.AlterTableIf(ctx, path, steps, ifVersion, nil)
}

// AlterTableIf is AlterTable of a table that a function lets be altered: the one that has the
// name when it is.
func (c *Catalog) AlterTableIf(ctx context.Context, path millrace.TablePath, steps []AlterStep, ifVersion *int64, may func(*millrace.Table) error) (*millrace.Table, error) {
	if len(steps) == 0 || len(steps) > MaxAlterSteps {
		return nil, field(errs.InvalidValue, "ops", "there are %d steps; an ALTER has 1 to %d", len(steps), MaxAlterSteps)
	}
	var out *millrace.Table
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		t, err := s.table(path)
		if err != nil {
			return nil, err
		}
		if err := permitted(may, t.Table); err != nil {
			return nil, err
		}
		out = t.Table
		if ifVersion != nil && *ifVersion != t.Version {
			return nil, errs.New(errs.VersionMismatch, "table %q has version %d, not %d; read it again and decide anew", path, t.Version, *ifVersion)
		}
		next, err := t.alter(steps)
		if err != nil {
			return nil, err
		}
		out = next.Table
		s.replaceTable(next)
		s.raiseLevel(next)
		writes, err := next.writes()
		return append(writes, s.narrow(next.Table)...), err
	})
	if errors.Is(err, errUnchanged) {
		err = c.settleFound(ctx, ref{table: out.ID})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// alter is t after the steps; errUnchanged when it is the same.
func (t *table) alter(steps []AlterStep) (*table, error) {
	a := newAlteration(t.Table)
	for i, step := range steps {
		if err := a.apply(step); err != nil {
			return nil, inStep(err, i, step.Op, len(steps))
		}
	}
	if err := a.finish(t.Table); err != nil {
		return nil, err
	}
	columns := !reflect.DeepEqual(a.t.Schema.Columns, t.Schema.Columns)
	if !columns && a.t.Comment == t.Comment && maps.Equal(a.t.Properties, t.Properties) {
		return nil, errUnchanged
	}
	next := &table{Table: a.t, schemas: t.schemas, expired: t.expired}
	next.Version++
	if !columns {
		next.Schema = t.Schema
		return next, nil
	}
	if len(t.schemas) >= maxSchemas {
		return nil, errs.New(errs.InvalidSchema, "the columns of table %q have changed %d times, the most there can be; make a new table and move the rows", t.Path, len(t.schemas)-1)
	}
	next.Schema.ID = t.schemas[len(t.schemas)-1].ID + 1
	next.schemas = append(slices.Clip(t.schemas), next.Schema)
	return next, nil
}

// inStep says which of several steps an error is of.
func inStep(err error, i int, op string, steps int) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || steps == 1 {
		return err
	}
	e.Message = fmt.Sprintf("ops[%d], %s: %s", i, clipped(op), e.Message)
	return e
}

// alteration is a table while it is being changed: a copy whose columns and
// properties may be edited.
type alteration struct {
	t *millrace.Table
}

func newAlteration(t *millrace.Table) *alteration {
	next := *t
	next.Schema = &millrace.Schema{ID: t.Schema.ID, Columns: cloneColumns(t.Schema.Columns)}
	next.Properties = maps.Clone(t.Properties)
	return &alteration{t: &next}
}

func cloneColumns(cols []millrace.Column) []millrace.Column {
	out := slices.Clone(cols)
	for i := range out {
		out[i].Type.Children = cloneColumns(out[i].Type.Children)
	}
	return out
}

func (a *alteration) apply(s AlterStep) error {
	if err := s.checkFields(); err != nil {
		return err
	}
	switch s.Op {
	case AddColumn:
		return a.addColumn(*s.Column, s.First, s.After)
	case RenameColumn:
		return a.renameColumn(s.Name, s.To)
	case DropColumn:
		return a.dropColumn(s.Name)
	case AlterType:
		return a.alterType(s.Name, s.Type)
	case SetComment:
		return a.setComment(s.Name, *s.Comment)
	case SetProperties:
		return a.setProperties(s.Properties)
	default:
		return a.resetProperties(s.Keys)
	}
}

// checkFields checks that a step has the fields of its kind, and no others.
func (s AlterStep) checkFields() error {
	const needed, allowed = 1, 2
	kinds := map[string]map[string]int{
		AddColumn:       {"column": needed, "first": allowed, "after": allowed},
		RenameColumn:    {"name": needed, "to": needed},
		DropColumn:      {"name": needed},
		AlterType:       {"name": needed, "type": needed},
		SetComment:      {"comment": needed, "name": allowed},
		SetProperties:   {"properties": needed},
		ResetProperties: {"keys": needed},
	}
	kind, ok := kinds[s.Op]
	if !ok {
		return field(errs.InvalidValue, "op", "there is no step %s; it is one of %v", clip(s.Op), slices.Sorted(maps.Keys(kinds)))
	}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"column", s.Column != nil},
		{"first", s.First},
		{"after", s.After != ""},
		{"name", s.Name != ""},
		{"to", s.To != ""},
		{"type", s.Type != ""},
		{"comment", s.Comment != nil},
		{"properties", len(s.Properties) > 0},
		{"keys", len(s.Keys) > 0},
	} {
		switch use := kind[f.name]; {
		case f.given && use == 0:
			return field(errs.UnknownField, f.name, "%s has no field %q", s.Op, f.name)
		case !f.given && use == needed:
			return field(errs.InvalidValue, f.name, "%s needs the field %q", s.Op, f.name)
		}
	}
	if s.First && s.After != "" {
		return field(errs.InvalidValue, "after", "the column comes first, or after %s, and not both", clip(s.After))
	}
	return nil
}

// finish checks the table that the steps made of was, and resolves its options.
func (a *alteration) finish(was *millrace.Table) error {
	if n := len(a.t.Schema.Columns); n > MaxColumns {
		return tooManyColumns(n)
	}
	if n := countFields(a.t.Schema.Columns); n > MaxFields {
		return tooManyFields(n)
	}
	for _, c := range a.t.Schema.Columns {
		// A field that was added may be nested too deep, or be one too many.
		if c.Type.Nested() {
			if _, err := parseType(c.Name, c.Type.String()); err != nil {
				return err
			}
		}
	}
	var err error
	if a.t.Options, err = resolveOptions(a.t); err != nil {
		return err
	}
	return checkFixed(&was.Options, &a.t.Options)
}

func countFields(cols []millrace.Column) int {
	n := len(cols)
	for _, c := range cols {
		n += countFields(c.Type.Children)
	}
	return n
}

func (a *alteration) setComment(name, comment string) error {
	if name == "" {
		a.t.Comment = comment
		return nil
	}
	p, err := a.find(name)
	if err != nil {
		return err
	}
	p.column().Comment = comment
	return nil
}
