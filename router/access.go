package router

import (
	"context"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Access decides what the caller of a context may do with a table. What is refused has a
// code of errs; a table that the caller may not know of does not exist.
type Access interface {
	// Table finds a table by name, as Catalog.Table does, for who may know of it.
	Table(ctx context.Context, path millrace.TablePath) (*millrace.Table, error)
	// Describe is for what tells of the table, and not of its rows.
	Describe(ctx context.Context, t *millrace.Table) error
	// Read is for rows, of which columns are shown, filtered or looked up by; without
	// columns that there are rows, and how many. The pass is nil where nobody is refused.
	Read(ctx context.Context, t *millrace.Table, columns []millrace.ColumnID) (Pass, error)
	// Write is for writes of rows.
	Write(ctx context.Context, t *millrace.Table) (Pass, error)
	// Alter is for partitions that are dropped.
	Alter(ctx context.Context, t *millrace.Table) error
}

// Pass is what a caller was allowed, while he does it. It belongs to one goroutine.
type Pass interface {
	// Still is nil as long as it is allowed. It costs little when no grant has changed, and may
	// be called concurrently.
	Still() error
}

// PassEvery is how often a pass is looked at while its stream waits.
const PassEvery = time.Second

// named finds a table by name, for who may know of it.
func (r *Router) named(ctx context.Context, path millrace.TablePath) (*millrace.Table, error) {
	if r.o.Access == nil {
		return r.o.Catalog.Table(ctx, path)
	}
	return r.o.Access.Table(ctx, path)
}

// describes asks whether the caller may know of a table.
func (r *Router) describes(ctx context.Context, t *millrace.Table) error {
	if r.o.Access == nil {
		return nil
	}
	return r.o.Access.Describe(ctx, t)
}

// reads asks whether the caller may read columns of a table; a column may be named twice.
func (r *Router) reads(ctx context.Context, t *millrace.Table, columns ...[]millrace.Column) (Pass, error) {
	if r.o.Access == nil {
		return nil, nil
	}
	var ids []millrace.ColumnID
	for _, cols := range columns {
		ids = slices.Grow(ids, len(cols))
		for _, c := range cols {
			if !isSystem(c) {
				ids = append(ids, c.ID)
			}
		}
	}
	return r.o.Access.Read(ctx, t, ids)
}

// begins asks whether the caller may begin a read of columns of a table; see reads.
func (r *Router) begins(ctx context.Context, t *millrace.Table, columns ...[]millrace.Column) (Pass, error) {
	pass, err := r.reads(ctx, t, columns...)
	if err == nil && r.o.Quotas != nil {
		err = r.o.Quotas.MayRead(ctx)
	}
	return pass, err
}

// readsPlan asks whether the caller may read what a plan reads.
func (r *Router) readsPlan(ctx context.Context, p *Plan) (Pass, error) {
	return r.begins(ctx, p.Table, p.Data, p.filterColumns(), p.partitionColumns())
}

// readsByKey asks whether the caller may look up columns of a table by its key.
func (r *Router) readsByKey(ctx context.Context, t *millrace.Table, cols []millrace.Column) (Pass, error) {
	return r.begins(ctx, t, cols, t.Columns(t.PrimaryKey))
}

// readsKeys asks whether the caller may read the primary key, where what a plan gives him to
// go on with would hold the key of a row: a page token, and the cursors of a log that
// begins with the rows there are.
func (r *Router) readsKeys(ctx context.Context, p *Plan) error {
	if p.pass == nil || !slices.ContainsFunc(p.Parts, func(part Part) bool { return part.State && (p.View.ofLog() || len(part.After) > 0) }) {
		return nil
	}
	pass, err := r.reads(ctx, p.Table, p.Data, p.filterColumns(), p.partitionColumns(), p.Table.Columns(p.Table.PrimaryKey))
	if errs.Is(err, errs.ColumnDenied) {
		return errs.New(errs.ColumnDenied, "%v; where a read of rows goes on is said by their key: ask for all rows in one answer (NDJSON, Arrow), or for a log from the earliest record on", err)
	}
	if err == nil {
		p.pass = pass // what it gives holds keys to its end
	}
	return err
}

// filterColumns are the columns of the table that the filter names.
func (p *Plan) filterColumns() []millrace.Column {
	if p.filter == nil {
		return nil
	}
	var out []millrace.Column
	for _, name := range p.filter.ColumnNames() {
		if i := p.Table.Schema.Index(name); i >= 0 {
			out = append(out, p.Table.Schema.Columns[i])
		}
	}
	return out
}

// partitionColumns are the columns whose values a plan tells row by row, as the names of the
// partitions that rows are in.
func (p *Plan) partitionColumns() []millrace.Column {
	told := slices.ContainsFunc(p.Columns, func(c millrace.Column) bool { return c.ID == idPartition })
	if told || p.filter != nil && slices.Contains(p.filter.ColumnNames(), millrace.ColPartition) {
		return p.Table.Columns(p.Table.PartitionBy)
	}
	return nil
}

// Writes asks whether the caller may write to a table, for writers that stay open; each
// write is asked for besides. The pass is nil where nobody is refused.
func (r *Router) Writes(ctx context.Context, t *millrace.Table) (Pass, error) {
	if r.o.Access == nil {
		return nil, nil
	}
	return r.o.Access.Write(ctx, t)
}

// mayOpen asks whether the caller may know of the table of a ticket or token, which says a
// number and not a name.
func (r *Router) mayOpen(ctx context.Context, t *millrace.Table) error {
	err := r.describes(ctx, t)
	if errs.Is(err, errs.TableNotFound) || errs.Is(err, errs.DatabaseNotFound) {
		return errs.NoTableID(uint32(t.ID))
	}
	return err
}

// still asks whether a pass holds; one that is nil does.
func still(p Pass) error {
	if p == nil {
		return nil
	}
	return p.Still()
}
