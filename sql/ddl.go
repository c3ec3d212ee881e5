package sql

import (
	"context"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// CreateTable is what a CREATE TABLE statement says.
type CreateTable struct {
	Database    string // "" when the statement names none
	Spec        catalog.Spec
	IfNotExists bool
}

// ParseCreateTable reads a CREATE TABLE statement.
func ParseCreateTable(text string) (CreateTable, error) {
	st, _, err := parse(text)
	if err != nil {
		return CreateTable{}, err
	}
	ct, ok := st.(*createTable)
	if !ok {
		return CreateTable{}, source(text).invalid(0, "expected CREATE TABLE")
	}
	return CreateTable{Database: ct.table.database, Spec: ct.spec, IfNotExists: ct.ifNotExists}, nil
}

func (c *call) createDatabase(ctx context.Context, st *createDatabase) (*Result, error) {
	_, err := c.o.Catalog.CreateDatabase(ctx, st.name.text, st.comment)
	if errs.Is(err, errs.DatabaseAlreadyExists) && st.ifNotExists {
		err = nil
	}
	return affected(0), err
}

func (c *call) dropDatabase(ctx context.Context, st *dropDatabase) (*Result, error) {
	dropped, err := c.o.Catalog.DropDatabase(ctx, st.name.text, st.cascade)
	if errs.Is(err, errs.DatabaseNotFound) && st.ifExists {
		return affected(0), nil
	}
	for _, t := range dropped {
		if err == nil {
			err = c.o.Router.DropTable(ctx, t)
		}
	}
	return affected(0), err
}

func (c *call) createTable(ctx context.Context, st *createTable) (*Result, error) {
	path, err := c.tablePath(st.table)
	if err != nil {
		return nil, err
	}
	_, _, err = c.o.Catalog.CreateTable(ctx, path.Database, st.spec, st.ifNotExists)
	return affected(0), err
}

func (c *call) dropTable(ctx context.Context, st *dropTable) (*Result, error) {
	path, err := c.tablePath(st.table)
	if err != nil {
		return nil, err
	}
	t, err := c.o.Catalog.DropTable(ctx, path, st.ifExists)
	if err == nil && t != nil {
		err = c.o.Router.DropTable(ctx, t)
	}
	return affected(0), err
}

func (c *call) alterTable(_ context.Context, st *alterTable) (*Result, error) {
	return nil, c.src.fail(errs.NotImplemented, st.at, "ALTER TABLE is not implemented yet")
}

// table is a table that a statement is about.
func (c *call) table(ctx context.Context, n tableName) (*millrace.Table, error) {
	n.suffix = ""
	path, err := c.path(n)
	if err != nil {
		return nil, err
	}
	t, _, _, err := c.o.Router.Named(ctx, path)
	return t, err
}
