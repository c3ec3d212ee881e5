package catalog

import (
	"context"
	"errors"
	"reflect"
	"slices"

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
	return c.CreateTableIf(ctx, db, spec, ifNotExists, nil)
}

// CreateTableIf is CreateTable in a database in which a function lets tables be made: the one
// that has the name when it is.
func (c *Catalog) CreateTableIf(ctx context.Context, db string, spec Spec, ifNotExists bool, may func(Database) error) (t *millrace.Table, created bool, err error) {
	def, err := spec.define()
	if err != nil {
		return nil, false, err
	}
	err = c.commit(ctx, func(s *snapshot) ([]Write, error) {
		d, err := s.database(db)
		if err != nil {
			return nil, err
		}
		if err := permitted(may, d.Database); err != nil {
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
		made := *def
		t = &made
		t.ID, t.DatabaseID, t.Path.Database, t.CreatedAt = s.head.NextTable, d.ID, d.Name, micros(c.clock())
		s.head.NextTable++
		if !t.Partitioned() {
			t.Shards = rotate(&s.head, t.Buckets)
		}
		entry := &table{Table: t, schemas: []*millrace.Schema{t.Schema}}
		s.addTable(d, entry)
		s.raiseLevel(entry)
		return entry.writes()
	})
	switch {
	case errors.Is(err, errExists):
		return t, false, c.settleFound(ctx, ref{table: t.ID})
	case err != nil:
		return nil, false, err
	}
	return t, true, nil
}

// raiseLevel makes sure that a release which would misread t does not open the
// catalog. REQUIRES: s came from edit.
func (s *snapshot) raiseLevel(t *table) {
	auto := slices.ContainsFunc(t.Schema.Columns, func(c millrace.Column) bool { return c.AutoIncrement })
	if t.Partitioned() || auto || t.Version > firstVersion || !isZero(t.Options) {
		s.head.FeatureLevel = max(s.head.FeatureLevel, FeatureTables)
	}
	if t.Options.Lake != nil {
		s.head.FeatureLevel = max(s.head.FeatureLevel, FeatureLake)
	}
}

func isZero(o millrace.TableOptions) bool { return reflect.ValueOf(o).IsZero() }

// rotate gives each bucket of a new table or partition its shard: the next ones in
// turn, and the next one goes on where this one ended, so that small ones spread too.
func rotate(head *headRecord, buckets int) []millrace.ShardID {
	out := make([]millrace.ShardID, buckets)
	for i := range out {
		out[i] = millrace.ShardID((int(head.NextShard) + i) % head.Shards)
	}
	head.NextShard = millrace.ShardID((int(head.NextShard) + buckets) % head.Shards)
	return out
}

// writes stores a table with its current schema.
func (t *table) writes() ([]Write, error) {
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

// deletes removes a table with all its schemas, partitions and ids.
func (s *snapshot) deletes(t *table) []Write {
	writes := []Write{{Key: tableKey(t.ID)}}
	for _, schema := range t.schemas {
		writes = append(writes, Write{Key: schemaKey(t.ID, schema.ID)})
	}
	for _, p := range s.partitions[t.ID].all() {
		writes = append(writes, Write{Key: partitionKey(t.ID, p.ID)})
	}
	if _, ok := s.nextIDs[t.ID]; ok {
		writes = append(writes, Write{Key: idsKey(t.ID)})
	}
	return writes
}

// Table returns a table by its path.
func (c *Catalog) Table(ctx context.Context, path millrace.TablePath) (*millrace.Table, error) {
	return look(ctx, c, func(s *snapshot) (*millrace.Table, ref, error) {
		t, err := s.table(path)
		if err != nil {
			return nil, ref{}, err
		}
		return t.Table, ref{table: t.ID}, nil
	})
}

// TableByID returns a table by its id.
func (c *Catalog) TableByID(ctx context.Context, id millrace.TableID) (*millrace.Table, error) {
	return look(ctx, c, func(s *snapshot) (*millrace.Table, ref, error) {
		t, err := s.tableByID(id)
		if err != nil {
			return nil, ref{}, err
		}
		return t.Table, ref{table: id}, nil
	})
}

// Tables lists the tables of a database by name; pages are those of Databases.
func (c *Catalog) Tables(ctx context.Context, db string, limit int, token string) (page []*millrace.Table, next string, err error) {
	d, err := look(ctx, c, func(s *snapshot) (*database, ref, error) {
		d, err := s.database(db)
		return d, ref{}, err
	})
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
func (c *Catalog) Schemas(ctx context.Context, id millrace.TableID) ([]*millrace.Schema, error) {
	return look(ctx, c, func(s *snapshot) ([]*millrace.Schema, ref, error) {
		t, err := s.tableByID(id)
		if err != nil {
			return nil, ref{}, err
		}
		return t.schemas, ref{table: id}, nil
	})
}

// DropTable removes a table and returns it, for its data to be dropped. With
// ifExists, nil is returned for one that does not exist. With purge, the lake table of one
// that has one is among Purges from then on, until Purged.
func (c *Catalog) DropTable(ctx context.Context, path millrace.TablePath, ifExists, purge bool) (*millrace.Table, error) {
	return c.DropTableIf(ctx, path, ifExists, purge, nil)
}

// DropTableIf is DropTable of a table that a function lets be dropped: the one that has the
// name when it is.
func (c *Catalog) DropTableIf(ctx context.Context, path millrace.TablePath, ifExists, purge bool, may func(*millrace.Table) error) (*millrace.Table, error) {
	var dropped *millrace.Table
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		t, err := s.table(path)
		if err != nil {
			return nil, err
		}
		if err := permitted(may, t.Table); err != nil {
			return nil, err
		}
		dropped = t.Table
		writes := s.deletes(t)
		if purge && t.Options.Lake != nil {
			w, err := c.addPurge(s, t.Table)
			if err != nil {
				return nil, err
			}
			writes = append(writes, w...)
		}
		writes = append(writes, s.revoke(func(g *millrace.Grant) bool { return g.Table == t.ID })...)
		s.removeTable(t)
		return writes, nil
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
	return nil, errs.NoTable(path.Database, path.Table)
}

func (s *snapshot) tableByID(id millrace.TableID) (*table, error) {
	if t := s.tables[id]; t != nil {
		return t, nil
	}
	return nil, errs.NoTableID(uint32(id))
}
