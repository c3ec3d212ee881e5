package auth

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/errs"
)

// PolicyOptions make a Policy.
type PolicyOptions struct {
	// Open says that authentication is off: everything is allowed, whoever calls.
	Open bool
	// Admins are principals that have VerbAdmin on everything, without a grant.
	Admins []string
	Clock  func() time.Time
}

// Policy decides who may do what. It looks at grants in memory, without a lock.
type Policy struct {
	o       PolicyOptions
	set     sync.Mutex // held while an index is made
	current atomic.Pointer[index]
}

// NewPolicy makes a policy without grants.
func NewPolicy(o PolicyOptions) *Policy {
	p := &Policy{o: o}
	p.current.Store(newIndex(o.Admins))
	return p
}

// Object is what something is done to.
type Object struct {
	database millrace.DatabaseID
	name     string
	table    *millrace.Table
}

// Everything is the object that all others are in.
func Everything() Object { return Object{} }

// Database is a database as an object.
func Database(id millrace.DatabaseID, name string) Object { return Object{database: id, name: name} }

// Table is a table as an object.
func Table(t *millrace.Table) Object {
	return Object{database: t.DatabaseID, name: t.Path.Database, table: t}
}

// String names the object in a sentence.
func (o Object) String() string {
	switch {
	case o.table != nil:
		return fmt.Sprintf("table %q", o.table.Path)
	case o.database != 0:
		return fmt.Sprintf("database %q", o.name)
	}
	return `everything ("*")`
}

// Audited is the object's name in the audit log.
func (o Object) Audited() string {
	switch {
	case o.table != nil:
		return o.table.Path.String()
	case o.database != 0:
		return o.name
	}
	return "*"
}

// absent is what is answered of an object that does not exist.
func (o Object) absent(seen bool) error {
	if o.table != nil && seen {
		return errs.NoTable(o.name, o.table.Path.Table)
	}
	return errs.NoDatabase(o.name)
}

// Set makes the grants, in the order of ids, those that count. Grants that are the same as
// before cost little.
func (p *Policy) Set(grants []*millrace.Grant) {
	p.set.Lock()
	defer p.set.Unlock()
	if next := p.current.Load().with(grants, p.o.Admins); next != nil {
		p.current.Store(next)
	}
}

// Generation rises when the grants change: what was allowed before may not be any more.
func (p *Policy) Generation() uint64 { return p.current.Load().generation }

// Open says whether everything is allowed.
func (p *Policy) Open() bool { return p.o.Open }

// Check says whether the caller of ctx may do something: nil, or an error that says what to
// answer. VerbRead is of all columns there are, were and will be; see CheckColumns. What is
// asked for, and what was decided, is noted for the audit log.
func (p *Policy) Check(ctx context.Context, verb millrace.Verb, o Object) error {
	err := p.May(ctx, verb, o)
	note(ctx, verb, o, err)
	return err
}

func note(ctx context.Context, verb millrace.Verb, o Object, err error) {
	if r := audit.Of(ctx); r != nil {
		r.Ask(verb.String(), o.Audited(), err == nil)
	}
}

// May is Check of what nobody asked for: of the things of a list, which are left out or not.
func (p *Policy) May(ctx context.Context, verb millrace.Verb, o Object) error {
	if p.o.Open {
		return nil
	}
	who, err := p.caller(ctx)
	if err != nil || who.all {
		return err
	}
	have, seen := p.current.Load().verbs(who, o)
	if have.Has(verb) {
		return nil
	}
	return refuse(who, verb, o, have, seen)
}

// CheckColumns says whether the caller of ctx may read some columns of a table; ids that
// are not positive are those of system columns, which are read with any other. Without
// columns it says whether any may be read. It is noted for the audit log, as by Check.
func (p *Policy) CheckColumns(ctx context.Context, t *millrace.Table, columns []millrace.ColumnID) error {
	err := p.mayRead(ctx, t, columns)
	note(ctx, millrace.VerbRead, Table(t), err)
	return err
}

func (p *Policy) mayRead(ctx context.Context, t *millrace.Table, columns []millrace.ColumnID) error {
	if p.o.Open {
		return nil
	}
	who, err := p.caller(ctx)
	if err != nil || who.all {
		return err
	}
	x, o := p.current.Load(), Table(t)
	have, seen := x.verbs(who, o)
	if have.Has(millrace.VerbRead) {
		return nil
	}
	if !x.anyColumn(who, t.ID) {
		return refuse(who, millrace.VerbRead, o, have, seen)
	}
	for _, id := range columns {
		if id > 0 && !x.column(who, t.ID, id) {
			return errs.New(errs.ColumnDenied, "%s may not read column %s of %s: ask for other columns, or for a grant of %q on it", who.Name, columnName(t, id), o, millrace.VerbRead)
		}
	}
	return nil
}

// Describes says whether the caller of ctx may know that an object exists.
func (p *Policy) Describes(ctx context.Context, o Object) bool {
	return p.May(ctx, millrace.VerbDescribe, o) == nil
}

// caller is who calls, as long as what they showed is good.
func (p *Policy) caller(ctx context.Context) (*Principal, error) {
	who := Of(ctx)
	switch {
	case who == nil:
		return nil, errs.New(errs.Unauthenticated, "nobody said who calls")
	case !who.Expires.IsZero() && !p.o.Clock().Before(who.Expires):
		return nil, errs.New(errs.Unauthenticated, "the token has expired: get a new one")
	}
	return who, nil
}

// refuse is what somebody is answered who may not do something: that there is no such
// thing, when he may not know of it.
func refuse(who *Principal, verb millrace.Verb, o Object, have millrace.Verbs, seen bool) error {
	if have == 0 && o.database != 0 {
		return o.absent(seen)
	}
	return errs.New(errs.PermissionDenied, "%s may not do this: it needs a grant of %q on %s", who.Name, verb, o)
}

func columnName(t *millrace.Table, id millrace.ColumnID) string {
	if i := t.Schema.IndexID(id); i >= 0 {
		return fmt.Sprintf("%q", t.Schema.Columns[i].Name)
	}
	return fmt.Sprintf("number %d", id) // of a version of the schema that is not the newest
}

// everyVerb is what VerbAdmin includes.
var everyVerb = millrace.VerbsOf(millrace.AllVerbs()...)

// including are the verbs with those that they include.
func including(v millrace.Verbs) millrace.Verbs {
	switch {
	case v == 0:
		return 0
	case v.Has(millrace.VerbAdmin):
		return everyVerb
	}
	return v | millrace.VerbsOf(millrace.VerbDescribe)
}

// index is the grants as they are asked for. It is immutable: a change makes another one,
// which shares the rights of principals that nothing has changed for.
type index struct {
	generation uint64
	grants     []*millrace.Grant            // by id
	of         map[string][]*millrace.Grant // by principal
	rights     map[string]*rights           // by principal
}

// rights are what the grants of one principal add up to.
type rights struct {
	all       millrace.Verbs // on everything
	databases map[millrace.DatabaseID]databaseRights
	tables    map[millrace.TableID]tableRights
}

type databaseRights struct {
	verbs millrace.Verbs // which hold for its tables, too
	seen  bool           // there are grants on tables in it
}

type tableRights struct {
	verbs   millrace.Verbs
	columns []millrace.ColumnID // that may be read, rising
}

func newIndex(admins []string) *index {
	x := &index{generation: 1, of: map[string][]*millrace.Grant{}, rights: map[string]*rights{}}
	for _, name := range admins {
		x.rights[name] = newRights(nil, true)
	}
	return x
}

// with is the index of other grants; nil when they are the same.
func (x *index) with(grants []*millrace.Grant, admins []string) *index {
	changed := map[string]struct{}{}
	note := func(g *millrace.Grant) { changed[g.Principal] = struct{}{} }
	was := x.grants
	for _, g := range grants {
		for len(was) > 0 && was[0].ID < g.ID {
			note(was[0])
			was = was[1:]
		}
		if len(was) > 0 && was[0].ID == g.ID {
			if was[0] != g {
				note(was[0])
				note(g)
			}
			was = was[1:]
		} else {
			note(g)
		}
	}
	for _, g := range was {
		note(g)
	}
	if len(changed) == 0 {
		return nil
	}
	next := &index{generation: x.generation + 1, grants: grants, of: make(map[string][]*millrace.Grant, len(x.of)), rights: make(map[string]*rights, len(x.rights))}
	for name, gs := range x.of {
		if _, is := changed[name]; !is {
			next.of[name] = gs
		}
	}
	for name, r := range x.rights {
		if _, is := changed[name]; !is {
			next.rights[name] = r
		}
	}
	for _, g := range grants {
		if _, is := changed[g.Principal]; is {
			next.of[g.Principal] = append(next.of[g.Principal], g)
		}
	}
	for name := range changed {
		if admin := slices.Contains(admins, name); admin || len(next.of[name]) > 0 {
			next.rights[name] = newRights(next.of[name], admin)
		}
	}
	return next
}

func newRights(grants []*millrace.Grant, admin bool) *rights {
	r := &rights{databases: map[millrace.DatabaseID]databaseRights{}, tables: map[millrace.TableID]tableRights{}}
	if admin {
		r.all = everyVerb
	}
	for _, g := range grants {
		verbs := including(g.Verbs)
		switch {
		case g.Database == 0:
			r.all |= verbs
			continue
		case g.Table == 0:
			d := r.databases[g.Database]
			d.verbs |= verbs
			r.databases[g.Database] = d
			continue
		}
		d := r.databases[g.Database]
		d.seen = true
		r.databases[g.Database] = d
		t := r.tables[g.Table]
		if len(g.Columns) > 0 {
			verbs = millrace.VerbsOf(millrace.VerbDescribe)
			t.columns = append(t.columns, g.Columns...)
		}
		t.verbs |= verbs
		r.tables[g.Table] = t
	}
	for id, t := range r.tables {
		slices.Sort(t.columns)
		t.columns = slices.Compact(t.columns)
		r.tables[id] = t
	}
	return r
}

// each calls fn with the rights of the caller and of each of his groups, until it says no.
func (x *index) each(who *Principal, fn func(*rights) bool) {
	if r := x.rights[who.Name]; r != nil && !fn(r) {
		return
	}
	for _, g := range who.Groups {
		if r := x.rights[g]; r != nil && !fn(r) {
			return
		}
	}
}

// verbs are those that somebody has on an object, and whether he may know of its database.
func (x *index) verbs(who *Principal, o Object) (have millrace.Verbs, seen bool) {
	x.each(who, func(r *rights) bool {
		have |= r.all
		if o.database == 0 {
			return true
		}
		d := r.databases[o.database]
		have |= d.verbs
		seen = seen || d.seen
		switch {
		case o.table != nil:
			have |= r.tables[o.table.ID].verbs
		case d.seen:
			have |= millrace.VerbsOf(millrace.VerbDescribe)
		}
		return true
	})
	return have, seen || have != 0
}

// anyColumn says whether somebody may read some column of a table.
func (x *index) anyColumn(who *Principal, t millrace.TableID) (may bool) {
	x.each(who, func(r *rights) bool {
		may = len(r.tables[t].columns) > 0
		return !may
	})
	return may
}

func (x *index) column(who *Principal, t millrace.TableID, id millrace.ColumnID) (may bool) {
	x.each(who, func(r *rights) bool {
		_, may = slices.BinarySearch(r.tables[t].columns, id)
		return !may
	})
	return may
}
