package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// fieldOf is the field that an error is of.
func fieldOf(err error) string {
	if e, ok := errors.AsType[*errs.Error](err); ok && len(e.Fields) == 1 {
		return e.Fields[0].Field
	}
	return ""
}

func (tc *testCatalog) mustGrant(t *testing.T, g millrace.Grant) *millrace.Grant {
	t.Helper()
	made, _, err := tc.CreateGrant(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

const readVerb = 1 << millrace.VerbRead

// What makes no sense, and what is on nothing, is refused, and says which field is wrong.
func TestGrantsRefused(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	table := tc.mustCreate(t, "d", Spec{Name: "t", Columns: cols("a", "INT")})
	for _, c := range []struct {
		g     millrace.Grant
		code  errs.Code
		field string
	}{
		{millrace.Grant{Principal: "ann", Verbs: readVerb}, errs.InvalidValue, "principal"},
		{millrace.Grant{Principal: "user:", Verbs: readVerb}, errs.InvalidValue, "principal"},
		{millrace.Grant{Principal: "role:x", Verbs: readVerb}, errs.InvalidValue, "principal"},
		{millrace.Grant{Principal: "user:a\x00", Verbs: readVerb}, errs.InvalidValue, "principal"},
		{millrace.Grant{Principal: "user: a", Verbs: readVerb}, errs.InvalidValue, "principal"},
		{millrace.Grant{Principal: "group:a\u00a0b", Verbs: readVerb}, errs.InvalidValue, "principal"},
		{millrace.Grant{Principal: "user:" + strings.Repeat("a", 300), Verbs: readVerb}, errs.InvalidValue, "principal"},
		{millrace.Grant{Principal: "user:a"}, errs.InvalidValue, "verbs"},
		{millrace.Grant{Principal: "user:a", Verbs: 1}, errs.InvalidValue, "verbs"},
		{millrace.Grant{Principal: "user:a", Database: table.DatabaseID, Verbs: readVerb, Columns: []millrace.ColumnID{1}}, errs.InvalidValue, "columns"},
		{millrace.Grant{Principal: "user:a", Database: table.DatabaseID, Table: table.ID, Verbs: readVerb | 1<<millrace.VerbWrite, Columns: []millrace.ColumnID{1}}, errs.InvalidValue, "columns"},
		{millrace.Grant{Principal: "user:a", Database: table.DatabaseID, Table: table.ID, Verbs: readVerb, Columns: []millrace.ColumnID{2}}, errs.UnknownColumn, ""},
		{millrace.Grant{Principal: "user:a", Database: 7, Verbs: readVerb}, errs.DatabaseNotFound, ""},
		{millrace.Grant{Principal: "user:a", Database: table.DatabaseID, Table: 7, Verbs: readVerb}, errs.TableNotFound, ""},
		{millrace.Grant{Principal: "user:a", Database: 7, Table: table.ID, Verbs: readVerb}, errs.DatabaseNotFound, ""},
	} {
		_, _, err := tc.CreateGrant(t.Context(), c.g)
		if !errs.Is(err, c.code) || c.field != "" && fieldOf(err) != c.field {
			t.Errorf("%+v: %v", c.g, err)
		}
	}
	if got := tc.Grants(); len(got) != 0 || tc.FeatureLevel() != FeatureBase {
		t.Error(got, tc.FeatureLevel())
	}
	if g, err := tc.DeleteGrant(t.Context(), 1); g != nil || err != nil {
		t.Error(g, err)
	}
}

// Grants name by id: they are there after a start, follow renames, lose columns that are
// dropped, and go with their table, whose name another table may get, and database.
func TestGrantsGoWithTheirObject(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	tc.mustCreateDatabase(t, "e")
	spec := Spec{Name: "t", Columns: cols("a", "INT", "b", "INT", "c", "INT")}
	table := tc.mustCreate(t, "d", spec)
	tc.mustGrant(t, millrace.Grant{Principal: "user:all", Verbs: readVerb})
	tc.mustGrant(t, millrace.Grant{Principal: "user:d", Database: 1, Verbs: readVerb})
	tc.mustGrant(t, millrace.Grant{Principal: "user:e", Database: 2, Verbs: readVerb})
	tc.mustGrant(t, millrace.Grant{Principal: "user:t", Database: 1, Table: table.ID, Verbs: readVerb})
	tc.mustGrant(t, millrace.Grant{Principal: "user:ab", Database: 1, Table: table.ID, Verbs: readVerb, Columns: []millrace.ColumnID{2, 1, 2}})
	tc.mustGrant(t, millrace.Grant{Principal: "user:b", Database: 1, Table: table.ID, Verbs: readVerb, Columns: []millrace.ColumnID{2}})
	held := tc.Grants()
	want := func(text string) {
		t.Helper()
		for range 2 {
			var got []string
			for _, g := range tc.Grants() {
				got = append(got, fmt.Sprint(g.Principal[5:], g.Columns))
			}
			if strings.Join(got, " ") != text {
				t.Errorf("%s, want %s", got, text)
			}
			tc.reopen(t)
		}
	}
	want("all[] d[] e[] t[] ab[1 2] b[2]")
	if _, err := tc.AlterTable(t.Context(), table.Path, steps(t, `[{"op":"rename_column","name":"a","to":"z"},{"op":"drop_column","name":"b"}]`), nil); err != nil {
		t.Fatal(err)
	}
	want("all[] d[] e[] t[] ab[1]")
	if _, err := tc.DropTable(t.Context(), table.Path, false, false); err != nil {
		t.Fatal(err)
	}
	tc.mustCreate(t, "d", spec)
	want("all[] d[] e[]")
	if _, err := tc.DropDatabase(t.Context(), "d", true); err != nil {
		t.Fatal(err)
	}
	want("all[] e[]")
	if len(held) != 6 || !slices.Equal(held[4].Columns, []millrace.ColumnID{1, 2}) || tc.FeatureLevel() != FeatureGrants {
		t.Error(held, tc.FeatureLevel())
	}
	if g := tc.mustGrant(t, millrace.Grant{Principal: "user:new", Verbs: readVerb}); g.ID != 7 || g.CreatedAt != testTime {
		t.Errorf("%+v", g)
	}
}

// There is a bound to how many there are.
func TestGrantsBound(t *testing.T) {
	tc := openMem(t)
	s := tc.current.Load().edit()
	for i := range MaxGrants {
		s.grants = append(s.grants, &millrace.Grant{ID: millrace.GrantID(i + 1), Principal: fmt.Sprint("user:", i), Verbs: readVerb})
	}
	tc.current.Store(s)
	if _, _, err := tc.CreateGrant(t.Context(), millrace.Grant{Principal: "user:x", Verbs: readVerb}); !errs.Is(err, errs.TooLarge) {
		t.Error(err)
	}
	if g, created, err := tc.CreateGrant(t.Context(), millrace.Grant{Principal: "user:7", Verbs: readVerb}); err != nil || created || g.ID != 8 {
		t.Error(g, created, err)
	}
}

// Who is admin of a table, or of a database and so of the tables in it, can use up what there
// is for these, and leaves the others theirs.
func TestGrantsBoundOfObjects(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	tc.mustCreateDatabase(t, "e")
	table := tc.mustCreate(t, "d", Spec{Name: "t", Columns: cols("a", "INT")})
	other := tc.mustCreate(t, "d", Spec{Name: "u", Columns: cols("a", "INT")})
	fill := func(n int, db millrace.DatabaseID, table millrace.TableID) {
		s := tc.current.Load().edit()
		for i := range n {
			id := s.head.NextGrant + millrace.GrantID(i) + 1000
			s.grants = append(s.grants, &millrace.Grant{ID: id, Principal: fmt.Sprint("user:", id), Database: db, Table: table, Verbs: readVerb})
		}
		s.head.NextGrant += millrace.GrantID(n) + 1000
		tc.current.Store(s)
	}
	grant := func(db millrace.DatabaseID, table millrace.TableID) error {
		_, _, err := tc.CreateGrant(t.Context(), millrace.Grant{Principal: "user:x", Database: db, Table: table, Verbs: readVerb})
		return err
	}
	fill(MaxTableGrants-1, 1, table.ID)
	if err := grant(1, table.ID); err != nil {
		t.Error(err)
	}
	if _, _, err := tc.CreateGrant(t.Context(), millrace.Grant{Principal: "user:y", Database: 1, Table: table.ID, Verbs: readVerb}); !errs.Is(err, errs.TooLarge) {
		t.Error(err)
	}
	for _, err := range []error{grant(1, table.ID), grant(1, other.ID), grant(1, 0), grant(0, 0)} {
		if err != nil {
			t.Error(err)
		}
	}
	fill(MaxDatabaseGrants-len(tc.Grants())+1, 1, other.ID) // of one on everything
	for _, of := range []millrace.TableID{0, table.ID, other.ID} {
		_, _, err := tc.CreateGrant(t.Context(), millrace.Grant{Principal: "user:y", Database: 1, Table: of, Verbs: readVerb})
		if !errs.Is(err, errs.TooLarge) {
			t.Error(err)
		}
	}
	for _, err := range []error{grant(2, 0), grant(0, 0)} {
		if err != nil {
			t.Error(err)
		}
	}
}

// A database is found by its id as by its name, whatever has been done to it.
func TestDatabasesByID(t *testing.T) {
	tc := openMem(t)
	check := func() {
		t.Helper()
		entries, _, err := tc.kv.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := loadSnapshot(entries)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*snapshot{tc.current.Load(), loaded} {
			if len(s.byID) != len(s.databases) {
				t.Errorf("%d databases by id, %d in all", len(s.byID), len(s.databases))
			}
			for _, d := range s.databases {
				if s.byID[d.ID] != d || s.byName[fold(d.Name)] != d {
					t.Errorf("database %d, %q, is another by id or name", d.ID, d.Name)
				}
			}
		}
	}
	for _, name := range []string{"d", "e", "f"} {
		tc.mustCreateDatabase(t, name)
	}
	tc.mustCreate(t, "e", Spec{Name: "t", Columns: cols("a", "INT")})
	check()
	if _, err := tc.DropDatabase(t.Context(), "e", true); err != nil {
		t.Fatal(err)
	}
	check()
}

// Functions of Changed are told of grants, those too that go with a table.
func TestGrantsChanged(t *testing.T) {
	tc := openMem(t)
	told := make(chan Changes, 10)
	tc.Changed(func(ch Changes) { told <- ch })
	tc.mustCreateDatabase(t, "d")
	table := tc.mustCreate(t, "d", Spec{Name: "t", Columns: cols("a", "INT")})
	if ch := <-told; ch.Grants {
		t.Error("told of grants when a table was made")
	}
	tc.mustGrant(t, millrace.Grant{Principal: "user:x", Database: 1, Table: table.ID, Verbs: readVerb})
	if ch := <-told; !ch.Grants {
		t.Error("not told of a grant")
	}
	if _, err := tc.DropTable(t.Context(), table.Path, false, false); err != nil {
		t.Fatal(err)
	}
	if ch := <-told; !ch.Grants || len(ch.Dropped) != 1 {
		t.Error("not told of a grant that went with its table")
	}
}

// Grants that make no sense are damage; verbs that are not known are of a newer release.
func TestGrantsDamaged(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	tc.mustGrant(t, millrace.Grant{Principal: "user:x", Database: 1, Verbs: readVerb})
	entries, _, err := tc.kv.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(entries, func(e Entry) bool { return strings.HasPrefix(e.Key, prefixGrant) })
	for text, code := range map[string]errs.Code{
		`{"id":1,"principal":"user:x","database_id":1,"verbs":["read"]}`:                              "",
		`{"id":2,"principal":"user:x","database_id":1,"verbs":["read"]}`:                              errs.CorruptData,
		`{"id":1,"principal":"x","database_id":1,"verbs":["read"]}`:                                   errs.CorruptData,
		`{"id":1,"principal":"user: x","database_id":1,"verbs":["read"]}`:                             "", // was taken once
		`{"id":1,"principal":"user:x","database_id":2,"verbs":["read"]}`:                              errs.CorruptData,
		`{"id":1,"principal":"user:x","database_id":1,"table_id":1,"verbs":["read"]}`:                 errs.CorruptData,
		`{"id":1,"principal":"user:x","database_id":1,"verbs":[]}`:                                    errs.CorruptData,
		`{"id":1,"principal":"user:x","database_id":1,"verbs":["fly"]}`:                               errs.NotImplemented,
		`{"id":1,"principal":"user:x","database_id":1,"verbs":["read"],"columns":[1]}`:                errs.CorruptData,
		`{"id":1,"principal":"user:x","database_id":1,"table_id":1,"verbs":["read"],"columns":[2,1]}`: errs.CorruptData,
		`{`: errs.CorruptData,
	} {
		damaged := slices.Clone(entries)
		damaged[at].Value = []byte(text)
		if _, err := loadSnapshot(damaged); errs.CodeOf(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
}
