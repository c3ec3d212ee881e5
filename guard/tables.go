package guard

import (
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// CreateTable is catalog.CreateTable, for who may create in the database.
func (g *Guard) CreateTable(ctx context.Context, db string, spec catalog.Spec, ifNotExists bool) (*millrace.Table, bool, error) {
	if _, err := g.database(ctx, millrace.VerbCreate, db); err != nil {
		return nil, false, err
	}
	return g.cat.CreateTableIf(ctx, db, spec, ifNotExists, func(d catalog.Database) error {
		return g.policy.May(ctx, millrace.VerbCreate, auth.Database(d.ID, d.Name))
	})
}

// Table is catalog.Table, for who may describe it.
func (g *Guard) Table(ctx context.Context, path millrace.TablePath) (*millrace.Table, error) {
	return g.table(ctx, millrace.VerbDescribe, path)
}

// table finds a table that the caller may do something to.
func (g *Guard) table(ctx context.Context, verb millrace.Verb, path millrace.TablePath) (*millrace.Table, error) {
	t, err := g.cat.Table(ctx, path)
	if errs.Is(err, errs.TableNotFound) { // which tells that there is the database
		if _, err := g.Database(ctx, path.Database); err != nil {
			return nil, err
		}
	}
	if err == nil {
		err = g.Allow(ctx, verb, t)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// TableByID is catalog.TableByID, for who may describe it.
func (g *Guard) TableByID(ctx context.Context, id millrace.TableID) (*millrace.Table, error) {
	t, err := g.cat.TableByID(ctx, id)
	if err == nil {
		err = g.Describe(ctx, t)
	}
	switch {
	case notFound(err):
		return nil, errs.NoTableID(uint32(id))
	case err != nil:
		return nil, err
	}
	return t, nil
}

// Tables is catalog.Tables, of those that the caller may describe.
func (g *Guard) Tables(ctx context.Context, db string, limit int, token string) (page []*millrace.Table, next string, err error) {
	if _, err := g.Database(ctx, db); err != nil {
		return nil, "", err
	}
	if g.unbound(ctx) {
		return g.cat.Tables(ctx, db, limit, token)
	}
	return filtered(limit, token,
		func(limit int, token string) ([]*millrace.Table, string, error) {
			return g.cat.Tables(ctx, db, limit, token)
		},
		func(t *millrace.Table) bool { return g.policy.Describes(ctx, auth.Table(t)) },
		func(t *millrace.Table) string { return t.Path.Table })
}

// AllTables is catalog.AllTables, of those that the caller may describe.
func (g *Guard) AllTables(ctx context.Context) []*millrace.Table {
	listed(ctx)
	return slices.DeleteFunc(g.cat.AllTables(), func(t *millrace.Table) bool { return !g.policy.Describes(ctx, auth.Table(t)) })
}

// Schemas is catalog.Schemas, for who may describe the table.
func (g *Guard) Schemas(ctx context.Context, id millrace.TableID) ([]*millrace.Schema, error) {
	if _, err := g.TableByID(ctx, id); err != nil {
		return nil, err
	}
	return g.cat.Schemas(ctx, id)
}

// AlterTable is catalog.AlterTable, for who may alter the table.
func (g *Guard) AlterTable(ctx context.Context, path millrace.TablePath, steps []catalog.AlterStep, ifVersion *int64) (*millrace.Table, error) {
	if _, err := g.table(ctx, millrace.VerbAlter, path); err != nil {
		return nil, err
	}
	return g.cat.AlterTableIf(ctx, path, steps, ifVersion, func(t *millrace.Table) error { return g.policy.May(ctx, millrace.VerbAlter, auth.Table(t)) })
}

// DropTable is catalog.DropTable, for who may drop the table.
func (g *Guard) DropTable(ctx context.Context, path millrace.TablePath, ifExists, purge bool) (*millrace.Table, error) {
	switch _, err := g.table(ctx, millrace.VerbDrop, path); {
	case ifExists && errs.Is(err, errs.TableNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return g.cat.DropTableIf(ctx, path, ifExists, purge, func(t *millrace.Table) error { return g.policy.May(ctx, millrace.VerbDrop, auth.Table(t)) })
}

// Partitions is catalog.Partitions, for who may describe the table.
func (g *Guard) Partitions(ctx context.Context, table millrace.TableID) ([]*millrace.Partition, error) {
	if _, err := g.TableByID(ctx, table); err != nil {
		return nil, err
	}
	return g.cat.Partitions(ctx, table)
}

// Partition is catalog.Partition, for who may describe the table.
func (g *Guard) Partition(ctx context.Context, table millrace.TableID, name string) (*millrace.Partition, error) {
	if _, err := g.TableByID(ctx, table); err != nil {
		return nil, err
	}
	return g.cat.Partition(ctx, table, name)
}

// EnsurePartition is catalog.EnsurePartition, for who may create in the table. Partitions
// that writes make are not made through here.
func (g *Guard) EnsurePartition(ctx context.Context, table millrace.TableID, values []string) (p *millrace.Partition, created bool, err error) {
	t, err := g.TableByID(ctx, table)
	if err == nil {
		err = g.Allow(ctx, millrace.VerbCreate, t)
	}
	if err != nil {
		return nil, false, err
	}
	return g.cat.EnsurePartitionIf(ctx, table, values, func(t *millrace.Table) error { return g.policy.May(ctx, millrace.VerbCreate, auth.Table(t)) })
}
