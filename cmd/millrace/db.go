package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/millrace/millrace/openapi"
)

type dbCmd struct {
	Create   dbCreateCmd   `cmd:"" help:"Create a database."`
	List     dbListCmd     `cmd:"" help:"List databases."`
	Describe dbDescribeCmd `cmd:"" help:"Describe a database."`
	Drop     dbDropCmd     `cmd:"" help:"Drop a database."`
}

type dbCreateCmd struct {
	connection
	Name        string `arg:"" help:"Name of the database."`
	Comment     string `help:"What it is for."`
	IfNotExists bool   `help:"It may exist already."`
}

// Run implements the command.
func (c *dbCreateCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	d, err := cl.CreateDatabase(ctx, openapi.CreateDatabase{Name: c.Name, Comment: c.Comment}, c.IfNotExists)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "database %s\n", printable(d.Name))
	return nil
}

// listing is embedded in commands that list things.
type listing struct {
	Format string `help:"table or ndjson." enum:"table,ndjson" default:"table"`
}

// printList writes things as a table, or as the JSON objects that they are.
func printList[T any](a *app, format string, names []string, things iter.Seq2[T, error], cells func(T) []string) error {
	if format == "ndjson" {
		enc := json.NewEncoder(a.stdout)
		enc.SetEscapeHTML(false)
		for v, err := range things {
			if err != nil {
				return err
			}
			if err := enc.Encode(v); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTableWriter(a.stdout, false)
	t.header(names, nil)
	for v, err := range things {
		if err != nil {
			return err
		}
		row := make([]cell, len(names))
		for i, s := range cells(v) {
			row[i].text = s
		}
		if err := t.row(row); err != nil {
			return err
		}
	}
	return t.close()
}

type dbListCmd struct {
	connection
	listing
}

func databaseCells(d openapi.Database) []string {
	return []string{d.Name, d.Comment, d.CreatedAt.Format(time.RFC3339)}
}

var databaseNames = []string{"name", "comment", "created"}

// Run implements the command.
func (c *dbListCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	return printList(a, c.Format, databaseNames, cl.Databases(ctx), databaseCells)
}

type dbDescribeCmd struct {
	connection
	listing
	Name string `arg:"" help:"Name of the database."`
}

// Run implements the command.
func (c *dbDescribeCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	d, err := cl.Database(ctx, c.Name)
	if err != nil {
		return err
	}
	return printList(a, c.Format, databaseNames, one(d), databaseCells)
}

type dbDropCmd struct {
	connection
	Name     string `arg:"" help:"Name of the database."`
	Cascade  bool   `help:"Drop its tables too."`
	IfExists bool   `help:"It may be gone already."`
}

// Run implements the command.
func (c *dbDropCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	if err := cl.DropDatabase(ctx, c.Name, c.Cascade, c.IfExists); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "dropped database %s\n", printable(c.Name))
	return nil
}

// one is a list of one thing.
func one[T any](v T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { yield(v, nil) }
}
