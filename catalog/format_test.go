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

	millrace "github.com/millrace/millrace"
)

var rewrite = flag.Bool("rewrite", false, "write the expected files anew; for a new format version only")

// golden is where a release's store and its contents in words are.
type golden struct {
	dir, text string
}

func goldenFiles(version string) golden {
	dir := filepath.Join("testdata", "formats", version)
	return golden{dir: filepath.Join(dir, "catalog"), text: filepath.Join(dir, "catalog.txt")}
}

// The store that each release left in testdata is opened by this one, with every
// key and value as they were written.
func TestGoldenStores(t *testing.T) {
	g := goldenFiles("v1")
	if *rewrite {
		writeGolden(t, g)
	}
	dir := copyDir(t, g.dir)
	c, err := Open(t.Context(), Options{Dir: dir, FS: vfs.Default, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := dump(t, c)
	if *rewrite {
		if err := os.WriteFile(g.text, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(g.text)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	table, err := c.Table(t.Context(), millrace.TablePath{Database: "retail", Table: "orders"})
	if err != nil || table.Schema.Columns[1].Type.String() != "DECIMAL(12,2)" || len(table.Shards) != 6 {
		t.Errorf("%+v, %v", table, err)
	}
}

// dump is what a store holds, one key a line.
func dump(t *testing.T, c *Catalog) string {
	t.Helper()
	entries, err := c.kv.Load(t.Context())
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
	if _, err := tc.DropTable(t.Context(), millrace.TablePath{Database: "retail", Table: "dropped"}, false); err != nil {
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
