package guard

import (
	"context"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/catalog"
)

// ClusterID is the cluster's id, which is no secret.
func (g *Guard) ClusterID() [16]byte { return g.cat.ClusterID() }

// CreateDatabase is catalog.CreateDatabase, for who may create on everything.
func (g *Guard) CreateDatabase(ctx context.Context, name, comment string) (catalog.Database, error) {
	if err := g.Allow(ctx, millrace.VerbCreate, nil); err != nil {
		return catalog.Database{}, err
	}
	return g.cat.CreateDatabase(ctx, name, comment)
}

// Database is catalog.Database, for who may describe it.
func (g *Guard) Database(ctx context.Context, name string) (catalog.Database, error) {
	return g.database(ctx, millrace.VerbDescribe, name)
}

// database finds a database that the caller may do something to.
func (g *Guard) database(ctx context.Context, verb millrace.Verb, name string) (catalog.Database, error) {
	d, err := g.cat.Database(ctx, name)
	if err == nil {
		err = g.policy.Check(ctx, verb, auth.Database(d.ID, d.Name))
	}
	if err != nil {
		return catalog.Database{}, err
	}
	return d, nil
}

// Databases is catalog.Databases, of those that the caller may describe.
func (g *Guard) Databases(ctx context.Context, limit int, token string) (page []catalog.Database, next string, err error) {
	listed(ctx)
	if g.unbound(ctx) {
		return g.cat.Databases(ctx, limit, token)
	}
	return filtered(limit, token,
		func(limit int, token string) ([]catalog.Database, string, error) {
			return g.cat.Databases(ctx, limit, token)
		},
		func(d catalog.Database) bool { return g.policy.Describes(ctx, auth.Database(d.ID, d.Name)) },
		func(d catalog.Database) string { return d.Name })
}

// DropDatabase is catalog.DropDatabase, for who may drop it, and so what is in it.
func (g *Guard) DropDatabase(ctx context.Context, name string, cascade bool) ([]*millrace.Table, error) {
	if _, err := g.database(ctx, millrace.VerbDrop, name); err != nil {
		return nil, err
	}
	return g.cat.DropDatabaseIf(ctx, name, cascade, func(d catalog.Database) error {
		return g.policy.May(ctx, millrace.VerbDrop, auth.Database(d.ID, d.Name))
	})
}

// listed notes for the audit log that there was a list of what the caller may see.
func listed(ctx context.Context) { audit.Of(ctx).Ask(millrace.VerbDescribe.String(), everything, true) }

// filtered is a page of the things of a list that may be shown. Its token names the last one
// that is, not one that is left out.
func filtered[T any](limit int, token string, list func(limit int, token string) ([]T, string, error), shown func(T) bool, name func(T) string) (page []T, next string, err error) {
	most := limit
	if most == 0 {
		most = catalog.DefaultPage
	}
	for {
		part, after, err := list(limit, token)
		if err != nil {
			return nil, "", err
		}
		for _, v := range part {
			switch {
			case !shown(v):
			case len(page) == most:
				return page, catalog.PageToken(name(page[most-1])), nil
			default:
				page = append(page, v)
			}
		}
		if after == "" {
			return page, "", nil
		}
		limit, token = catalog.MaxPage, after
	}
}
