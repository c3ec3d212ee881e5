package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/sql"
)

type tableCmd struct {
	Create   tableCreateCmd   `cmd:"" help:"Create a table."`
	List     tableListCmd     `cmd:"" help:"List the tables of a database."`
	Describe tableDescribeCmd `cmd:"" help:"Describe a table."`
	Drop     tableDropCmd     `cmd:"" help:"Drop a table."`
	Alter    tableAlterCmd    `cmd:"" help:"Change a table."`
}

type tableCreateCmd struct {
	connection
	Table       string            `arg:"" help:"DATABASE.TABLE."`
	Column      []string          `help:"A column: 'name TYPE [NOT NULL]', for example --column 'amount DECIMAL(10,2) NOT NULL'. Repeat it." sep:"none" placeholder:"COLUMN"`
	PrimaryKey  []string          `help:"Columns of the primary key; makes it a keyed table." placeholder:"COLUMNS"`
	BucketKey   []string          `help:"Columns whose values choose the bucket." placeholder:"COLUMNS"`
	PartitionBy []string          `help:"Columns whose values choose the partition." placeholder:"COLUMNS"`
	Buckets     int               `help:"Number of buckets (1)." placeholder:"N"`
	Property    map[string]string `help:"A property: key=value. Repeat it." mapsep:"none" placeholder:"KEY=VALUE"`
	Comment     string            `help:"What it is for."`
	File        string            `help:"Take the definition from a file: the JSON body of the HTTP operation, without or with a name, or a SQL CREATE TABLE statement; - is standard input." placeholder:"FILE"`
	IfNotExists bool              `help:"It may exist already, also with other columns."`
}

// Run implements the command.
func (c *tableCreateCmd) Run(ctx context.Context, a *app) error {
	path, err := millrace.ParseTablePath(c.Table)
	if err != nil {
		return usageError{err}
	}
	spec, err := c.spec(a, path)
	if err != nil {
		return err
	}
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	t, err := cl.CreateTable(ctx, path.Database, spec, c.IfNotExists)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s table %s.%s, %s\n", t.Kind, printable(t.Database), printable(t.Name), plural(t.Buckets, "bucket"))
	return nil
}

// spec is the definition that the flags or the file make.
func (c *tableCreateCmd) spec(a *app, path millrace.TablePath) (openapi.CreateTable, error) {
	spec := openapi.CreateTable{
		PrimaryKey: c.PrimaryKey, BucketKey: c.BucketKey, PartitionBy: c.PartitionBy,
		Buckets: c.Buckets, Properties: c.Property, Comment: c.Comment,
	}
	if c.File != "" {
		if len(c.Column) > 0 || len(c.PrimaryKey) > 0 || len(c.BucketKey) > 0 || len(c.PartitionBy) > 0 || c.Buckets != 0 || len(c.Property) > 0 || c.Comment != "" {
			return spec, usagef("--file holds the whole definition; it does not go with the other flags")
		}
		def, err := readSpec(a, c.File)
		if err != nil {
			return spec, err
		}
		if def.database != "" && def.database != path.Database {
			return spec, usagef("the file defines a table of database %q, and the command names %q", def.database, path.Database)
		}
		spec, c.IfNotExists = def.CreateTable, c.IfNotExists || def.ifNotExists
	}
	if spec.Name != "" && spec.Name != path.Table {
		return spec, usagef("the file defines %q, and the command names %q", spec.Name, path.Table)
	}
	spec.Name = path.Table
	for _, s := range c.Column {
		col, err := parseColumn(s)
		if err != nil {
			return spec, err
		}
		spec.Columns = append(spec.Columns, col)
	}
	if len(spec.Columns) == 0 {
		return spec, usagef("a table needs columns: --column 'name TYPE', or --file")
	}
	return spec, nil
}

// readSpec reads a definition from a file: JSON, or a CREATE TABLE statement.
func readSpec(a *app, name string) (definition, error) {
	var spec definition
	var text []byte
	var err error
	if name == "-" {
		text, err = io.ReadAll(a.stdin)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return spec, err
	}
	if !strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		return sqlSpec(string(text))
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec.CreateTable); err != nil {
		return spec, errs.New(errs.InvalidRequest, "%s is not a table definition: %v", name, err)
	}
	return spec, nil
}

// definition is a table to be made, as a file has it.
type definition struct {
	openapi.CreateTable
	database    string // "" when the file names none
	ifNotExists bool
}

// sqlSpec reads a CREATE TABLE statement. Its form in JSON is that of the HTTP
// operation.
func sqlSpec(text string) (definition, error) {
	st, err := sql.ParseCreateTable(text)
	if err != nil {
		return definition{}, err
	}
	out := definition{database: st.Database, ifNotExists: st.IfNotExists}
	b, err := json.Marshal(st.Spec)
	if err == nil {
		err = json.Unmarshal(b, &out.CreateTable)
	}
	return out, err
}

// parseColumn reads "name TYPE [NOT NULL]". The type is checked here, so that a
// mistake names the flag.
func parseColumn(s string) (openapi.NewColumn, error) {
	name, rest, ok := strings.Cut(strings.TrimSpace(s), " ")
	if !ok {
		return openapi.NewColumn{}, usagef("--column %q is not of the form 'name TYPE [NOT NULL]'", s)
	}
	col := openapi.NewColumn{Name: name}
	words := strings.Fields(rest)
	if n := len(words); n > 2 && strings.EqualFold(words[n-2], "NOT") && strings.EqualFold(words[n-1], "NULL") {
		col.Nullable = new(false)
		words = words[:n-2]
	}
	t, err := millrace.ParseType(strings.Join(words, " "))
	if err != nil {
		return col, usagef("--column %q: %v", s, err)
	}
	col.Type = t.String()
	return col, nil
}

type tableListCmd struct {
	connection
	listing
	Database string `arg:"" help:"Name of the database."`
}

// Run implements the command.
func (c *tableListCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	return printList(a, c.Format, []string{"name", "kind", "columns", "primary key", "buckets", "comment"}, cl.Tables(ctx, c.Database), func(t openapi.Table) []string {
		return []string{t.Name, string(t.Kind), strconv.Itoa(len(t.Columns)), strings.Join(t.PrimaryKey, ", "), strconv.Itoa(t.Buckets), t.Comment}
	})
}

type tableDescribeCmd struct {
	connection
	listing
	Table string `arg:"" help:"DATABASE.TABLE."`
}

// Run implements the command.
func (c *tableDescribeCmd) Run(ctx context.Context, a *app) error {
	tb, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	t, err := tb.Describe(ctx)
	if err != nil {
		return err
	}
	if c.Format == "ndjson" {
		return printList(a, c.Format, nil, one(t), nil)
	}
	fmt.Fprintf(a.stdout, "%s.%s is a %s table, id %d, %s, created %s\n",
		printable(t.Database), printable(t.Name), t.Kind, t.ID, plural(t.Buckets, "bucket"), t.CreatedAt.Format(time.RFC3339))
	for _, l := range []struct {
		name string
		list []string
	}{{"primary key", t.PrimaryKey}, {"bucket key", t.BucketKey}, {"partitioned by", t.PartitionBy}} {
		if len(l.list) > 0 {
			fmt.Fprintf(a.stdout, "%s: %s\n", l.name, printable(strings.Join(l.list, ", ")))
		}
	}
	if t.Comment != "" {
		fmt.Fprintf(a.stdout, "comment: %s\n", printable(t.Comment))
	}
	for _, k := range slices.Sorted(maps.Keys(t.Properties)) {
		fmt.Fprintf(a.stdout, "property: %s=%s\n", printable(k), printable(t.Properties[k]))
	}
	fmt.Fprintln(a.stdout)
	return printList(a, c.Format, []string{"id", "column", "type", "null", "comment"}, each(t.Columns), func(c openapi.Column) []string {
		null := "NOT NULL"
		if c.Nullable {
			null = ""
		}
		return []string{strconv.Itoa(c.ID), c.Name, c.Type, null, c.Comment}
	})
}

type tableDropCmd struct {
	connection
	Table    string `arg:"" help:"DATABASE.TABLE."`
	Purge    bool   `help:"Delete its lake files too."`
	IfExists bool   `help:"It may be gone already."`
}

// Run implements the command.
func (c *tableDropCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	if err := t.Drop(ctx, c.Purge, c.IfExists); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "dropped table %s\n", printable(t.String()))
	return nil
}

// columnsOf are the columns of a table, as the module knows them.
func columnsOf(ctx context.Context, t *client.Table) ([]millrace.Column, openapi.Table, error) {
	d, err := t.Describe(ctx)
	if err != nil {
		return nil, d, err
	}
	cols := make([]millrace.Column, len(d.Columns))
	for i, c := range d.Columns {
		typ, err := millrace.ParseType(c.Type)
		if err != nil {
			return nil, d, errs.New(errs.Internal, "column %q has a type that this release does not know: %v", c.Name, err)
		}
		cols[i] = millrace.Column{ID: millrace.ColumnID(c.ID), Name: c.Name, Type: typ, Nullable: c.Nullable, AutoIncrement: c.AutoIncrement}
	}
	return cols, d, nil
}
