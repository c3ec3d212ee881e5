package sql

import (
	"context"
	"errors"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/jsonrow"
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
	return done(), err
}

func (c *call) dropDatabase(ctx context.Context, st *dropDatabase) (*Result, error) {
	dropped, err := c.o.Catalog.DropDatabase(ctx, st.name.text, st.cascade)
	if errs.Is(err, errs.DatabaseNotFound) && st.ifExists {
		return done(), nil
	}
	for _, t := range dropped {
		err = errors.Join(err, c.o.Router.DropTable(ctx, t))
	}
	return done(), err
}

func (c *call) createTable(ctx context.Context, st *createTable) (*Result, error) {
	path, err := c.tablePath(st.table)
	if err != nil {
		return nil, err
	}
	_, _, err = c.o.Catalog.CreateTable(ctx, path.Database, st.spec, st.ifNotExists)
	return done(), err
}

func (c *call) dropTable(ctx context.Context, st *dropTable) (*Result, error) {
	path, err := c.tablePath(st.table)
	if err != nil {
		return nil, err
	}
	t, err := c.o.Catalog.DropTable(ctx, path, st.ifExists, false)
	if err == nil && t != nil {
		err = c.o.Router.DropTable(ctx, t)
	}
	return done(), err
}

func (c *call) alterTable(ctx context.Context, st *alterTable) (*Result, error) {
	path, err := c.tablePath(st.table)
	if err != nil {
		return nil, err
	}
	t, err := c.o.Catalog.AlterTable(ctx, path, st.steps, nil)
	if err == nil {
		c.o.Router.AlteredTable(ctx, t)
	}
	return done(), err
}

func (c *call) alterPartition(ctx context.Context, st *alterPartition) (*Result, error) {
	t, err := c.table(ctx, st.table)
	if err != nil {
		return nil, err
	}
	if err := partitioned(t); err != nil {
		return nil, err
	}
	values, err := jsonrow.PartitionOfObject(t, st.partition)
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return nil, c.src.point(e, st.at)
	}
	if err != nil {
		return nil, err
	}
	if st.drop {
		err := c.o.Router.DropPartition(ctx, t, millrace.PartitionName(t.Names(t.PartitionBy), values))
		if errs.Is(err, errs.PartitionNotFound) && st.tolerant {
			err = nil
		}
		return done(), err
	}
	p, created, err := c.o.Catalog.EnsurePartition(ctx, t.ID, values)
	if err == nil && !created && !st.tolerant {
		err = errs.New(errs.PartitionAlreadyExists, "table %s has partition %s already", t.Path, p.Name)
	}
	return done(), err
}

// partitioned refuses a table that has no partitions.
func partitioned(t *millrace.Table) error {
	if t.Partitioned() {
		return nil
	}
	return errs.New(errs.WrongTableKind, "table %s is not partitioned: a table has partitions from its creation, by PARTITIONED BY, or never", t.Path)
}

// table is a table that a statement is about.
func (c *call) table(ctx context.Context, n tableName) (*millrace.Table, error) {
	n.suffix = ""
	path, err := c.path(n)
	if err != nil {
		return nil, err
	}
	named, err := c.o.Router.Named(ctx, path)
	if err != nil {
		return nil, err
	}
	return named.Table, nil
}
