package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// model is what a catalog should hold: databases to tables to ids.
type model struct {
	t    *rapid.T
	fs   *vfs.MemFS
	c    *Catalog
	dbs  map[string]map[string]millrace.TableID
	last millrace.TableID
}

func (m *model) open() {
	c, err := Open(context.Background(), Options{Dir: "catalog", FS: m.fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	if err != nil {
		m.t.Fatal(err)
	}
	m.c = c
}

func (m *model) wantCode(err error, want errs.Code) {
	if got := errs.CodeOf(err); got != want {
		m.t.Fatalf("%q (%v), want %q", got, err, want)
	}
}

// Random changes, restarts and crashes leave exactly what a map of maps holds, and
// every table keeps the id it got, which no other one had before.
func TestModel(t *testing.T) {
	names := []string{"a", "b", "c", "orders", "Orders"}
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, fs: vfs.NewCrashableMem(), dbs: map[string]map[string]millrace.TableID{}}
		m.open()
		defer func() { _ = m.c.Close() }()
		name := rapid.SampledFrom(names)
		ctx := context.Background()
		t.Repeat(map[string]func(*rapid.T){
			"create database": func(t *rapid.T) {
				db := name.Draw(t, "db")
				_, err := m.c.CreateDatabase(ctx, db, "")
				m.wantCode(err, clashCode(m.dbs, db, errs.DatabaseAlreadyExists))
				if err == nil {
					m.dbs[db] = map[string]millrace.TableID{}
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
			"create table": func(t *rapid.T) {
				db, table, buckets := name.Draw(t, "db"), name.Draw(t, "table"), rapid.IntRange(1, 9).Draw(t, "buckets")
				tables, ok := m.dbs[db]
				got, _, err := m.c.CreateTable(ctx, db, keyed(table, buckets), false)
				if !ok {
					m.wantCode(err, errs.DatabaseNotFound)
					return
				}
				m.wantCode(err, clashCode(tables, table, errs.TableAlreadyExists))
				if err == nil {
					if got.ID <= m.last {
						t.Fatalf("table id %d after %d", got.ID, m.last)
					}
					m.last = got.ID
					tables[table] = got.ID
				}
			},
			"drop table": func(t *rapid.T) {
				path := millrace.TablePath{Database: name.Draw(t, "db"), Table: name.Draw(t, "table")}
				want := errs.Code("")
				if tables, ok := m.dbs[path.Database]; !ok {
					want = errs.DatabaseNotFound
				} else if _, ok := tables[path.Table]; !ok {
					want = errs.TableNotFound
				}
				_, err := m.c.DropTable(ctx, path, false)
				m.wantCode(err, want)
				if err == nil {
					delete(m.dbs[path.Database], path.Table)
				}
			},
			"restart": func(t *rapid.T) {
				if err := m.c.Close(); err != nil {
					t.Fatal(err)
				}
				m.open()
			},
			"crash": func(t *rapid.T) {
				percent := rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "kept")
				seed := rapid.Uint64().Draw(t, "seed")
				crashed := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 0))})
				if err := m.c.Close(); err != nil {
					t.Fatal(err)
				}
				m.fs = crashed
				m.open()
			},
			"": m.check,
		})
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

func (m *model) check(t *rapid.T) {
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
			id := m.dbs[name][table]
			all[id] = name + "." + table
			if got := tables[j]; got.Path.String() != all[id] || got.ID != id {
				t.Fatalf("table %s with id %d, want %s with %d", got.Path, got.ID, all[id], id)
			}
		}
	}
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
