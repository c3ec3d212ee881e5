package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// How many grants there may be: in all, on a table, and on a database with all that is in it,
// so that who is admin of one of these cannot use up what there is for the others.
const (
	MaxGrants         = 100_000
	MaxTableGrants    = 4_000
	MaxDatabaseGrants = 20_000
)

// errGranted and errNoGrant end a change that finds its grant there already, or none.
var errGranted, errNoGrant = errors.New("the grant is there"), errors.New("there is no grant")

// CreateGrant makes a grant of what g says, whose id and time are given here. One that says
// the same is returned as it is, and created is false.
func (c *Catalog) CreateGrant(ctx context.Context, g millrace.Grant) (made *millrace.Grant, created bool, err error) {
	return c.CreateGrantIf(ctx, g, nil)
}

// CreateGrantIf is CreateGrant where a function lets grants be made on what it is on, when it
// is made.
func (c *Catalog) CreateGrantIf(ctx context.Context, g millrace.Grant, may func(GrantObject) error) (made *millrace.Grant, created bool, err error) {
	g.Columns = slices.Compact(slices.Sorted(slices.Values(g.Columns)))
	if err := checkPrincipal(g.Principal); err != nil {
		return nil, false, err
	}
	if err := checkGrant(&g); err != nil {
		return nil, false, err
	}
	err = c.commit(ctx, func(s *snapshot) ([]Write, error) {
		d, t, err := s.grantedOn(&g)
		if err != nil {
			return nil, err
		}
		if err := permitted(may, GrantObject{d, t}); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(s.grants, func(o *millrace.Grant) bool { return sameGrant(o, &g) }); i >= 0 {
			made = s.grants[i]
			return nil, errGranted
		}
		if err := s.roomForGrant(d, t); err != nil {
			return nil, err
		}
		next := g
		next.ID, next.CreatedAt = max(s.head.NextGrant, 1), micros(c.clock())
		s.head.NextGrant = next.ID + 1
		s.head.FeatureLevel = max(s.head.FeatureLevel, FeatureGrants)
		made = &next
		s.grants = append(slices.Clip(s.grants), made)
		return []Write{{Key: grantKey(next.ID), Value: encodeRecord(recordOfGrant(made))}}, nil
	})
	if errors.Is(err, errGranted) {
		return made, false, nil
	}
	return made, err == nil, err
}

// roomForGrant refuses a grant more on what has as many as there may be.
func (s *snapshot) roomForGrant(d Database, t *millrace.Table) error {
	if len(s.grants) >= MaxGrants {
		return errs.New(errs.TooLarge, "there are %d grants, the most there may be; give them to groups, or on databases", len(s.grants))
	}
	if d.ID == 0 {
		return nil
	}
	inDatabase, onTable := 0, 0
	for _, g := range s.grants {
		if g.Database != d.ID {
			continue
		}
		inDatabase++
		if t != nil && g.Table == t.ID {
			onTable++
		}
	}
	switch {
	case onTable >= MaxTableGrants:
		return errs.New(errs.TooLarge, "there are %d grants on table %s, the most there may be on one; give them to groups, or on the database", onTable, t.Path)
	case inDatabase >= MaxDatabaseGrants:
		return errs.New(errs.TooLarge, "there are %d grants on database %q and its tables, the most there may be on one; give them to groups, or on everything", inDatabase, d.Name)
	}
	return nil
}

func sameGrant(a, b *millrace.Grant) bool {
	return a.Principal == b.Principal && a.Database == b.Database && a.Table == b.Table && a.Verbs == b.Verbs && slices.Equal(a.Columns, b.Columns)
}

// checkGrant refuses what makes no sense whatever there is.
func checkGrant(g *millrace.Grant) error {
	switch {
	case g.Verbs == 0 || g.Verbs != millrace.VerbsOf(g.Verbs.List()...):
		return field(errs.InvalidValue, "verbs", "a grant has verbs, each one of %v", millrace.AllVerbs())
	case len(g.Columns) > 0 && g.Table == 0:
		return field(errs.InvalidValue, "columns", "columns are granted on a table")
	case len(g.Columns) > 0 && g.Verbs != millrace.VerbsOf(millrace.VerbRead):
		return field(errs.InvalidValue, "columns", "columns are granted for %q alone; make another grant for the other verbs", millrace.VerbRead)
	}
	return nil
}

// checkPrincipal refuses what does not name a user or a group.
func checkPrincipal(principal string) error {
	if err := millrace.ValidatePrincipal(principal); err != nil {
		return field(errs.InvalidValue, "principal", "%v", err)
	}
	return nil
}

// keptPrincipal says whether a text of the store is a principal; an earlier release took names
// that are refused now.
func keptPrincipal(principal string) bool {
	return strings.HasPrefix(principal, millrace.UserPrefix) || strings.HasPrefix(principal, millrace.GroupPrefix)
}

// GrantObject is what a grant is on: no database for everything, no table for a database.
type GrantObject struct {
	Database Database
	Table    *millrace.Table
}

// Grants are all grants, by id. The slice is not to be changed.
func (c *Catalog) Grants() []*millrace.Grant { return c.current.Load().grants }

// GrantedOn names what a grant is on: no database for everything, no table for a database.
func (c *Catalog) GrantedOn(g *millrace.Grant) (Database, *millrace.Table, error) {
	return c.current.Load().grantedOn(g)
}

// grantedOn finds what a grant is on, with the columns that it names.
func (s *snapshot) grantedOn(g *millrace.Grant) (Database, *millrace.Table, error) {
	if g.Database == 0 {
		return Database{}, nil, nil
	}
	of := s.byID[g.Database]
	if of == nil {
		return Database{}, nil, errs.New(errs.DatabaseNotFound, "there is no database with id %d", g.Database)
	}
	d := of.Database
	if g.Table == 0 {
		return d, nil, nil
	}
	t := s.tables[g.Table]
	if t == nil || t.DatabaseID != g.Database {
		return Database{}, nil, errs.NoTableID(uint32(g.Table))
	}
	for _, id := range g.Columns {
		if t.Schema.IndexID(id) < 0 {
			return Database{}, nil, errs.New(errs.UnknownColumn, "table %q has no column with id %d", t.Path, id)
		}
	}
	return d, t.Table, nil
}

// DeleteGrant takes a grant back, and returns it; nil when there is none.
func (c *Catalog) DeleteGrant(ctx context.Context, id millrace.GrantID) (*millrace.Grant, error) {
	return c.DeleteGrantIf(ctx, id, nil)
}

// DeleteGrantIf is DeleteGrant where a function lets grants be taken back on what it is on,
// when it is.
func (c *Catalog) DeleteGrantIf(ctx context.Context, id millrace.GrantID, may func(GrantObject) error) (*millrace.Grant, error) {
	var gone *millrace.Grant
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		i, there := s.findGrant(id)
		if !there {
			return nil, errNoGrant
		}
		d, t, err := s.grantedOn(s.grants[i])
		if err != nil {
			return nil, err
		}
		if err := permitted(may, GrantObject{d, t}); err != nil {
			return nil, err
		}
		gone = s.grants[i]
		s.grants = slices.Delete(slices.Clone(s.grants), i, i+1)
		return []Write{{Key: grantKey(id)}}, nil
	})
	if errors.Is(err, errNoGrant) {
		return nil, nil
	}
	return gone, err
}

func (s *snapshot) findGrant(id millrace.GrantID) (int, bool) {
	return slices.BinarySearchFunc(s.grants, id, func(g *millrace.Grant, id millrace.GrantID) int { return cmp.Compare(g.ID, id) })
}

// putGrant takes over a grant that is new or has fewer columns.
// REQUIRES: s came from edit.
func (s *snapshot) putGrant(g *millrace.Grant) {
	i, there := s.findGrant(g.ID)
	if there {
		s.grants = slices.Clone(s.grants)
		s.grants[i] = g
		return
	}
	s.grants = slices.Insert(slices.Clip(s.grants), i, g)
}

// revoke deletes the grants that are on what is dropped.
func (s *snapshot) revoke(on func(*millrace.Grant) bool) (writes []Write) {
	for _, g := range s.grants {
		if on(g) {
			writes = append(writes, Write{Key: grantKey(g.ID)})
		}
	}
	return writes
}

// narrow takes the columns that a table has no more out of its grants; one that is left
// without columns goes. REQUIRES: s came from edit.
func (s *snapshot) narrow(t *millrace.Table) (writes []Write) {
	for _, g := range s.grants {
		if g.Table != t.ID || !slices.ContainsFunc(g.Columns, func(id millrace.ColumnID) bool { return t.Schema.IndexID(id) < 0 }) {
			continue
		}
		less := *g
		less.Columns = slices.DeleteFunc(slices.Clone(g.Columns), func(id millrace.ColumnID) bool { return t.Schema.IndexID(id) < 0 })
		w := Write{Key: grantKey(g.ID)}
		if len(less.Columns) > 0 {
			w.Value = encodeRecord(recordOfGrant(&less))
			s.putGrant(&less)
		} else {
			s.dropGrants(func(o *millrace.Grant) bool { return o.ID == less.ID })
		}
		writes = append(writes, w)
	}
	return writes
}

// dropGrants removes grants from s. REQUIRES: s came from edit.
func (s *snapshot) dropGrants(which func(*millrace.Grant) bool) {
	if slices.ContainsFunc(s.grants, which) {
		s.grants = slices.DeleteFunc(slices.Clone(s.grants), which)
	}
}

func recordOfGrant(g *millrace.Grant) grantRecord {
	r := grantRecord{ID: g.ID, Principal: g.Principal, DatabaseID: g.Database, TableID: g.Table, Columns: g.Columns, CreatedMicros: g.CreatedAt.UnixMicro()}
	for _, v := range g.Verbs.List() {
		r.Verbs = append(r.Verbs, v.String())
	}
	return r
}

// decodeGrant is the grant of an entry, whose object is not looked for.
func decodeGrant(e Entry) (*millrace.Grant, error) {
	var r grantRecord
	if err := decodeRecord(e, &r); err != nil {
		return nil, err
	}
	g := &millrace.Grant{ID: r.ID, Principal: r.Principal, Database: r.DatabaseID, Table: r.TableID, Columns: r.Columns, CreatedAt: time.UnixMicro(r.CreatedMicros).UTC()}
	for _, word := range r.Verbs {
		v, err := millrace.ParseVerb(word)
		if err != nil {
			return nil, newerRelease(fmt.Sprintf("grant %d has the verb %s", r.ID, clip(word)))
		}
		g.Verbs |= millrace.VerbsOf(v)
	}
	if grantKey(r.ID) != e.Key || r.ID == 0 || !keptPrincipal(r.Principal) || checkGrant(g) != nil || !slices.IsSorted(r.Columns) {
		return nil, corrupt("key %q holds grant %d, of %s", e.Key, r.ID, clip(r.Principal))
	}
	return g, nil
}

// checkGrants finds grants that are on nothing.
func (s *snapshot) checkGrants(grants []*millrace.Grant) error {
	for _, g := range grants {
		if _, _, err := s.grantedOn(g); err != nil || g.ID >= s.head.NextGrant {
			return corrupt("grant %d is on database %d, table %d, columns %v, which are not there, or has an id that has not been given yet", g.ID, g.Database, g.Table, g.Columns)
		}
	}
	return nil
}
