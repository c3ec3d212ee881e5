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
				if _, err := c.DropTable(b.Context(), t.Path, false, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchPartitions is a catalog with n partitions of one table beside 1,000 tables.
func benchPartitions(b *testing.B, n int, fs vfs.FS, dir string) (*Catalog, *millrace.Table) {
	b.Helper()
	c := benchCatalog(b, 1000, fs, dir)
	table, _, err := c.CreateTable(b.Context(), "d", Spec{Name: "p", Columns: cols("dt", "STRING"), PartitionBy: []string{"dt"}}, false)
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		if _, _, err := c.EnsurePartition(b.Context(), table.ID, []string{fmt.Sprintf("%06d", i)}); err != nil {
			b.Fatal(err)
		}
	}
	return c, table
}

// Finding a partition that exists, as each write does, and listing all.
func BenchmarkPartition(b *testing.B) {
	for _, n := range []int{10, millrace.MaxPartitions} {
		c, table := benchPartitions(b, n, vfs.NewMem(), "catalog")
		for name, find := range map[string]func() error{
			"name": func() error {
				_, err := c.Partition(b.Context(), table.ID, "dt=000007")
				return err
			},
			"id": func() error {
				_, err := c.PartitionByID(b.Context(), table.ID, 7)
				return err
			},
			"ensure": func() error {
				_, _, err := c.EnsurePartition(b.Context(), table.ID, []string{"000007"})
				return err
			},
			"list": func() error {
				_, err := c.Partitions(b.Context(), table.ID)
				return err
			},
		} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := find(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Making and removing a partition beside n others and 1,000 tables, with the syncs
// of a real disk and without.
func BenchmarkCreatePartition(b *testing.B) {
	for _, n := range []int{10, millrace.MaxPartitions - 1} {
		for disk, fs := range map[string]vfs.FS{"mem": vfs.NewMem(), "disk": vfs.Default} {
			b.Run(fmt.Sprint(disk, "/", n), func(b *testing.B) {
				c, table := benchPartitions(b, n, fs, b.TempDir()+"/catalog")
				b.ReportAllocs()
				for b.Loop() {
					p, _, err := c.EnsurePartition(b.Context(), table.ID, []string{"extra"})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := c.RemovePartition(b.Context(), table.ID, p.ID); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Opening a catalog of 1,000 tables and 10,000 partitions.
func BenchmarkOpen(b *testing.B) {
	fs := vfs.NewMem()
	c, _ := benchPartitions(b, millrace.MaxPartitions, fs, "catalog")
	if err := c.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c, err := Open(b.Context(), Options{Dir: "catalog", FS: fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// Taking over what another process did to a partition beside n others and 1,000 tables:
// what it costs follows the lists that change, not the catalog.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{10, millrace.MaxPartitions} {
		c, table := benchPartitions(b, n, vfs.NewMem(), "catalog")
		s := c.current.Load()
		p := *s.partitions[table.ID].byID[n/2]
		writes := []Write{{Key: keyHead, Value: encodeRecord(s.head)}, {Key: partitionKey(table.ID, p.ID), Value: encodeRecord(recordOfPartition(&p))}}
		b.Run(fmt.Sprint("partition/", n), func(b *testing.B) {
			b.ReportAllocs()
			for revision := s.headRevision; b.Loop(); {
				revision++
				next, err := s.apply(revision, writes)
				if err != nil {
					b.Fatal(err)
				}
				s = next
			}
		})
		ids := []Write{{Key: keyHead, Value: encodeRecord(s.head)}}
		b.Run(fmt.Sprint("head/", n), func(b *testing.B) {
			b.ReportAllocs()
			for revision := s.headRevision; b.Loop(); {
				revision++
				next, err := s.apply(revision, ids)
				if err != nil {
					b.Fatal(err)
				}
				s = next
			}
		})
		b.Run(fmt.Sprint("everything/", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				entries, _, err := c.kv.Load(b.Context())
				if err == nil {
					_, err = loadSnapshot(entries)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
