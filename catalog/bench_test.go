package catalog

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
)

func benchCatalog(b *testing.B, tables int, fs vfs.FS, dir string) *Catalog {
	b.Helper()
	c, err := Open(b.Context(), Options{Dir: dir, FS: fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	if err != nil {
		b.Fatal(err)
	}
	tc := &testCatalog{Catalog: c}
	tc.mustCreateDatabase(b, "d")
	for i := range tables {
		tc.mustCreate(b, "d", keyed(fmt.Sprintf("table_%06d", i), 4))
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// Finding a table costs the same among 100 and 10,000.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := benchCatalog(b, n, vfs.NewMem(), "catalog")
			path := millrace.TablePath{Database: "d", Table: "table_000042"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Table(b.Context(), path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Making and dropping a table beside n others, with the syncs of a real disk.
func BenchmarkCreateDrop(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := benchCatalog(b, n, vfs.Default, b.TempDir()+"/catalog")
			for b.Loop() {
				t, _, err := c.CreateTable(b.Context(), "d", keyed("extra", 4), false)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.DropTable(b.Context(), t.Path, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
