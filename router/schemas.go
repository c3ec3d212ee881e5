package router

import (
	"context"
	"slices"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
)

// A read keeps the schema that it began with: its columns, their names and types, also
// when the table is altered under way, or between a ticket and its use. What was
// written before a column was added is NULL in it; what is written after a column was
// dropped cannot be told from that, so the read ends with errs.SchemaChanged where it
// meets such rows, if it reads the column.

// schemas finds the stored schemas of the plan's table.
func (p *Plan) schemas(r *Router) segment.Schemas { return r.schemasOf(p.Table) }

// schemasOf finds the stored schemas of a table: any shard that holds rows knows their
// schema, and so does the catalog. Who has no such shard here may not know yet of a schema
// that another process has just made: then the owners are asked.
func (r *Router) schemasOf(t *millrace.Table) segment.Schemas {
	return func(id millrace.SchemaID) *millrace.Schema {
		if id == t.Schema.ID {
			return t.Schema
		}
		away := false
		for n := range r.o.Owners.Shards() {
			sh, _ := r.o.Owners.Owner(millrace.ShardID(n))
			if sh == nil {
				away = true
			} else if s := sh.Schemas(t.ID)(id); s != nil {
				return s
			}
		}
		if !away {
			return nil
		}
		return r.schemas.find(t.ID, id, r.farSchemas)
	}
}

// farTime bounds what is waited for a schema that is not known here.
const farTime = 5 * time.Second

// farSchemas asks the catalog and the owners of shards elsewhere for a table's schemas,
// until one of them has the one that is wanted.
func (r *Router) farSchemas(t millrace.TableID, id millrace.SchemaID) []*millrace.Schema {
	ctx, cancel := context.WithTimeout(context.Background(), farTime)
	defer cancel()
	has := func(all []*millrace.Schema) bool {
		return slices.ContainsFunc(all, func(s *millrace.Schema) bool { return s.ID == id })
	}
	all, err := r.o.Catalog.Schemas(ctx, t)
	if err == nil && has(all) {
		return all
	}
	for n := range r.o.Owners.Shards() {
		if _, rem := r.o.Owners.Owner(millrace.ShardID(n)); rem != nil {
			if all, err := rem.Schemas(ctx, t); err == nil && has(all) {
				return all
			}
		}
	}
	return nil
}

// farSchemas are schemas of tables of which no shard here holds rows.
type farSchemas struct{ known sync.Map } // farSchema → *millrace.Schema

type farSchema struct {
	table  millrace.TableID
	schema millrace.SchemaID
}

// find is a schema that is known, or that ask finds.
func (f *farSchemas) find(t millrace.TableID, id millrace.SchemaID, ask func(millrace.TableID, millrace.SchemaID) []*millrace.Schema) *millrace.Schema {
	if s, ok := f.known.Load(farSchema{t, id}); ok {
		return s.(*millrace.Schema)
	}
	for _, s := range ask(t, id) {
		f.known.Store(farSchema{t, s.ID}, s)
	}
	s, _ := f.known.Load(farSchema{t, id})
	out, _ := s.(*millrace.Schema)
	return out
}

// forget lets go of the schemas of a table that is dropped.
func (f *farSchemas) forget(t millrace.TableID) {
	f.known.Range(func(k, _ any) bool {
		if k.(farSchema).table == t {
			f.known.Delete(k)
		}
		return true
	})
}

// tableAs is a table as it was with an earlier schema.
func (r *Router) tableAs(ctx context.Context, t *millrace.Table, id millrace.SchemaID) (*millrace.Table, error) {
	if t.Schema.ID == id {
		return t, nil
	}
	all, err := r.o.Catalog.Schemas(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s *millrace.Schema) bool { return s.ID == id })
	if i < 0 {
		return nil, errs.New(errs.SchemaChanged, "table %s has no schema %d", t.Path, id)
	}
	was := *t
	was.Schema = all[i]
	return &was, nil
}

// columnGuard sees that the columns of a read are there in what it reads.
type columnGuard struct {
	table *millrace.Table // as of the read
	cols  []millrace.Column
	fine  millrace.SchemaID // the newest schema that was seen to have them all
}

func newColumnGuard(t *millrace.Table, cols []millrace.Column) columnGuard {
	return columnGuard{table: t, cols: cols, fine: t.Schema.ID}
}

// check is errs.SchemaChanged when a later schema does not have all of the columns.
func (g *columnGuard) check(s *millrace.Schema) error {
	if s == nil || s.ID <= g.fine {
		return nil
	}
	if lost := lostColumn(g.cols, s.Columns); lost != "" {
		return errs.New(errs.SchemaChanged, "column %q of table %s, which is being read, was dropped: start the read again, from where it ended", lost, g.table.Path)
	}
	g.fine = s.ID
	return nil
}

// checkStored does so for the schema that rows were written with.
func (g *columnGuard) checkStored(id millrace.SchemaID, find segment.Schemas) error {
	if id <= g.fine {
		return nil
	}
	return g.check(find(id)) // one that is not found is told of by who reads the rows
}

// lostColumn is the first of the columns, or of their fields, that is not in later;
// "" when all are.
func lostColumn(cols, later []millrace.Column) string {
	for _, c := range cols {
		i := slices.IndexFunc(later, func(l millrace.Column) bool { return l.ID == c.ID })
		if i < 0 {
			return c.Name
		}
		if lost := lostColumn(c.Type.Children, later[i].Type.Children); lost != "" {
			return c.Name + "." + lost
		}
	}
	return ""
}

// storedBatch opens the batch of a part's log that has an offset. Small ones are read
// together, as the newest schema has them, which some may be of.
func (rd *Reader) storedBatch(pr *partReader, lg *bucket.Log, v *bucket.View, at millrace.Offset) (*bucket.Batch, error) {
	find := rd.plan.schemas(rd.r)
	to := rd.plan.Table.Schema
	sh, err := rd.r.here(pr.Shard)
	if err != nil {
		return nil, err
	}
	if s := sh.NewestSchema(rd.plan.Table.ID); s != nil && s.ID > to.ID {
		to = s
	}
	var b *bucket.Batch
	if rd.guard.check(to) == nil {
		b, err = lg.Gather(v, at, find, to)
	} else {
		b, err = lg.At(v, at)
	}
	if err != nil {
		return nil, err
	}
	if err := rd.guard.checkStored(b.Payload.SchemaID(), find); err != nil {
		_ = b.Release() // the first error says more
		return nil, err
	}
	return b, nil
}

// guardedRows reads compact rows for a read of some columns.
type guardedRows struct {
	*row.Reader
	guard *columnGuard
	find  segment.Schemas
}

// Append adds a row; see row.Reader.
func (g *guardedRows) Append(enc []byte) error {
	if err := g.guard.checkStored(row.SchemaIDOf(enc), g.find); err != nil {
		g.Close()
		return err
	}
	return g.Reader.Append(enc)
}

// current sees that the columns are still those of the table.
func (g *guardedRows) current(ctx context.Context, r *Router, id millrace.TableID) error {
	now, err := r.o.Catalog.TableByID(ctx, id)
	if err != nil {
		return err
	}
	return g.guard.check(now.Schema)
}
