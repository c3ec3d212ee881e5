package auth

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

func tableOf(db, id uint32) *millrace.Table {
	t := &millrace.Table{
		ID: millrace.TableID(id), DatabaseID: millrace.DatabaseID(db),
		Path:   millrace.TablePath{Database: fmt.Sprintf("db%d", db), Table: fmt.Sprintf("t%d", id)},
		Schema: &millrace.Schema{ID: 1},
	}
	for i := range millrace.ColumnID(4) {
		t.Schema.Columns = append(t.Schema.Columns, millrace.Column{ID: i + 1, Name: fmt.Sprintf("c%d", i+1)})
	}
	return t
}

func as(t testing.TB, name string, groups ...string) context.Context {
	return With(t.Context(), NewPrincipal(name, groups, time.Time{}))
}

func granted(grants ...*millrace.Grant) *Policy {
	p := NewPolicy(PolicyOptions{Admins: []string{"user:root", "group:ops"}, Clock: time.Now})
	for i, g := range grants {
		g.ID = millrace.GrantID(i + 1)
	}
	p.Set(grants)
	return p
}

// What each verb on each kind of object lets do where, written down by hand.
func TestPolicyCheck(t *testing.T) {
	const describe, read, write, create, admin = millrace.VerbDescribe, millrace.VerbRead, millrace.VerbWrite, millrace.VerbCreate, millrace.VerbAdmin
	here, beside, away := Table(tableOf(1, 1)), Table(tableOf(1, 2)), Table(tableOf(2, 3))
	db1, db2 := Database(1, "db1"), Database(2, "db2")
	p := granted(
		&millrace.Grant{Principal: "user:ann", Database: 1, Table: 1, Verbs: millrace.VerbsOf(write)},
		&millrace.Grant{Principal: "group:readers", Database: 1, Verbs: millrace.VerbsOf(read)},
		&millrace.Grant{Principal: "user:eve", Verbs: millrace.VerbsOf(create)},
		&millrace.Grant{Principal: "user:dba", Database: 2, Verbs: millrace.VerbsOf(admin)},
	)
	for _, c := range []struct {
		who  context.Context
		verb millrace.Verb
		on   Object
		code errs.Code
		text string
	}{
		{as(t, "ann"), write, here, "", ""},
		{as(t, "ann"), describe, here, "", ""},
		{as(t, "ann"), describe, db1, "", ""},
		{as(t, "ann"), read, here, errs.PermissionDenied, `user:ann may not do this: it needs a grant of "read" on table "db1.t1"`},
		{as(t, "ann"), create, db1, errs.PermissionDenied, `user:ann may not do this: it needs a grant of "create" on database "db1"`},
		{as(t, "ann"), create, Everything(), errs.PermissionDenied, `user:ann may not do this: it needs a grant of "create" on everything ("*")`},
		{as(t, "ann"), write, beside, errs.TableNotFound, `there is no table "t2" in database "db1"`},
		{as(t, "ann"), write, away, errs.DatabaseNotFound, `there is no database "db2"`},
		{as(t, "ann"), describe, db2, errs.DatabaseNotFound, `there is no database "db2"`},
		{as(t, "ann", "readers"), read, here, "", ""},
		{as(t, "ann", "readers"), write, here, "", ""},
		{as(t, "x", "readers"), read, beside, "", ""},
		{as(t, "x", "readers"), write, beside, errs.PermissionDenied, ""},
		{as(t, "x", "readers"), read, away, errs.DatabaseNotFound, ""},
		{as(t, "readers"), read, here, errs.DatabaseNotFound, ""}, // a user is no group
		{as(t, "group:readers"), read, here, errs.DatabaseNotFound, ""},
		{as(t, "eve"), create, Everything(), "", ""},
		{as(t, "eve"), create, db2, "", ""},
		{as(t, "eve"), describe, away, "", ""},
		{as(t, "eve"), read, away, errs.PermissionDenied, ""},
		{as(t, "dba"), read, away, "", ""},
		{as(t, "dba"), admin, away, "", ""},
		{as(t, "dba"), create, Everything(), errs.PermissionDenied, ""},
		{as(t, "dba"), describe, db1, errs.DatabaseNotFound, ""},
		{as(t, "root"), admin, Everything(), "", ""},
		{as(t, "x", "ops"), read, away, "", ""},
		{With(t.Context(), System), admin, Everything(), "", ""},
		{With(t.Context(), Anyone), admin, Everything(), "", ""},
		{t.Context(), describe, here, errs.Unauthenticated, "nobody said who calls"},
	} {
		err := p.Check(c.who, c.verb, c.on)
		require.Equal(t, c.code, errs.CodeOf(err), "%s %s %s: %v", Of(c.who).name(), c.verb, c.on, err)
		require.Equal(t, c.code == "", p.Check(c.who, c.verb, c.on) == nil)
		if c.text != "" {
			require.EqualError(t, err, c.text)
		}
	}
}

func (p *Principal) name() string {
	if p == nil {
		return "nobody"
	}
	return p.Name
}

// Column grants add up, are read alone, and never amount to all columns.
func TestPolicyColumns(t *testing.T) {
	tab := tableOf(1, 1)
	p := granted(
		&millrace.Grant{Principal: "user:ann", Database: 1, Table: 1, Verbs: millrace.VerbsOf(millrace.VerbRead), Columns: []millrace.ColumnID{1, 2}},
		&millrace.Grant{Principal: "group:g", Database: 1, Table: 1, Verbs: millrace.VerbsOf(millrace.VerbRead), Columns: []millrace.ColumnID{2, 3, 4}},
		&millrace.Grant{Principal: "group:h", Database: 1, Table: 1, Verbs: millrace.VerbsOf(millrace.VerbWrite)},
	)
	require.NoError(t, p.CheckColumns(as(t, "ann"), tab, nil))
	require.NoError(t, p.CheckColumns(as(t, "ann"), tab, []millrace.ColumnID{2, -4, 1}))
	require.EqualError(t, p.CheckColumns(as(t, "ann"), tab, []millrace.ColumnID{1, 3}),
		`user:ann may not read column "c3" of table "db1.t1": ask for other columns, or for a grant of "read" on it`)
	require.Equal(t, errs.ColumnDenied, errs.CodeOf(p.CheckColumns(as(t, "ann"), tab, []millrace.ColumnID{9})))
	require.NoError(t, p.CheckColumns(as(t, "ann", "g"), tab, []millrace.ColumnID{1, 2, 3, 4}))
	require.Equal(t, errs.PermissionDenied, errs.CodeOf(p.Check(as(t, "ann", "g"), millrace.VerbRead, Table(tab))))
	require.NoError(t, p.Check(as(t, "ann"), millrace.VerbDescribe, Table(tab)))
	require.Equal(t, errs.PermissionDenied, errs.CodeOf(p.CheckColumns(as(t, "x", "h"), tab, nil)))
	require.Equal(t, errs.DatabaseNotFound, errs.CodeOf(p.CheckColumns(as(t, "x"), tab, nil)))
	require.Equal(t, errs.Unauthenticated, errs.CodeOf(p.CheckColumns(t.Context(), tab, nil)))
}

// What a caller showed may be good no longer.
func TestPolicyExpiry(t *testing.T) {
	now := time.Unix(1000, 0)
	p := NewPolicy(PolicyOptions{Admins: []string{"user:root"}, Clock: func() time.Time { return now }})
	ctx := With(t.Context(), NewPrincipal("root", nil, now.Add(time.Second)))
	require.NoError(t, p.Check(ctx, millrace.VerbAdmin, Everything()))
	now = now.Add(time.Second)
	require.Equal(t, errs.Unauthenticated, errs.CodeOf(p.Check(ctx, millrace.VerbAdmin, Everything())))
	require.Equal(t, errs.Unauthenticated, errs.CodeOf(p.CheckColumns(ctx, tableOf(1, 1), nil)))
}

// With authentication off everything is allowed, with or without a caller.
func TestPolicyOpen(t *testing.T) {
	p := NewPolicy(PolicyOptions{Open: true})
	require.True(t, p.Open())
	require.NoError(t, p.Check(t.Context(), millrace.VerbAdmin, Everything()))
	require.NoError(t, p.CheckColumns(t.Context(), tableOf(1, 1), []millrace.ColumnID{1}))
}

// naive decides by going through all grants each time.
func naive(grants []*millrace.Grant, admins []string, who *Principal, verb millrace.Verb, db millrace.DatabaseID, table millrace.TableID, columns []millrace.ColumnID) errs.Code {
	names := append([]string{who.Name}, who.Groups...)
	mine := func(name string) bool { return slices.Contains(names, name) }
	covers := func(g *millrace.Grant) bool {
		return g.Database == 0 || g.Database == db && (g.Table == 0 || g.Table == table)
	}
	var describesTable, describesDatabase, allowed, someColumn bool
	readable := map[millrace.ColumnID]bool{}
	if slices.ContainsFunc(admins, mine) {
		return ""
	}
	for _, g := range grants {
		if !mine(g.Principal) {
			continue
		}
		if g.Database == 0 || g.Database == db {
			describesDatabase = true
		}
		if !covers(g) {
			continue
		}
		describesTable = true
		if len(g.Columns) > 0 {
			for _, c := range g.Columns {
				readable[c], someColumn = true, true
			}
			continue
		}
		allowed = allowed || g.Verbs.Has(verb) || g.Verbs.Has(millrace.VerbAdmin)
	}
	describes := describesTable
	if table == 0 {
		describes = describesDatabase
	}
	switch {
	case allowed || verb == millrace.VerbDescribe && (describes || db == 0 && describesTable):
		return ""
	case verb == millrace.VerbRead && columns != nil && someColumn:
		for _, c := range columns {
			if !readable[c] {
				return errs.ColumnDenied
			}
		}
		return ""
	case db != 0 && !describesDatabase:
		return errs.DatabaseNotFound
	case table != 0 && !describesTable:
		return errs.TableNotFound
	}
	return errs.PermissionDenied
}

// Whatever grants come and go, the index decides as going through all of them does.
func TestPolicyModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		principals := []string{"user:a", "user:b", "group:a", "group:g", "group:h"}
		admins := rapid.SampledFrom([][]string{nil, {"group:h"}}).Draw(t, "admins")
		p := NewPolicy(PolicyOptions{Admins: admins, Clock: time.Now})
		var grants []*millrace.Grant
		next := millrace.GrantID(1)
		grant := func() *millrace.Grant {
			g := &millrace.Grant{ID: next, Principal: rapid.SampledFrom(principals).Draw(t, "principal"), Verbs: millrace.Verbs(rapid.IntRange(1, 127).Draw(t, "verbs") << 1)}
			next++
			if rapid.IntRange(0, 5).Draw(t, "few") > 0 {
				g.Verbs = millrace.VerbsOf(rapid.SampledFrom(millrace.AllVerbs()).Draw(t, "verb"))
			}
			if g.Database = millrace.DatabaseID(rapid.IntRange(0, 2).Draw(t, "database")); g.Database > 0 {
				if n := rapid.IntRange(0, 2).Draw(t, "table"); n > 0 {
					g.Table = millrace.TableID(int(g.Database)*10 + n)
					if rapid.Bool().Draw(t, "of columns") {
						g.Verbs = millrace.VerbsOf(millrace.VerbRead)
						g.Columns = rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(1, 4), func(i int) millrace.ColumnID { return millrace.ColumnID(i) }), 1, 4, rapid.ID).Draw(t, "columns")
						slices.Sort(g.Columns)
					}
				}
			}
			return g
		}
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			was := p.Generation()
			grants = slices.Clone(grants)
			different := false
			for range rapid.IntRange(0, 3).Draw(t, "removed") {
				if len(grants) > 0 {
					i := rapid.IntRange(0, len(grants)-1).Draw(t, "which")
					grants, different = slices.Delete(grants, i, i+1), true
				}
			}
			for i, g := range grants {
				if len(g.Columns) > 1 && rapid.IntRange(0, 3).Draw(t, "less") == 0 { // a column was dropped
					less := *g
					less.Columns = g.Columns[1:]
					grants[i], different = &less, true
				}
			}
			for range rapid.IntRange(0, 4).Draw(t, "added") {
				grants, different = append(grants, grant()), true
			}
			p.Set(grants)
			if different != (p.Generation() > was) {
				t.Fatalf("generation %d after %d; changed: %v", p.Generation(), was, different)
			}
			for range 20 {
				who := NewPrincipal(rapid.SampledFrom([]string{"a", "b", "g"}).Draw(t, "who"), rapid.SampledFrom([][]string{nil, {"a"}, {"g"}, {"g", "h"}, {"a", "g"}}).Draw(t, "groups"), time.Time{})
				ctx := With(context.Background(), who)
				db := rapid.IntRange(0, 2).Draw(t, "of database")
				verb := rapid.SampledFrom(millrace.AllVerbs()).Draw(t, "asked")
				var table int
				o := Everything()
				if db > 0 {
					o = Database(millrace.DatabaseID(db), fmt.Sprintf("db%d", db))
					if n := rapid.IntRange(0, 2).Draw(t, "of table"); n > 0 {
						table = db*10 + n
						o = Table(tableOf(uint32(db), uint32(table)))
					}
				}
				got := errs.CodeOf(p.Check(ctx, verb, o))
				if want := naive(grants, admins, who, verb, millrace.DatabaseID(db), millrace.TableID(table), nil); got != want {
					t.Fatalf("%v %v asks %s on %s: %q, want %q", who.Name, who.Groups, verb, o, got, want)
				}
				if table == 0 {
					continue
				}
				columns := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 4), func(i int) millrace.ColumnID { return millrace.ColumnID(i) }), 0, 3).Draw(t, "asked columns")
				got = errs.CodeOf(p.CheckColumns(ctx, o.table, columns))
				if want := naive(grants, admins, who, millrace.VerbRead, millrace.DatabaseID(db), millrace.TableID(table), append([]millrace.ColumnID{}, columns...)); got != want {
					t.Fatalf("%v %v reads %v of %s: %q, want %q", who.Name, who.Groups, columns, o, got, want)
				}
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	var grants []*millrace.Grant
	for i := range 100_000 {
		grants = append(grants, &millrace.Grant{
			ID: millrace.GrantID(i + 1), Principal: fmt.Sprintf("group:g%d", i%1000), Database: millrace.DatabaseID(i%10 + 1),
			Table: millrace.TableID(i + 1), Verbs: millrace.VerbsOf(millrace.VerbRead, millrace.VerbWrite),
		})
	}
	p := NewPolicy(PolicyOptions{Clock: time.Now})
	p.Set(grants)
	t := tableOf(2, 12)
	ctx := With(b.Context(), NewPrincipal("ann", []string{"a", "b", "c", "d", "g11"}, time.Time{}))
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := p.CheckColumns(ctx, t, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("set", func(b *testing.B) {
		more := append(slices.Clone(grants), &millrace.Grant{ID: 200_000, Principal: "group:g1", Verbs: millrace.VerbsOf(millrace.VerbRead)})
		for b.Loop() {
			p.Set(more)
			p.Set(grants)
		}
	})
}
