package guard

import (
	"context"
	"slices"
	"strconv"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// Grant is a grant in words.
type Grant struct {
	ID        string
	Principal string
	On        string // "*", a database or "database.table"
	Verbs     []string
	Columns   []string
}

// everything is what a grant on everything is on.
const everything = "*"

// CreateGrant makes a grant, for who is admin on what it is on. One that says the same is
// given as it is, and created is false.
func (g *Guard) CreateGrant(ctx context.Context, spec Grant) (_ Grant, created bool, err error) {
	made := millrace.Grant{Principal: spec.Principal}
	if err := g.admin(ctx, &made, spec); err != nil {
		return Grant{}, false, err
	}
	for _, word := range spec.Verbs {
		v, err := millrace.ParseVerb(word)
		if err != nil {
			return Grant{}, false, errs.New(errs.InvalidValue, "verb %v", err)
		}
		made.Verbs |= millrace.VerbsOf(v)
	}
	got, created, err := g.cat.CreateGrantIf(ctx, made, g.mayGrants(ctx))
	if err != nil {
		return Grant{}, false, err
	}
	g.take()
	d, t, err := g.cat.GrantedOn(got)
	if err != nil {
		return Grant{}, false, err
	}
	return words(got, d, t), created, nil
}

// admin finds what a grant is to be on, of which the caller has to be admin.
func (g *Guard) admin(ctx context.Context, made *millrace.Grant, spec Grant) error {
	db, table, ofTable := strings.Cut(spec.On, ".")
	switch {
	case spec.On == everything:
		if err := g.Allow(ctx, millrace.VerbAdmin, nil); err != nil {
			return err
		}
	case !ofTable:
		if err := millrace.ValidateName("database", db); err != nil {
			return errs.New(errs.InvalidName, "%v", err)
		}
		d, err := g.database(ctx, millrace.VerbAdmin, db)
		if err != nil {
			return err
		}
		made.Database = d.ID
	default:
		path, err := millrace.ParseTablePath(spec.On)
		if err != nil {
			return errs.New(errs.InvalidName, "%v", err)
		}
		t, err := g.table(ctx, millrace.VerbAdmin, millrace.TablePath{Database: db, Table: table})
		if err != nil {
			return err
		}
		made.Database, made.Table = t.DatabaseID, t.ID
		for _, name := range spec.Columns {
			i := t.Schema.Index(name)
			if i < 0 {
				return errs.New(errs.UnknownColumn, "table %s has no column %q", path, name)
			}
			made.Columns = append(made.Columns, t.Schema.Columns[i].ID)
		}
		return nil
	}
	if len(spec.Columns) > 0 {
		return errs.New(errs.InvalidValue, "columns are granted on a table, as database.table, and not on %s", spec.On)
	}
	return nil
}

// words is a grant in words, with what it is on as that is now.
func words(of *millrace.Grant, d catalog.Database, t *millrace.Table) Grant {
	out := Grant{ID: strconv.FormatUint(uint64(of.ID), 10), Principal: of.Principal, On: everything}
	switch {
	case t != nil:
		out.On, out.Columns = t.Path.String(), t.Names(of.Columns)
	case of.Database != 0:
		out.On = d.Name
	}
	for _, v := range of.Verbs.List() {
		out.Verbs = append(out.Verbs, v.String())
	}
	return out
}

// object is what a grant is on; gone says that it is not there any more.
func (g *Guard) object(of *millrace.Grant) (_ auth.Object, gone bool) {
	d, t, err := g.cat.GrantedOn(of)
	if err != nil {
		return auth.Object{}, true
	}
	return objectOf(catalog.GrantObject{Database: d, Table: t}), false
}

func objectOf(on catalog.GrantObject) auth.Object {
	switch {
	case on.Table != nil:
		return auth.Table(on.Table)
	case on.Database.ID != 0:
		return auth.Database(on.Database.ID, on.Database.Name)
	}
	return auth.Everything()
}

// Grants lists the grants on what the caller is admin of, by id, a page at a time.
func (g *Guard) Grants(ctx context.Context, limit int, token string) (page []Grant, next string, err error) {
	limit, after, err := pageOf(limit, token)
	if err != nil {
		return nil, "", err
	}
	listed(ctx)
	for _, of := range g.cat.Grants() {
		if uint64(of.ID) <= after {
			continue
		}
		d, t, err := g.cat.GrantedOn(of)
		if err != nil || g.policy.May(ctx, millrace.VerbAdmin, objectOf(catalog.GrantObject{Database: d, Table: t})) != nil {
			continue // it is gone, or another's
		}
		if len(page) == limit {
			return page, page[limit-1].ID, nil
		}
		page = append(page, words(of, d, t))
	}
	return page, "", nil
}

// DeleteGrant takes a grant back, for who is admin on what it is on. One that is not there
// is no error, nor is one on what the caller may not know of.
func (g *Guard) DeleteGrant(ctx context.Context, id string) error {
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return errs.New(errs.InvalidValue, "%q is not the id of a grant", id[:min(len(id), 64)])
	}
	all := g.cat.Grants()
	i := slices.IndexFunc(all, func(of *millrace.Grant) bool { return uint64(of.ID) == n })
	if i < 0 {
		return nil
	}
	o, gone := g.object(all[i])
	if gone {
		return nil
	}
	if err := g.policy.Check(ctx, millrace.VerbAdmin, o); notFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	_, err = g.cat.DeleteGrantIf(ctx, all[i].ID, g.mayGrants(ctx))
	g.take()
	if notFound(err) { // dropped meanwhile, or nothing that the caller may know of any more
		return nil
	}
	return err
}

// mayGrants asks again within a change of a grant: the caller's own may have been taken back
// while the change waited for others.
func (g *Guard) mayGrants(ctx context.Context) func(catalog.GrantObject) error {
	return func(on catalog.GrantObject) error { return g.policy.May(ctx, millrace.VerbAdmin, objectOf(on)) }
}
