package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

func TestMain(m *testing.M) {
	// Pebble leaves this one behind when Open or Close meets a failing disk.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*ConcurrencyLimitScheduler).periodicGranter"))
}

var testTime = time.Date(2026, 11, 29, 10, 0, 0, 123456000, time.UTC)

// testCatalog is a catalog with a clock that the test moves.
type testCatalog struct {
	*Catalog

	fs  vfs.FS
	now time.Time
}

func openOn(t testing.TB, fs vfs.FS) *testCatalog {
	t.Helper()
	tc := &testCatalog{fs: fs, now: testTime}
	tc.open(t)
	return tc
}

func openMem(t testing.TB) *testCatalog { return openOn(t, vfs.NewMem()) }

func (tc *testCatalog) open(t testing.TB) {
	t.Helper()
	c, err := Open(t.Context(), Options{Dir: "data/catalog", FS: tc.fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return tc.now }})
	if err != nil {
		t.Fatal(err)
	}
	tc.Catalog = c
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (tc *testCatalog) reopen(t testing.TB) {
	t.Helper()
	if err := tc.Close(); err != nil {
		t.Fatal(err)
	}
	tc.open(t)
}

func (tc *testCatalog) mustCreateDatabase(t testing.TB, name string) Database {
	t.Helper()
	d, err := tc.CreateDatabase(t.Context(), name, "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (tc *testCatalog) mustCreate(t testing.TB, db string, spec Spec) *millrace.Table {
	t.Helper()
	table, created, err := tc.CreateTable(t.Context(), db, spec, false)
	if err != nil || !created {
		t.Fatalf("CreateTable(%s.%s) = %v, %v", db, spec.Name, created, err)
	}
	return table
}

func cols(nameTypes ...string) []ColumnSpec {
	var out []ColumnSpec
	for i := 0; i < len(nameTypes); i += 2 {
		out = append(out, ColumnSpec{Name: nameTypes[i], Type: nameTypes[i+1]})
	}
	return out
}

func keyed(name string, buckets int) Spec {
	return Spec{Name: name, Columns: cols("id", "BIGINT", "v", "STRING"), PrimaryKey: []string{"id"}, Buckets: &buckets}
}

// describe is everything that a reader of a catalog can see, for comparisons.
func describe(t testing.TB, c *Catalog) map[string]any {
	t.Helper()
	out := map[string]any{"cluster": c.ClusterID(), "shards": c.Shards(), "level": c.FeatureLevel(), "revision": c.Revision()}
	dbs, _, err := c.Databases(t.Context(), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	out["databases"] = dbs
	for _, d := range dbs {
		tables, _, err := c.Tables(t.Context(), d.Name, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			schemas, err := c.Schemas(t.Context(), table.ID)
			if err != nil {
				t.Fatal(err)
			}
			partitions, err := c.Partitions(t.Context(), table.ID)
			if err != nil {
				t.Fatal(err)
			}
			out[table.Path.String()] = []any{table, schemas, slices.Clone(partitions), c.current.Load().nextIDs[table.ID]}
		}
	}
	return out
}

// A table is found by path and id and in lists, with exactly what its spec said,
// and everything is the same after the catalog is opened again.
func TestCreateAndReopen(t *testing.T) {
	tc := openMem(t)
	db, err := tc.CreateDatabase(t.Context(), "retail", "shops")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Database{ID: 1, Name: "retail", Comment: "shops", CreatedAt: testTime}); db != want {
		t.Errorf("database %+v, want %+v", db, want)
	}
	yes, no, three := true, false, 3
	got := tc.mustCreate(t, "retail", Spec{
		Name: "orders",
		Columns: []ColumnSpec{
			{Name: "region", Type: "string", Comment: "ISO"},
			{Name: "id", Type: "BIGINT", Nullable: &no},
			{Name: "lines", Type: "ARRAY<ROW<sku STRING, n INT NOT NULL>>", Nullable: &yes},
			{Name: "tags", Type: "MAP<STRING, DECIMAL(10,2)>"},
			{Name: "at", Type: "TIMESTAMP_LTZ"},
		},
		PrimaryKey: []string{"region", "id"}, BucketKey: []string{"region"}, Buckets: &three,
		Properties: map[string]string{"table.log.ttl": "168h", "table.changelog.image": "full", "owner": "team-a", "bucket.num": "3", "bucket.key": " region"},
		Comment:    "orders of shops",
	})
	row := millrace.DataType{Kind: millrace.Row, Children: []millrace.Column{
		{ID: 5, Name: "sku", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
		{ID: 6, Name: "n", Type: millrace.DataType{Kind: millrace.Int}},
	}}
	want := &millrace.Table{
		ID: 1, DatabaseID: 1, Path: millrace.TablePath{Database: "retail", Table: "orders"}, Kind: millrace.KeyedTable,
		Schema: &millrace.Schema{ID: 1, Columns: []millrace.Column{
			{ID: 1, Name: "region", Type: millrace.DataType{Kind: millrace.String}, Comment: "ISO"},
			{ID: 2, Name: "id", Type: millrace.DataType{Kind: millrace.BigInt}},
			{ID: 3, Name: "lines", Nullable: true, Type: millrace.DataType{Kind: millrace.Array, Children: []millrace.Column{
				{ID: 4, Name: "element", Type: row, Nullable: true},
			}}},
			{ID: 7, Name: "tags", Nullable: true, Type: millrace.DataType{Kind: millrace.Map, Children: []millrace.Column{
				{ID: 8, Name: "key", Type: millrace.DataType{Kind: millrace.String}},
				{ID: 9, Name: "value", Type: millrace.DataType{Kind: millrace.Decimal, Precision: 10, Scale: 2}, Nullable: true},
			}}},
			{ID: 10, Name: "at", Type: millrace.DataType{Kind: millrace.TimestampLTZ, Precision: 6}, Nullable: true},
		}},
		PrimaryKey: []millrace.ColumnID{1, 2}, BucketKey: []millrace.ColumnID{1}, Buckets: 3, Shards: []millrace.ShardID{0, 1, 2},
		Properties: map[string]string{"table.log.ttl": "168h", "table.changelog.image": "full", "owner": "team-a"},
		Comment:    "orders of shops", Version: 1, CreatedAt: testTime, LastColumnID: 10,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("table (-want +got):\n%s", d)
	}
	if byID, err := tc.TableByID(t.Context(), 1); err != nil || byID != got {
		t.Errorf("TableByID = %v, %v", byID, err)
	}
	if byPath, err := tc.Table(t.Context(), want.Path); err != nil || byPath != got {
		t.Errorf("Table = %v, %v", byPath, err)
	}
	if all := tc.AllTables(); len(all) != 1 || all[0] != got {
		t.Errorf("AllTables = %v", all)
	}

	before := describe(t, tc.Catalog)
	tc.reopen(t)
	if d := cmp.Diff(before, describe(t, tc.Catalog)); d != "" {
		t.Errorf("after reopening (-before +after):\n%s", d)
	}
}

// The bucket key is the primary key unless it is given; a log table has none
// unless it is given.
func TestBucketKeyDefaults(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	if k := tc.mustCreate(t, "d", keyed("k", 1)); !cmp.Equal(k.BucketKey, k.PrimaryKey) || k.Buckets != 1 {
		t.Errorf("keyed table has bucket key %v and %d buckets", k.BucketKey, k.Buckets)
	}
	l := tc.mustCreate(t, "d", Spec{Name: "l", Columns: cols("a", "INT", "b", "INT")})
	if l.BucketKey != nil || l.Kind != millrace.LogTable || l.Buckets != 1 || !l.Schema.Columns[0].Nullable {
		t.Errorf("log table %+v", l)
	}
	l = tc.mustCreate(t, "d", Spec{Name: "lk", Columns: cols("a", "INT", "b", "INT"), Properties: map[string]string{"bucket.key": "b,a", "bucket.num": "8"}})
	if !cmp.Equal(l.BucketKey, []millrace.ColumnID{2, 1}) || l.Buckets != 8 || l.Schema.Columns[0].Nullable || l.Properties != nil {
		t.Errorf("log table with a bucket key %+v", l)
	}
}

// Ids are never used again, not after a drop and not after a restart.
func TestIDsAreNotReused(t *testing.T) {
	tc := openMem(t)
	seenTables, seenDatabases := map[millrace.TableID]bool{}, map[millrace.DatabaseID]bool{}
	for round := range 3 {
		d := tc.mustCreateDatabase(t, "d")
		if seenDatabases[d.ID] {
			t.Fatalf("round %d: database id %d again", round, d.ID)
		}
		seenDatabases[d.ID] = true
		for range 2 {
			table := tc.mustCreate(t, "d", keyed("t", 1))
			if seenTables[table.ID] {
				t.Fatalf("round %d: table id %d again", round, table.ID)
			}
			seenTables[table.ID] = true
			if dropped, err := tc.DropTable(t.Context(), table.Path, false, false); err != nil || dropped.ID != table.ID {
				t.Fatalf("DropTable = %v, %v", dropped, err)
			}
		}
		if _, err := tc.DropDatabase(t.Context(), "d", false); err != nil {
			t.Fatal(err)
		}
		tc.reopen(t)
	}
}

// Each wrong change of databases and tables has its own code, and changes nothing.
func TestRefusedChanges(t *testing.T) {
	tc := openMem(t)
	ctx := t.Context()
	tc.mustCreateDatabase(t, "retail")
	tc.mustCreate(t, "retail", keyed("orders", 1))
	before := describe(t, tc.Catalog)
	path := func(db, table string) millrace.TablePath { return millrace.TablePath{Database: db, Table: table} }
	for name, c := range map[string]struct {
		want errs.Code
		do   func() error
	}{
		"database twice":             {errs.DatabaseAlreadyExists, func() error { _, err := tc.CreateDatabase(ctx, "retail", ""); return err }},
		"database in other case":     {errs.DatabaseAlreadyExists, func() error { _, err := tc.CreateDatabase(ctx, "Retail", ""); return err }},
		"database name":              {errs.InvalidName, func() error { _, err := tc.CreateDatabase(ctx, "../x", ""); return err }},
		"long database comment":      {errs.InvalidSchema, func() error { _, err := tc.CreateDatabase(ctx, "x", string(make([]byte, 1<<20))); return err }},
		"database with tables":       {errs.DatabaseNotEmpty, func() error { _, err := tc.DropDatabase(ctx, "retail", false); return err }},
		"drop no database":           {errs.DatabaseNotFound, func() error { _, err := tc.DropDatabase(ctx, "nope", true); return err }},
		"drop database, other case":  {errs.DatabaseNotFound, func() error { _, err := tc.DropDatabase(ctx, "RETAIL", true); return err }},
		"get no database":            {errs.DatabaseNotFound, func() error { _, err := tc.Database(ctx, "nope"); return err }},
		"table twice":                {errs.TableAlreadyExists, func() error { _, _, err := tc.CreateTable(ctx, "retail", keyed("orders", 1), false); return err }},
		"table in other case":        {errs.TableAlreadyExists, func() error { _, _, err := tc.CreateTable(ctx, "retail", keyed("ORDERS", 1), true); return err }},
		"table in no database":       {errs.DatabaseNotFound, func() error { _, _, err := tc.CreateTable(ctx, "nope", keyed("t", 1), true); return err }},
		"get no table":               {errs.TableNotFound, func() error { _, err := tc.Table(ctx, path("retail", "nope")); return err }},
		"get table, other case":      {errs.TableNotFound, func() error { _, err := tc.Table(ctx, path("retail", "Orders")); return err }},
		"get table of no database":   {errs.DatabaseNotFound, func() error { _, err := tc.Table(ctx, path("nope", "orders")); return err }},
		"get no table by id":         {errs.TableNotFound, func() error { _, err := tc.TableByID(ctx, 7); return err }},
		"schemas of no table":        {errs.TableNotFound, func() error { _, err := tc.Schemas(ctx, 7); return err }},
		"drop no table":              {errs.TableNotFound, func() error { _, err := tc.DropTable(ctx, path("retail", "nope"), false, false); return err }},
		"drop table of no database":  {errs.DatabaseNotFound, func() error { _, err := tc.DropTable(ctx, path("nope", "t"), true, false); return err }},
		"list tables of no database": {errs.DatabaseNotFound, func() error { _, _, err := tc.Tables(ctx, "nope", 0, ""); return err }},
		"bad limit":                  {errs.InvalidValue, func() error { _, _, err := tc.Databases(ctx, MaxPage+1, ""); return err }},
		"negative limit":             {errs.InvalidValue, func() error { _, _, err := tc.Tables(ctx, "retail", -1, ""); return err }},
		"bad token":                  {errs.InvalidValue, func() error { _, _, err := tc.Databases(ctx, 0, "§"); return err }},
	} {
		if got := errs.CodeOf(c.do()); got != c.want {
			t.Errorf("%s: %q, want %q (%v)", name, got, c.want, c.do())
		}
	}
	if table, created, err := tc.CreateTable(ctx, "retail", keyed("orders", 9), true); err != nil || created || table.Buckets != 1 {
		t.Errorf("if_not_exists: %v, %v, %v; want the table as it is", table, created, err)
	}
	if dropped, err := tc.DropTable(ctx, path("retail", "nope"), true, false); err != nil || dropped != nil {
		t.Errorf("if_exists: %v, %v", dropped, err)
	}
	if d := cmp.Diff(before, describe(t, tc.Catalog)); d != "" {
		t.Errorf("refused changes changed something:\n%s", d)
	}
}

// A cascading drop removes and returns exactly the tables of its database.
func TestCascade(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "a")
	tc.mustCreateDatabase(t, "b")
	a1, a2, b1 := tc.mustCreate(t, "a", keyed("t1", 1)), tc.mustCreate(t, "a", keyed("t2", 1)), tc.mustCreate(t, "b", keyed("t1", 1))
	dropped, err := tc.DropDatabase(t.Context(), "a", true)
	if err != nil || !cmp.Equal(dropped, []*millrace.Table{a1, a2}) {
		t.Fatalf("dropped %v, %v", dropped, err)
	}
	for range 2 {
		if all := tc.AllTables(); len(all) != 1 || !cmp.Equal(all[0], b1) {
			t.Errorf("tables left: %v", all)
		}
		tc.reopen(t)
	}
}

// Pages of any size, put together, are the list; one that is dropped or added
// between two pages moves nothing else.
func TestPages(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	for i := range 10 {
		tc.mustCreate(t, "d", keyed(fmt.Sprintf("t%02d", i*10), 1))
	}
	read := func(limit int, between func()) (names []string) {
		token := ""
		for {
			page, next, err := tc.Tables(t.Context(), "d", limit, token)
			if err != nil || len(page) > limit {
				t.Fatalf("page of %d: %d tables, %v", limit, len(page), err)
			}
			for _, table := range page {
				names = append(names, table.Path.Table)
			}
			if next == "" {
				return names
			}
			token = next
			between()
			between = func() {}
		}
	}
	all := read(MaxPage, func() {})
	for _, limit := range []int{1, 2, 3, 5, 9, 10, 11} {
		if got := read(limit, func() {}); !cmp.Equal(got, all) {
			t.Errorf("pages of %d: %v, want %v", limit, got, all)
		}
	}
	got := read(3, func() {
		// The last name of the first page goes, and one that sorts before it comes.
		if _, err := tc.DropTable(t.Context(), millrace.TablePath{Database: "d", Table: "t20"}, false, false); err != nil {
			t.Fatal(err)
		}
		tc.mustCreate(t, "d", keyed("t15", 1))
	})
	if !cmp.Equal(got, all) {
		t.Errorf("pages during a change: %v, want %v", got, all)
	}
}

// The buckets of a table rotate over the shards, tables go on where the one before
// ended, and what is stored stays when the number of shards grows.
func TestShardRotation(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	for i, c := range []struct {
		buckets int
		want    []millrace.ShardID
	}{
		{1, []millrace.ShardID{0}},
		{3, []millrace.ShardID{1, 2, 3}},
		{6, []millrace.ShardID{0, 1, 2, 3, 0, 1}},
		{1, []millrace.ShardID{2}},
	} {
		table := tc.mustCreate(t, "d", keyed(fmt.Sprint("t", i), c.buckets))
		if !cmp.Equal(table.Shards, c.want) {
			t.Errorf("table %d: shards %v, want %v", i, table.Shards, c.want)
		}
	}
	opts := Options{Dir: "data/catalog", FS: tc.fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }}
	if err := tc.Close(); err != nil {
		t.Fatal(err)
	}
	opts.Shards = 3
	if _, err := Open(context.Background(), opts); errs.CodeOf(err) != errs.InvalidRequest {
		t.Errorf("shrinking to 3 shards: %v", err)
	}
	opts.Shards = 6
	c, err := Open(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if c.Shards() != 6 {
		t.Errorf("%d shards", c.Shards())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	tc.open(t)
	if tc.Shards() != 6 {
		t.Errorf("%d shards after reopening", tc.Shards())
	}
	if table := tc.mustCreate(t, "d", keyed("wide", 6)); !cmp.Equal(table.Shards, []millrace.ShardID{3, 4, 5, 0, 1, 2}) {
		t.Errorf("shards of a table after growth: %v", table.Shards)
	}
	if old, _ := tc.Table(t.Context(), millrace.TablePath{Database: "d", Table: "t2"}); !cmp.Equal(old.Shards, []millrace.ShardID{0, 1, 2, 3, 0, 1}) {
		t.Errorf("shards of an old table after growth: %v", old.Shards)
	}
}
