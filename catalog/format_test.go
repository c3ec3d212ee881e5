package catalog

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

var rewrite = flag.Bool("rewrite", false, "write the newest expected files anew; for a new format only")

// golden is where a release's store and its contents in words are.
type golden struct {
	dir, text string
}

func goldenFiles(version string) golden {
	dir := filepath.Join("testdata", "formats", version)
	return golden{dir: filepath.Join(dir, "catalog"), text: filepath.Join(dir, "catalog.txt")}
}

// newestGolden is the format that this release writes: value version and feature level.
const newestGolden = "v1-level6"

// The stores that releases left in testdata are opened by this one, with every key
// and value as they were written.
func TestGoldenStores(t *testing.T) {
	if *rewrite {
		writeGolden(t, goldenFiles(newestGolden))
	}
	for _, version := range []string{"v1", "v1-level2", "v1-level3", "v1-level4", "v1-level5", newestGolden} {
		g := goldenFiles(version)
		c := openGolden(t, g)
		got := dump(t, c)
		if *rewrite && version == newestGolden {
			if err := os.WriteFile(g.text, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(g.text)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got:\n%s\nwant:\n%s", version, got, want)
		}
		table, err := c.Table(t.Context(), millrace.TablePath{Database: "retail", Table: "orders"})
		if err != nil || table.Schema.Columns[1].Type.String() != "DECIMAL(12,2)" || len(table.Shards) != 6 || !isZero(table.Options) {
			t.Errorf("%s: %+v, %v", version, table, err)
		}
	}
}

func openGolden(t *testing.T, g golden) *Catalog {
	t.Helper()
	c, err := Open(t.Context(), Options{Dir: copyDir(t, g.dir), FS: vfs.Default, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A store of the first release can be gone on with: its tables are altered and get
// options, and a release that does not know that refuses it.
func TestOldStoreGoesOn(t *testing.T) {
	c := openGolden(t, goldenFiles("v1"))
	path := millrace.TablePath{Database: "retail", Table: "orders"}
	if c.FeatureLevel() != FeatureBase {
		t.Error(c.FeatureLevel())
	}
	got, err := c.AlterTable(t.Context(), path, steps(t, `[{"op":"add_column","column":{"name":"lines.element.price","type":"BIGINT"}},
		{"op":"set_properties","properties":{"table.log.ttl":"1d"}}]`), new(int64(1)))
	if err != nil || got.Options.LogTTL != 24*time.Hour || got.Properties["owner"] != "team-a" || got.LastColumnID != 8 || c.FeatureLevel() != FeatureTables {
		t.Errorf("%+v, %v", got, err)
	}
}

// What the stores with tables in full hold is read back as what they were told.
func TestGoldenTables(t *testing.T) {
	for version, next := range map[string]millrace.PartitionID{"v1-level2": 4, "v1-level3": 7, "v1-level4": 7, "v1-level5": 7, newestGolden: 7} {
		t.Run(version, func(t *testing.T) { checkGoldenTables(t, openGolden(t, goldenFiles(version)), next) })
	}
}

// What the store with lake tables that are to be removed holds is read back as what it
// was told, and a release that does not know of them refuses it.
func TestGoldenPurges(t *testing.T) {
	for version, level := range map[string]FeatureLevel{"v1-level4": FeaturePurges, "v1-level5": FeatureGrants, newestGolden: FeatureQuotas} {
		c := openGolden(t, goldenFiles(version))
		want := []*millrace.Purge{{Table: 8, Path: millrace.TablePath{Database: "retail", Table: "visits"}, DroppedAt: testTime}}
		if d := cmp.Diff(want, c.Purges()); d != "" || c.FeatureLevel() != level {
			t.Errorf("%s, level %d (-want +got)\n%s", version, c.FeatureLevel(), d)
		}
	}
}

// What the store with grants holds is read back as what they were.
func TestGoldenGrants(t *testing.T) {
	for _, version := range []string{"v1-level5", newestGolden} {
		checkGoldenGrants(t, openGolden(t, goldenFiles(version)))
	}
}

func checkGoldenGrants(t *testing.T, c *Catalog) {
	t.Helper()
	want := []*millrace.Grant{
		{ID: 1, Principal: "group:everyone", Verbs: millrace.VerbsOf(millrace.VerbDescribe), CreatedAt: testTime},
		{ID: 2, Principal: "user:ann", Database: 1, Verbs: millrace.VerbsOf(millrace.AllVerbs()...), CreatedAt: testTime},
		{ID: 4, Principal: "user:bob@example.com", Database: 1, Table: 2, Verbs: millrace.VerbsOf(millrace.VerbRead), Columns: []millrace.ColumnID{1, 2}, CreatedAt: testTime},
	}
	if d := cmp.Diff(want, c.Grants()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// What the store with quotas holds is read back as what they were.
func TestGoldenQuotas(t *testing.T) {
	c := openGolden(t, goldenFiles(newestGolden))
	want := []*millrace.Quota{
		{ID: 1, Principal: millrace.DefaultPrincipal, Limits: millrace.Limits{WriteRows: 100_000, WriteBytes: 64 << 20, ReadBytes: 256 << 20, Streams: 100}},
		{ID: 3, Principal: "user:ann", Limits: millrace.Limits{Streams: 7}},
	}
	if d := cmp.Diff(want, c.Quotas()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// What the stores with lake tables hold is read back as what they were told.
func TestGoldenLake(t *testing.T) {
	for version, level := range map[string]FeatureLevel{"v1-level3": FeatureLake, "v1-level4": FeaturePurges, "v1-level5": FeatureGrants, newestGolden: FeatureQuotas} {
		t.Run(version, func(t *testing.T) { checkGoldenLake(t, openGolden(t, goldenFiles(version)), level) })
	}
}

func checkGoldenLake(t *testing.T, c *Catalog, level FeatureLevel) {
	t.Helper()
	table, err := c.Table(t.Context(), millrace.TablePath{Database: "retail", Table: "shipments"})
	if err != nil {
		t.Fatal(err)
	}
	want := &millrace.LakeOptions{
		Format: millrace.Iceberg, Freshness: time.Minute, Expire: true, TargetFileBytes: 64 << 20, SystemColumns: true, Deletes: millrace.RewriteFiles,
	}
	if level >= FeatureGrants { // those before did not count how often tiering was off
		want.Gaps = 1
	}
	if d := cmp.Diff(want, table.Options.Lake); d != "" || c.FeatureLevel() != level {
		t.Errorf("level %d (-want +got)\n%s", c.FeatureLevel(), d)
	}
	partitions, err := c.Partitions(t.Context(), table.ID)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range partitions {
		got = append(got, fmt.Sprintf("%s %s dropping=%t gone=%t lake=%t %d", p.Name, p.State, p.Dropping, p.Gone, p.LakeOnly(), p.ExpiredAt.Unix()))
	}
	never := time.Time{}.Unix()
	if d := cmp.Diff([]string{
		fmt.Sprintf("day=2026-11-27 expired dropping=false gone=true lake=true %d", testTime.Unix()),
		fmt.Sprintf("day=2026-11-28 closing dropping=true gone=false lake=false %d", never),
		fmt.Sprintf("day=2026-11-29 open dropping=false gone=false lake=false %d", never),
	}, got); d != "" {
		t.Error(d)
	}
}

func checkGoldenTables(t *testing.T, c *Catalog, nextPartition millrace.PartitionID) {
	t.Helper()
	table, err := c.Table(t.Context(), millrace.TablePath{Database: "retail", Table: "stock"})
	if err != nil {
		t.Fatal(err)
	}
	want := millrace.TableOptions{
		LogTTL: 36 * time.Hour, MergeEngine: millrace.Aggregation, Deletes: millrace.DisableDeletes, SkipUnchanged: true, FixedPartitions: true,
		Aggregates:    map[millrace.ColumnID]millrace.Aggregate{3: {Function: millrace.AggSum}, 4: {Function: millrace.AggListagg, Delimiter: "; "}},
		AutoPartition: &millrace.AutoPartition{Column: 2, Unit: millrace.Daily, Zone: "Europe/Berlin", Precreate: 1, Retain: 30},
	}
	if d := cmp.Diff(want, table.Options); d != "" {
		t.Error(d)
	}
	if got := shape(table.Schema.Columns); got != "7 note STRING, 1 sku STRING!, 2 day DATE!, 3 amount BIGINT, 4 shops STRING, 6 seq BIGINT" || table.Properties["fields.amount.agg"] != "SUM" {
		t.Errorf("%s, %v", got, table.Properties)
	}
	partitions, err := c.Partitions(t.Context(), table.ID)
	if err != nil || names(partitions) != "day=2026-11-28 day=2026-11-30" || partitions[0].State != millrace.PartitionSealed || fmt.Sprint(partitions[1].Shards) != "[1 2]" {
		t.Errorf("%+v, %v", partitions, err)
	}
	if first, err := c.ReserveIDs(t.Context(), table.ID, 1); err != nil || first != 101 {
		t.Errorf("%d, %v", first, err)
	}
	if _, _, err := c.EnsurePartition(t.Context(), table.ID, []string{"2026-11-19"}); !errs.Is(err, errs.PartitionExpired) {
		t.Error(err)
	}
	if p, created, err := c.EnsurePartition(t.Context(), table.ID, []string{"2026-11-20"}); err != nil || !created || p.ID != nextPartition {
		t.Errorf("%+v, %v", p, err)
	}
	versioned, err := c.Table(t.Context(), millrace.TablePath{Database: "retail", Table: "prices"})
	if err != nil || versioned.Options.VersionColumn != 2 || versioned.Options.Image != millrace.WALImage || versioned.Options.LogTTL != -1 {
		t.Errorf("%+v, %v", versioned, err)
	}
}

// dump is what a store holds, one key a line.
func dump(t *testing.T, c *Catalog) string {
	t.Helper()
	entries, _, err := c.kv.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s @%d %s\n", e.Key, e.Revision, e.Value)
	}
	return b.String()
}

func writeGolden(t *testing.T, g golden) {
	t.Helper()
	if err := os.RemoveAll(g.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(g.dir), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := Open(t.Context(), Options{Dir: g.dir, FS: vfs.Default, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	if err != nil {
		t.Fatal(err)
	}
	tc := &testCatalog{Catalog: c}
	tc.mustCreateDatabase(t, "retail")
	tc.mustCreateDatabase(t, "gone")
	tc.mustCreate(t, "retail", keyed("dropped", 1))
	six := 6
	tc.mustCreate(t, "retail", Spec{
		Name: "orders", Buckets: &six, PrimaryKey: []string{"id"}, Comment: "orders of shops",
		Columns:    cols("id", "BIGINT", "total", "DECIMAL(12,2)", "lines", "ARRAY<ROW<sku STRING NOT NULL, n INT>>", "at", "TIMESTAMP_LTZ(3)"),
		Properties: map[string]string{"table.changelog.image": "FULL", "owner": "team-a"},
	})
	tc.mustCreate(t, "retail", Spec{Name: "clicks", Columns: cols("url", "STRING")})
	writeGoldenTables(t, tc)
	writeGoldenLake(t, tc)
	writeGoldenPurges(t, tc)
	writeGoldenGrants(t, tc)
	writeGoldenQuotas(t, tc)
	if _, err := tc.DropTable(t.Context(), millrace.TablePath{Database: "retail", Table: "dropped"}, false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.DropDatabase(t.Context(), "gone", false); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.SigningKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeGoldenGrants adds what came with feature level 5.
func writeGoldenGrants(t *testing.T, tc *testCatalog) {
	t.Helper()
	const read = millrace.VerbRead
	for _, g := range []millrace.Grant{
		{Principal: "group:everyone", Verbs: millrace.VerbsOf(millrace.VerbDescribe)},
		{Principal: "user:ann", Database: 1, Verbs: millrace.VerbsOf(millrace.AllVerbs()...)},
		{Principal: "group:taken-back", Database: 1, Table: 3, Verbs: millrace.VerbsOf(read)},
		{Principal: "user:bob@example.com", Database: 1, Table: 2, Verbs: millrace.VerbsOf(read), Columns: []millrace.ColumnID{2, 1}},
		{Principal: "user:bob@example.com", Database: 2, Verbs: millrace.VerbsOf(millrace.VerbWrite)}, // which is dropped
	} {
		if _, _, err := tc.CreateGrant(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tc.DeleteGrant(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
}

// writeGoldenQuotas adds what came with feature level 6.
func writeGoldenQuotas(t *testing.T, tc *testCatalog) {
	t.Helper()
	for _, q := range []millrace.Quota{
		{Principal: millrace.DefaultPrincipal, Limits: millrace.Limits{WriteRows: 100_000, WriteBytes: 64 << 20, ReadBytes: 256 << 20, Streams: 100}},
		{Principal: "group:taken-away", Limits: millrace.Limits{ReadBytes: 1}},
		{Principal: "user:ann"},
		{Principal: "user:ann", Limits: millrace.Limits{Streams: 7}},
	} {
		if _, err := tc.SetQuota(t.Context(), q.Principal, q.Limits); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tc.DeleteQuota(t.Context(), "group:taken-away"); err != nil {
		t.Fatal(err)
	}
}

// writeGoldenTables adds what came with feature level 2.
func writeGoldenTables(t *testing.T, tc *testCatalog) {
	t.Helper()
	two := 2
	stock := tc.mustCreate(t, "retail", Spec{
		Name: "stock", Buckets: &two, PrimaryKey: []string{"sku", "day"}, PartitionBy: []string{"day"},
		Columns: append(cols("sku", "STRING", "day", "DATE", "n", "INT", "shops", "STRING", "old", "DOUBLE"), ColumnSpec{Name: "seq", Type: "BIGINT", AutoIncrement: true}),
		Properties: map[string]string{
			"table.merge-engine": "Aggregation", "fields.n.agg": "SUM", "fields.shops.agg": "listagg", "fields.shops.listagg-delimiter": "; ", "table.delete.behavior": "disable",
			"table.changelog.skip-unchanged": "true", "table.log.ttl": "36h", "table.partition.dynamic": "false", "table.auto-partition.enabled": "true",
			"table.auto-partition.time-zone": "Europe/Berlin", "table.auto-partition.num-precreate": "1", "table.auto-partition.num-retention": "30",
		},
	})
	tc.mustCreate(t, "retail", Spec{
		Name: "prices", Columns: cols("sku", "STRING", "at", "TIMESTAMP(3)"), PrimaryKey: []string{"sku"},
		Properties: map[string]string{"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "at", "table.changelog.image": "WAL", "table.log.ttl": "0"},
	})
	sealed, removed := tc.mustEnsure(t, stock, "2026-11-28"), tc.mustEnsure(t, stock, "2026-11-29")
	tc.mustEnsure(t, stock, "2026-11-30")
	if _, err := tc.SetPartitionState(t.Context(), stock.ID, sealed.ID, millrace.PartitionSealed); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.RemovePartition(t.Context(), stock.ID, removed.ID); err != nil {
		t.Fatal(err)
	}
	if err := tc.ExpirePartitions(t.Context(), stock.ID, time.Date(2026, 11, 19, 23, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.ReserveIDs(t.Context(), stock.ID, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.AlterTable(t.Context(), stock.Path, steps(t, `[{"op":"rename_column","name":"n","to":"amount"},{"op":"alter_type","name":"amount","type":"BIGINT"},
		{"op":"drop_column","name":"old"},{"op":"add_column","column":{"name":"note","type":"STRING","comment":"free text"},"first":true}]`), nil); err != nil {
		t.Fatal(err)
	}
}

// writeGoldenLake adds what came with feature level 3.
func writeGoldenLake(t *testing.T, tc *testCatalog) {
	t.Helper()
	table := tc.mustCreate(t, "retail", Spec{
		Name: "shipments", PrimaryKey: []string{"id", "day"}, PartitionBy: []string{"day"}, Columns: cols("id", "BIGINT", "day", "DATE", "at", "TIMESTAMP_LTZ(6)"),
		Properties: map[string]string{
			"table.datalake.enabled": "true", "table.datalake.freshness": "1min", "table.datalake.auto-compaction": "false", "table.datalake.target-file-size": "64MiB",
			"table.datalake.system-columns": "true", "table.datalake.iceberg.delete-mode": "rewrite",
		},
	})
	gone, dropping := tc.mustEnsure(t, table, "2026-11-27"), tc.mustEnsure(t, table, "2026-11-28")
	tc.mustEnsure(t, table, "2026-11-29")
	for _, change := range []func() error{
		func() error {
			_, err := tc.SetPartitionState(t.Context(), table.ID, gone.ID, millrace.PartitionExpired)
			return err
		},
		func() error { _, err := tc.PartitionGone(t.Context(), table.ID, gone.ID); return err },
		func() error {
			_, err := tc.SetPartitionState(t.Context(), table.ID, dropping.ID, millrace.PartitionClosing)
			return err
		},
		func() error { _, err := tc.DropPartition(t.Context(), table.ID, dropping.ID); return err },
		func() error {
			_, err := tc.AlterTable(t.Context(), table.Path, steps(t, `[{"op":"set_properties","properties":{"table.datalake.enabled":"false"}}]`), nil)
			return err
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
}

// writeGoldenPurges adds what came with feature level 4: of two lake tables that are to be
// removed, one is.
func writeGoldenPurges(t *testing.T, tc *testCatalog) {
	t.Helper()
	for _, name := range []string{"returns", "visits"} {
		table := tc.mustCreate(t, "retail", inLake(name))
		if _, err := tc.DropTable(t.Context(), table.Path, false, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := tc.Purged(t.Context(), tc.Purges()[0].Table); err != nil {
		t.Fatal(err)
	}
}
