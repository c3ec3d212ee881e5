package catalog

import (
	"context"
	"errors"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// firstSchema and firstVersion are what a new table starts with.
const (
	firstSchema  millrace.SchemaID = 1
	firstVersion int64             = 1
)

// errExists ends a change that finds its table there already.
var errExists = errors.New("the table is there")

// CreateTable checks spec and makes the table. When it exists already and
// ifNotExists is set, the table is returned as it is, and created is false.
func (c *Catalog) CreateTable(ctx context.Context, db string, spec Spec, ifNotExists bool) (t *millrace.Table, created bool, err error) {
	def, err := spec.define()
	if err != nil {
		return nil, false, err
	}
	err = c.commit(ctx, func(s *snapshot) ([]Write, error) {
		d, err := s.database(db)
		if err != nil {
			return nil, err
		}
		if there := d.byName[fold(spec.Name)]; there != nil {
			switch {
			case there.Path.Table != spec.Name:
				return nil, caseClash(errs.TableAlreadyExists, "table", spec.Name, there.Path.Table)
			case ifNotExists:
				t = there.Table
				return nil, errExists
			}
			return nil, errs.New(errs.TableAlreadyExists, "table %q exists already", there.Path)
		}
		t = def.table(d, s.head.NextTable, micros(c.clock()), rotate(&s.head, def.buckets))
		s.head.NextTable++
		s.addTable(s.editDatabase(d), &table{Table: t, schemas: []*millrace.Schema{t.Schema}})
		return tableWrites(t)
	})
	switch {
	case errors.Is(err, errExists):
		return t, false, nil
	case err != nil:
		return nil, false, err
	}
	return t, true, nil
}

// rotate gives each bucket of a new table its shard: the next ones in turn, and
// the next table goes on where this one ended, so that small tables spread too.
func rotate(head *headRecord, buckets int) []millrace.ShardID {
	out := make([]millrace.ShardID, buckets)
	for i := range out {
		out[i] = millrace.ShardID((int(head.NextShard) + i) % head.Shards)
	}
	head.NextShard = millrace.ShardID((int(head.NextShard) + buckets) % head.Shards)
	return out
}

// tableWrites stores a table with its current schema.
func tableWrites(t *millrace.Table) ([]Write, error) {
	writes := []Write{
		{Key: tableKey(t.ID), Value: encodeRecord(recordOfTable(t))},
		{Key: schemaKey(t.ID, t.Schema.ID), Value: encodeRecord(schemaRecord{TableID: t.ID, Schema: t.Schema})},
	}
	for _, w := range writes {
		if len(w.Value) > maxDescriptorBytes {
			return nil, tooLong("description of the table", len(w.Value))
		}
	}
	return writes, nil
}

// deletes removes a table with all its schemas.
func (t *table) deletes() []Write {
	writes := []Write{{Key: tableKey(t.ID)}}
	for _, s := range t.schemas {
		writes = append(writes, Write{Key: schemaKey(t.ID, s.ID)})
	}
	return writes
}

// Table returns a table by its path.
func (c *Catalog) Table(_ context.Context, path millrace.TablePath) (*millrace.Table, error) {
	t, err := c.current.Load().table(path)
	if err != nil {
		return nil, err
	}
	return t.Table, nil
}

// TableByID returns a table by its id.
func (c *Catalog) TableByID(_ context.Context, id millrace.TableID) (*millrace.Table, error) {
	if t := c.current.Load().tables[id]; t != nil {
		return t.Table, nil
	}
	return nil, errs.New(errs.TableNotFound, "there is no table with id %d", id)
}

// Tables lists the tables of a database by name; pages are those of Databases.
func (c *Catalog) Tables(_ context.Context, db string, limit int, token string) (page []*millrace.Table, next string, err error) {
	d, err := c.current.Load().database(db)
	if err != nil {
		return nil, "", err
	}
	from, to, next, err := pageOf(len(d.tables), limit, token,
		func(name string) (int, bool) { return d.findTable(name) },
		func(i int) string { return d.tables[i].Path.Table })
	for _, t := range d.tables[from:to] {
		page = append(page, t.Table)
	}
	return page, next, err
}

// Schemas returns every version of a table's schema, oldest first. The slice
// and the schemas are not to be changed.
func (c *Catalog) Schemas(_ context.Context, id millrace.TableID) ([]*millrace.Schema, error) {
	if t := c.current.Load().tables[id]; t != nil {
		return t.schemas, nil
	}
	return nil, errs.New(errs.TableNotFound, "there is no table with id %d", id)
}

// DropTable removes a table and returns it, for its data to be dropped. With
// ifExists, nil is returned for one that does not exist.
func (c *Catalog) DropTable(ctx context.Context, path millrace.TablePath, ifExists bool) (*millrace.Table, error) {
	var dropped *millrace.Table
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		t, err := s.table(path)
		if err != nil {
			return nil, err
		}
		dropped = t.Table
		s.removeTable(s.editDatabase(s.byName[fold(path.Database)]), t)
		return t.deletes(), nil
	})
	switch {
	case ifExists && errs.Is(err, errs.TableNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return dropped, nil
}

func (s *snapshot) table(path millrace.TablePath) (*table, error) {
	d, err := s.database(path.Database)
	if err != nil {
		return nil, err
	}
	if t := d.byName[fold(path.Table)]; t != nil && t.Path.Table == path.Table {
		return t, nil
	}
	return nil, errs.New(errs.TableNotFound, "there is no table %s in database %q", clip(path.Table), path.Database)
}
