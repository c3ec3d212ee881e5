package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/openapi"
)

type tableAlterCmd struct {
	connection
	Table        string            `arg:"" help:"DATABASE.TABLE."`
	DropColumn   []string          `help:"Drop a column." placeholder:"COLUMN"`
	RenameColumn []string          `help:"Rename a column: old=new. Repeat it." sep:"none" placeholder:"OLD=NEW"`
	AlterType    []string          `help:"Widen a column: 'name=TYPE'. Repeat it." sep:"none" placeholder:"COLUMN=TYPE"`
	AddColumn    []string          `help:"Add a column: 'name TYPE', at the end, or 'name TYPE FIRST', 'name TYPE AFTER other'. Repeat it." sep:"none" placeholder:"COLUMN"`
	Comment      *string           `help:"What the table is for."`
	ColComment   []string          `name:"column-comment" help:"What a column is for: name=text. Repeat it." sep:"none" placeholder:"COLUMN=TEXT"`
	Set          map[string]string `help:"Set a property: key=value. Repeat it." mapsep:"none" placeholder:"KEY=VALUE"`
	Reset        []string          `help:"Set a property back." placeholder:"KEYS"`
	IfVersion    int64             `help:"Only when the table has this version." placeholder:"N"`
}

// Help is the text after the flags.
func (*tableAlterCmd) Help() string {
	return `All changes are made, or none. They are made in the order of the flags above, whatever their order in the command.
Fields of a ROW are named with a dot: --drop-column address.zip, --add-column 'address.street STRING'.`
}

// Run implements the command.
func (c *tableAlterCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	steps, err := c.steps()
	if err != nil {
		return err
	}
	d, err := t.Alter(ctx, steps, c.IfVersion)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "table %s.%s, version %d, schema %d\n", printable(d.Database), printable(d.Name), d.Version, d.SchemaID)
	return nil
}

func (c *tableAlterCmd) steps() ([]openapi.AlterOp, error) {
	var out []openapi.AlterOp
	for _, name := range c.DropColumn {
		out = append(out, openapi.AlterOp{Op: openapi.AlterOpOpDropColumn, Name: name})
	}
	pairs := func(flag string, list []string, step func(name, value string) (openapi.AlterOp, error)) error {
		for _, pair := range list {
			name, value, ok := strings.Cut(pair, "=")
			if !ok || name == "" {
				return usagef("--%s %q is not of the form name=value", flag, pair)
			}
			op, err := step(strings.TrimSpace(name), strings.TrimSpace(value))
			if err != nil {
				return err
			}
			out = append(out, op)
		}
		return nil
	}
	err := pairs("rename-column", c.RenameColumn, func(name, to string) (openapi.AlterOp, error) {
		return openapi.AlterOp{Op: openapi.AlterOpOpRenameColumn, Name: name, To: to}, nil
	})
	if err != nil {
		return nil, err
	}
	err = pairs("alter-type", c.AlterType, func(name, text string) (openapi.AlterOp, error) {
		typ, err := millrace.ParseType(text)
		if err != nil {
			return openapi.AlterOp{}, usagef("--alter-type %s: %v", name, err)
		}
		return openapi.AlterOp{Op: openapi.AlterOpOpAlterType, Name: name, Type: typ.String()}, nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range c.AddColumn {
		op, err := addColumn(s)
		if err != nil {
			return nil, err
		}
		out = append(out, op)
	}
	if c.Comment != nil {
		out = append(out, openapi.AlterOp{Op: openapi.AlterOpOpSetComment, Comment: *c.Comment})
	}
	err = pairs("column-comment", c.ColComment, func(name, text string) (openapi.AlterOp, error) {
		return openapi.AlterOp{Op: openapi.AlterOpOpSetComment, Name: name, Comment: text}, nil
	})
	if err != nil {
		return nil, err
	}
	if len(c.Set) > 0 {
		out = append(out, openapi.AlterOp{Op: openapi.AlterOpOpSetProperties, Properties: maps.Clone(c.Set)})
	}
	if len(c.Reset) > 0 {
		out = append(out, openapi.AlterOp{Op: openapi.AlterOpOpResetProperties, Keys: slices.Clone(c.Reset)})
	}
	if len(out) == 0 {
		return nil, usagef("nothing to change: say what with flags such as --add-column 'name TYPE'")
	}
	return out, nil
}

// addColumn reads "name TYPE [FIRST | AFTER column]".
func addColumn(s string) (openapi.AlterOp, error) {
	op := openapi.AlterOp{Op: openapi.AlterOpOpAddColumn}
	words := strings.Fields(s)
	switch n := len(words); {
	case n > 2 && strings.EqualFold(words[n-1], "FIRST"):
		op.First = true
		words = words[:n-1]
	case n > 3 && strings.EqualFold(words[n-2], "AFTER"):
		op.After = words[n-1]
		words = words[:n-2]
	}
	col, err := parseColumn(strings.Join(words, " "))
	if err != nil {
		return op, usagef("--add-column %q is not of the form 'name TYPE [FIRST | AFTER column]'", s)
	}
	op.Column = &col
	return op, nil
}
