package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// model is what a catalog should hold: databases of tables, by name.
type model struct {
	t             *rapid.T
	fs            *vfs.MemFS
	c             *Catalog
	follower      *Catalog // of another process, as it were: it only follows commits
	dbs           map[string]map[string]*modelTable
	last          millrace.TableID
	lastPartition millrace.PartitionID
	grants        map[millrace.GrantID]*modelGrant
	lastGrant     millrace.GrantID
}

// modelGrant is a grant on a table, on columns of it or on its database.
type modelGrant struct {
	db      map[string]*modelTable
	table   *modelTable // nil: on the database
	columns []int
}

// modelTable is a table whose columns are INT or BIGINT, all but its keys and the
// auto-increment column nullable ones that come and go.
type modelTable struct {
	id         millrace.TableID
	version    int64
	schema     millrace.SchemaID
	columns    []string // "id name type", in order
	lastColumn int
	nextID     int64
	partitions map[string]modelPartition // nil: not partitioned
}

type modelPartition struct {
	id    millrace.PartitionID
	state millrace.PartitionState
}

func (m *model) open() {
	c, err := Open(context.Background(), Options{Dir: "catalog", FS: m.fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	if err != nil {
		m.t.Fatal(err)
	}
	m.c = c
	m.follower, err = OpenKV(context.Background(), sharedKV{c.kv}, Options{Logger: slog.New(slog.DiscardHandler), Clock: c.clock})
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) close() {
	if err := errors.Join(m.follower.Close(), m.c.Close()); err != nil {
		m.t.Fatal(err)
	}
}

// sharedKV is a KV that somebody else closes.
type sharedKV struct{ KV }

func (sharedKV) Close() error { return nil }

func (m *model) wantCode(err error, want errs.Code) {
	if got := errs.CodeOf(err); got != want {
		m.t.Fatalf("%q (%v), want %q", got, err, want)
	}
}

// find is the table with a path, or the code of its absence.
func (m *model) find(path millrace.TablePath) (*modelTable, errs.Code) {
	tables, ok := m.dbs[path.Database]
	if !ok {
		return nil, errs.DatabaseNotFound
	}
	if t := tables[path.Table]; t != nil {
		return t, ""
	}
	return nil, errs.TableNotFound
}

// pick draws one of the tables that there are, if there are any.
func (m *model) pick(t *rapid.T) (millrace.TablePath, *modelTable) {
	var paths []millrace.TablePath
	for _, db := range slices.Sorted(maps.Keys(m.dbs)) {
		for _, table := range slices.Sorted(maps.Keys(m.dbs[db])) {
			paths = append(paths, millrace.TablePath{Database: db, Table: table})
		}
	}
	if len(paths) == 0 {
		t.Skip("no tables")
	}
	path := rapid.SampledFrom(paths).Draw(t, "path")
	return path, m.dbs[path.Database][path.Table]
}

// pickPartition draws one of the partitions that there are, if there are any.
func (m *model) pickPartition(t *rapid.T) (*modelTable, string) {
	_, table := m.pick(t)
	if len(table.partitions) == 0 {
		t.Skip("no partitions")
	}
	return table, rapid.SampledFrom(slices.Sorted(maps.Keys(table.partitions))).Draw(t, "partition")
}

// Random changes, restarts and crashes leave exactly what the model holds: every
// table and partition keeps the id it got, which no other one had before, every
// column its id through renames and widening, and ids are given once.
func TestModel(t *testing.T) {
	names := []string{"a", "b", "c", "orders", "Orders"}
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, fs: vfs.NewCrashableMem(), dbs: map[string]map[string]*modelTable{}, grants: map[millrace.GrantID]*modelGrant{}}
		m.open()
		defer m.close()
		name := rapid.SampledFrom(names)
		ctx := context.Background()
		actions := map[string]func(*rapid.T){
			"create database": func(t *rapid.T) {
				db := name.Draw(t, "db")
				_, err := m.c.CreateDatabase(ctx, db, "")
				m.wantCode(err, clashCode(m.dbs, db, errs.DatabaseAlreadyExists))
				if err == nil {
					m.dbs[db] = map[string]*modelTable{}
				}
			},
			"drop database": func(t *rapid.T) {
				db, cascade := name.Draw(t, "db"), rapid.Bool().Draw(t, "cascade")
				tables, ok := m.dbs[db]
				dropped, err := m.c.DropDatabase(ctx, db, cascade)
				switch {
				case !ok:
					m.wantCode(err, errs.DatabaseNotFound)
				case len(tables) > 0 && !cascade:
					m.wantCode(err, errs.DatabaseNotEmpty)
				case err != nil || len(dropped) != len(tables):
					t.Fatalf("dropped %d of %d tables, %v", len(dropped), len(tables), err)
				default:
					delete(m.dbs, db)
				}
			},
			"create table": func(t *rapid.T) { m.createTable(t, name.Draw(t, "db"), name.Draw(t, "table")) },
			"drop table": func(t *rapid.T) {
				path := millrace.TablePath{Database: name.Draw(t, "db"), Table: name.Draw(t, "table")}
				_, want := m.find(path)
				_, err := m.c.DropTable(ctx, path, false, false)
				m.wantCode(err, want)
				if err == nil {
					delete(m.dbs[path.Database], path.Table)
				}
			},
			"alter": m.alter,
			"grant": m.grant,
			"take back": func(t *rapid.T) {
				if m.lastGrant == 0 {
					t.Skip("no grant")
				}
				id := millrace.GrantID(rapid.IntRange(1, int(m.lastGrant)+1).Draw(t, "grant"))
				g, err := m.c.DeleteGrant(ctx, id)
				if _, there := m.grants[id]; err != nil || there != (g != nil) {
					t.Fatal(g, err)
				}
				delete(m.grants, id)
			},
			"ensure partition": m.ensurePartition,
			"move partition":   m.movePartition,
			"remove partition": m.removePartition,
			"reserve ids": func(t *rapid.T) {
				_, table := m.pick(t)
				n := rapid.IntRange(1, 5).Draw(t, "n")
				first, err := m.c.ReserveIDs(ctx, table.id, n)
				if err != nil || first != table.nextID {
					t.Fatalf("ids from %d, %v, want %d", first, err, table.nextID)
				}
				table.nextID += int64(n)
			},
			"restart": func(*rapid.T) {
				m.close()
				m.open()
			},
			"crash": func(t *rapid.T) {
				percent := rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "kept")
				seed := rapid.Uint64().Draw(t, "seed")
				crashed := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 0))})
				m.close()
				m.fs = crashed
				m.open()
			},
			"": m.check,
		}
		t.Repeat(actions)
	})
}

// clashCode is the code of a creation beside what is there.
func clashCode[V any](there map[string]V, name string, twice errs.Code) errs.Code {
	for other := range there {
		if fold(other) == fold(name) {
			return twice
		}
	}
	return ""
}

func (m *model) createTable(t *rapid.T, db, name string) {
	buckets, partitioned := rapid.IntRange(1, 9).Draw(t, "buckets"), rapid.Bool().Draw(t, "partitioned")
	spec := Spec{
		Name: name, Buckets: &buckets, PrimaryKey: []string{"id", "p"},
		Columns: append(cols("id", "INT", "p", "INT"), ColumnSpec{Name: "auto", Type: "INT", AutoIncrement: true}),
	}
	if partitioned {
		spec.PartitionBy = []string{"p"}
	}
	tables, ok := m.dbs[db]
	got, _, err := m.c.CreateTable(context.Background(), db, spec, false)
	if !ok {
		m.wantCode(err, errs.DatabaseNotFound)
		return
	}
	m.wantCode(err, clashCode(tables, name, errs.TableAlreadyExists))
	if err != nil {
		return
	}
	if got.ID <= m.last {
		t.Fatalf("table id %d after %d", got.ID, m.last)
	}
	m.last = got.ID
	tables[name] = &modelTable{
		id: got.ID, version: 1, schema: 1, columns: []string{"1 id INT", "2 p INT", "3 auto INT"}, lastColumn: 3, nextID: 1,
	}
	if partitioned {
		tables[name].partitions = map[string]modelPartition{}
	}
}

// alter draws some steps and does the same to the model's columns, on a copy, so
// that an ALTER that is refused leaves nothing.
func (m *model) alter(t *rapid.T) {
	path, table := m.pick(t)
	next := *table
	next.columns = slices.Clone(table.columns)
	want := errs.Code("")
	var alter []AlterStep
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		step, code := next.step(t)
		alter = append(alter, step)
		if want = code; want != "" {
			break
		}
	}
	version := table.version
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		version, want = version+1, errs.VersionMismatch
	}
	_, err := m.c.AlterTable(context.Background(), path, alter, &version)
	m.wantCode(err, want)
	if err == nil && !slices.Equal(next.columns, table.columns) {
		next.version++
		next.schema++
		*table = next
	}
}

// step draws a step, applies it to the model and returns the code that it gets.
func (mt *modelTable) step(t *rapid.T) (AlterStep, errs.Code) {
	free := []string{"x", "y", "X"}
	name, to := rapid.SampledFrom(append(free, "id", "p", "auto")).Draw(t, "column"), rapid.SampledFrom(free).Draw(t, "to")
	i := slices.IndexFunc(mt.columns, func(c string) bool { return strings.Fields(c)[1] == name })
	clashes := func(name string, but int) bool {
		for j, c := range mt.columns {
			if j != but && fold(strings.Fields(c)[1]) == fold(name) {
				return true
			}
		}
		return false
	}
	switch kind := rapid.SampledFrom([]string{AddColumn, AddColumn, RenameColumn, DropColumn, AlterType}).Draw(t, "step"); kind {
	case AddColumn:
		step := AlterStep{Op: kind, Column: &ColumnSpec{Name: to, Type: "INT"}}
		at := len(mt.columns)
		if rapid.Bool().Draw(t, "first") {
			step.First, at = true, 0
		} else if i >= 0 && rapid.Bool().Draw(t, "after") {
			step.After, at = name, i+1
		}
		if clashes(to, -1) {
			return step, errs.InvalidSchema
		}
		mt.lastColumn++
		mt.columns = slices.Insert(mt.columns, at, fmt.Sprintf("%d %s INT", mt.lastColumn, to))
		return step, ""
	case RenameColumn:
		step := AlterStep{Op: kind, Name: name, To: to}
		switch {
		case i < 0:
			return step, errs.UnknownColumn
		case name == "p" && mt.partitions != nil, clashes(to, i):
			return step, errs.InvalidSchema
		}
		// The primary key is found by its names here, so it keeps them.
		if name == "id" || name == "p" || name == "auto" {
			return AlterStep{Op: SetComment, Comment: new("")}, ""
		}
		f := strings.Fields(mt.columns[i])
		mt.columns[i] = f[0] + " " + to + " " + f[2]
		return step, ""
	case DropColumn:
		step := AlterStep{Op: kind, Name: name}
		switch {
		case i < 0:
			return step, errs.UnknownColumn
		case name == "id" || name == "p" || name == "auto":
			return step, errs.InvalidSchema
		}
		mt.columns = slices.Delete(mt.columns, i, i+1)
		return step, ""
	default:
		step := AlterStep{Op: kind, Name: name, Type: rapid.SampledFrom([]string{"INT", "BIGINT"}).Draw(t, "type")}
		if i < 0 {
			return step, errs.UnknownColumn
		}
		f := strings.Fields(mt.columns[i])
		if step.Type != f[2] && (f[2] == "BIGINT" || name == "id" || name == "p") {
			return step, errs.InvalidSchema
		}
		mt.columns[i] = f[0] + " " + f[1] + " " + step.Type
		return step, ""
	}
}

// grant makes a grant on a database, a table or some of its columns.
func (m *model) grant(t *rapid.T) {
	path, table := m.pick(t)
	got, err := m.c.Table(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	g := millrace.Grant{Principal: fmt.Sprintf("user:%d", m.lastGrant), Database: got.DatabaseID, Verbs: millrace.VerbsOf(millrace.VerbRead)}
	mg := &modelGrant{db: m.dbs[path.Database]}
	switch rapid.IntRange(0, 2).Draw(t, "on") {
	case 0:
		mg.table, g.Table = table, table.id
	case 1:
		mg.table, g.Table = table, table.id
		for _, c := range got.Schema.Columns {
			if rapid.Bool().Draw(t, "column") {
				g.Columns = append(g.Columns, c.ID)
				mg.columns = append(mg.columns, int(c.ID))
			}
		}
	}
	slices.Sort(mg.columns)
	made, created, err := m.c.CreateGrant(context.Background(), g)
	if err != nil || !created || made.ID <= m.lastGrant {
		t.Fatal(made, err)
	}
	if again, created, err := m.c.CreateGrant(context.Background(), g); err != nil || created || !reflect.DeepEqual(again, made) {
		t.Fatal(again, err)
	}
	m.lastGrant = made.ID
	m.grants[made.ID] = mg
}

// checkGrants compares the grants, of which those on what was dropped are gone.
func (m *model) checkGrants(t *rapid.T) {
	var want []string
	for _, id := range slices.Sorted(maps.Keys(m.grants)) {
		g := m.grants[id]
		there := false
		for _, db := range m.dbs {
			there = there || reflect.ValueOf(db).Pointer() == reflect.ValueOf(g.db).Pointer() && (g.table == nil || slices.Contains(slices.Collect(maps.Values(db)), g.table))
		}
		left := []int{}
		for _, c := range g.columns {
			if slices.ContainsFunc(g.table.columns, func(s string) bool { return strings.HasPrefix(s, fmt.Sprint(c, " ")) }) {
				left = append(left, c)
			}
		}
		if !there || len(g.columns) > 0 && len(left) == 0 {
			delete(m.grants, id)
			continue
		}
		table := millrace.TableID(0)
		if g.table != nil {
			table = g.table.id
		}
		want = append(want, fmt.Sprint(id, table, left))
	}
	var got []string
	for _, g := range m.c.Grants() {
		got = append(got, fmt.Sprint(g.ID, g.Table, append([]millrace.ColumnID{}, g.Columns...)))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("grants %v, want %v", got, want)
	}
}

func (m *model) ensurePartition(t *rapid.T) {
	_, table := m.pick(t)
	value := rapid.SampledFrom([]string{"1", "2", "2.0", "3"}).Draw(t, "value")
	got, created, err := m.c.EnsurePartition(context.Background(), table.id, []string{value})
	if table.partitions == nil {
		m.wantCode(err, errs.WrongTableKind)
		return
	}
	name := "p=" + value[:1]
	there, ok := table.partitions[name]
	switch {
	case ok && there.state != millrace.PartitionOpen:
		m.wantCode(err, errs.PartitionExpired)
	case err != nil || got.Name != name || created == ok || ok && got.ID != there.id:
		t.Fatalf("%+v, %v, %v beside %+v", got, created, err, there)
	case !ok:
		if got.ID <= m.lastPartition {
			t.Fatalf("partition id %d after %d", got.ID, m.lastPartition)
		}
		m.lastPartition = got.ID
		table.partitions[name] = modelPartition{id: got.ID, state: got.State}
	}
}

func (m *model) movePartition(t *rapid.T) {
	table, name := m.pickPartition(t)
	p := table.partitions[name]
	state := rapid.SampledFrom(partitionStates).Draw(t, "state")
	_, err := m.c.SetPartitionState(context.Background(), table.id, p.id, state)
	if slices.Index(partitionStates, state) <= slices.Index(partitionStates, p.state) {
		m.wantCode(err, errs.InvalidValue)
		return
	}
	m.wantCode(err, "")
	table.partitions[name] = modelPartition{id: p.id, state: state}
}

func (m *model) removePartition(t *rapid.T) {
	table, name := m.pickPartition(t)
	got, err := m.c.RemovePartition(context.Background(), table.id, table.partitions[name].id)
	if err != nil || got.Name != name {
		t.Fatalf("%+v, %v", got, err)
	}
	delete(table.partitions, name)
}

func (m *model) check(t *rapid.T) {
	m.checkCatalog(t)
	if err := m.follower.await(context.Background(), m.c.current.Load().headRevision); err != nil {
		t.Fatal(err)
	}
	own := m.c
	m.c = m.follower
	m.checkCatalog(t)
	m.c = own
	if a, b := m.follower.current.Load(), own.current.Load(); !reflect.DeepEqual(a.head, b.head) || !maps.Equal(a.nextIDs, b.nextIDs) {
		t.Fatalf("the follower has %+v %v, want %+v %v", a.head, a.nextIDs, b.head, b.nextIDs)
	}
}

func (m *model) checkCatalog(t *rapid.T) {
	ctx := context.Background()
	dbs, _, err := m.c.Databases(ctx, 0, "")
	if err != nil || len(dbs) != len(m.dbs) {
		t.Fatalf("%d databases, want %d, %v", len(dbs), len(m.dbs), err)
	}
	all := map[millrace.TableID]string{}
	for i, name := range slices.Sorted(maps.Keys(m.dbs)) {
		if dbs[i].Name != name {
			t.Fatalf("database %q, want %q", dbs[i].Name, name)
		}
		tables, _, err := m.c.Tables(ctx, name, 0, "")
		if err != nil || len(tables) != len(m.dbs[name]) {
			t.Fatalf("%d tables, want %d, %v", len(tables), len(m.dbs[name]), err)
		}
		for j, table := range slices.Sorted(maps.Keys(m.dbs[name])) {
			all[m.dbs[name][table].id] = name + "." + table
			m.checkTable(t, tables[j], name+"."+table, m.dbs[name][table])
		}
	}
	m.checkGrants(t)
	for _, table := range m.c.AllTables() {
		if all[table.ID] != table.Path.String() {
			t.Fatalf("AllTables has %s", fmt.Sprint(table.Path, table.ID))
		}
		delete(all, table.ID)
	}
	if len(all) > 0 {
		t.Fatalf("AllTables lacks %v", all)
	}
}

func (m *model) checkTable(t *rapid.T, got *millrace.Table, path string, want *modelTable) {
	var columns []string
	for _, c := range got.Schema.Columns {
		columns = append(columns, fmt.Sprintf("%d %s %s", c.ID, c.Name, c.Type))
	}
	if got.Path.String() != path || got.ID != want.id || got.Version != want.version || got.Schema.ID != want.schema || !slices.Equal(columns, want.columns) {
		t.Fatalf("%s with id %d, version %d, schema %d, %q\nwant %s: %+v", got.Path, got.ID, got.Version, got.Schema.ID, columns, path, want)
	}
	schemas, err := m.c.Schemas(context.Background(), got.ID)
	if err != nil || len(schemas) != int(want.schema) {
		t.Fatalf("%d schemas, %v, want %d", len(schemas), err, want.schema)
	}
	partitions, err := m.c.Partitions(context.Background(), got.ID)
	if err != nil || len(partitions) != len(want.partitions) {
		t.Fatalf("%d partitions, %v, want %d", len(partitions), err, len(want.partitions))
	}
	for i, name := range slices.Sorted(maps.Keys(want.partitions)) {
		p := partitions[i]
		byID, err := m.c.PartitionByID(context.Background(), got.ID, p.ID)
		if (modelPartition{p.ID, p.State}) != want.partitions[name] || p.Name != name || byID != p || err != nil || len(p.Shards) != got.Buckets {
			t.Fatalf("%+v, %v, want %s: %+v", p, err, name, want.partitions[name])
		}
	}
}
