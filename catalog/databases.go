package catalog

import (
	"context"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Database is a named set of tables.
type Database struct {
	ID        millrace.DatabaseID
	Name      string
	Comment   string
	CreatedAt time.Time
}

// CreateDatabase makes an empty database.
func (c *Catalog) CreateDatabase(ctx context.Context, name, comment string) (Database, error) {
	if err := checkName("database", name); err != nil {
		return Database{}, err
	}
	if len(comment) > maxDescriptorBytes {
		return Database{}, tooLong("comment", len(comment))
	}
	var out Database
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		if d := s.byName[fold(name)]; d != nil {
			if d.Name == name {
				return nil, errs.New(errs.DatabaseAlreadyExists, "database %q exists already", name)
			}
			return nil, caseClash(errs.DatabaseAlreadyExists, "database", name, d.Name)
		}
		out = Database{ID: s.head.NextDatabase, Name: name, Comment: comment, CreatedAt: micros(c.clock())}
		s.head.NextDatabase++
		s.addDatabase(&database{Database: out, byName: map[string]*table{}})
		return []Write{{Key: databaseKey(out.ID), Value: encodeRecord(databaseRecord{
			ID: out.ID, Name: name, Comment: comment, CreatedMicros: out.CreatedAt.UnixMicro(),
		})}}, nil
	})
	return out, err
}

// Database returns a database by its name.
func (c *Catalog) Database(ctx context.Context, name string) (Database, error) {
	return look(ctx, c, func(s *snapshot) (Database, ref, error) {
		d, err := s.database(name)
		if err != nil {
			return Database{}, ref{}, err
		}
		return d.Database, ref{}, nil
	})
}

// Databases lists databases by name, a page at a time: at most limit (0 is
// DefaultPage) after those that token, from the page before, covers. An empty
// next token says that there are no more.
func (c *Catalog) Databases(ctx context.Context, limit int, token string) (page []Database, next string, err error) {
	if err := c.kv.Lease(ctx); err != nil {
		return nil, "", err
	}
	s := c.current.Load()
	from, to, next, err := pageOf(len(s.databases), limit, token,
		func(name string) (int, bool) { return s.findDatabase(name) },
		func(i int) string { return s.databases[i].Name })
	for _, d := range s.databases[from:to] {
		page = append(page, d.Database)
	}
	return page, next, err
}

// DropDatabase removes a database. One that has tables is refused unless
// cascade is set, which drops them too; they are returned, for their data to be
// dropped.
func (c *Catalog) DropDatabase(ctx context.Context, name string, cascade bool) ([]*millrace.Table, error) {
	return c.DropDatabaseIf(ctx, name, cascade, nil)
}

// DropDatabaseIf is DropDatabase of a database that a function lets be dropped: the one that
// has the name when it is.
func (c *Catalog) DropDatabaseIf(ctx context.Context, name string, cascade bool, may func(Database) error) ([]*millrace.Table, error) {
	var dropped []*millrace.Table
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		d, err := s.database(name)
		if err != nil {
			return nil, err
		}
		if err := permitted(may, d.Database); err != nil {
			return nil, err
		}
		if len(d.tables) > 0 && !cascade {
			return nil, errs.New(errs.DatabaseNotEmpty, "database %q has %d tables; drop them first, or ask for cascade", name, len(d.tables))
		}
		dropped = nil
		writes := []Write{{Key: databaseKey(d.ID)}}
		for _, t := range d.tables {
			dropped = append(dropped, t.Table)
			writes = append(writes, s.deletes(t)...)
		}
		writes = append(writes, s.revoke(func(g *millrace.Grant) bool { return g.Database == d.ID })...)
		s.removeDatabase(d)
		return writes, nil
	})
	if err != nil {
		return nil, err
	}
	return dropped, nil
}

// permitted asks whether what a name stands for may be changed. REQUIRES: within the change,
// so that it is what is changed.
func permitted[T any](may func(T) error, of T) error {
	if may == nil {
		return nil
	}
	return may(of)
}

func (s *snapshot) database(name string) (*database, error) {
	if d := s.byName[fold(name)]; d != nil && d.Name == name {
		return d, nil
	}
	return nil, errs.NoDatabase(name)
}
