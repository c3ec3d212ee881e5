package router_test

// Benchmarks of the write and lookup paths on the real disk, through the router.

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage"
)

func benchRouter(b *testing.B) (*router.Router, *fakeCatalog) {
	cat := &fakeCatalog{tables: map[millrace.TablePath]*millrace.Table{}}
	w, err := storage.Open(context.Background(), storage.Options{
		Dir: b.TempDir(), Shards: 4, FS: vfs.Default, Clock: realClock{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(b, err)
	require.NoError(b, w.Err())
	b.Cleanup(func() { require.NoError(b, w.Close(context.Background())) })
	return newRouter(router.Options{Catalog: cat, Signer: plainSigner{}, Clock: realClock{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}, w.Shards()), cat
}

func benchTable(cat *fakeCatalog, keyed bool, buckets int) *millrace.Table {
	t := &millrace.Table{
		ID: millrace.TableID(len(cat.tables) + 1), Path: millrace.TablePath{Database: "d", Table: fmt.Sprint("t", len(cat.tables))}, Kind: millrace.LogTable, Buckets: buckets,
		Schema: &millrace.Schema{ID: 1, Columns: []millrace.Column{
			{ID: 1, Name: "k", Type: millrace.DataType{Kind: millrace.BigInt}},
			{ID: 2, Name: "v", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
			{ID: 3, Name: "n", Type: millrace.DataType{Kind: millrace.BigInt}, Nullable: true},
		}},
	}
	if keyed {
		t.Kind, t.PrimaryKey, t.BucketKey = millrace.KeyedTable, []millrace.ColumnID{1}, []millrace.ColumnID{1}
	}
	for i := range buckets {
		t.Shards = append(t.Shards, millrace.ShardID(i%4))
	}
	cat.tables[t.Path] = t
	return t
}

func benchRows(t *millrace.Table, r *rand.Rand, n, width, keys int) row.Rows {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(t.Schema.Columns))
	defer rb.Release()
	buf := make([]byte, width)
	for range n {
		rb.Field(0).(*array.Int64Builder).Append(int64(r.IntN(keys)))
		for j := range buf {
			buf[j] = byte('a' + r.IntN(26))
		}
		rb.Field(1).(*array.StringBuilder).Append(string(buf))
		rb.Field(2).(*array.Int64Builder).Append(r.Int64())
	}
	return row.Rows{Record: rb.NewRecordBatch(), Columns: t.Schema.Columns}
}

func writers(b *testing.B, n int, do func(w int, r *rand.Rand)) {
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for w := range n {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for left.Add(-1) >= 0 {
				do(w, r)
			}
		})
	}
	wg.Wait()
}

// 64 writers append 256 rows of 1 KiB each (R1).
func BenchmarkAppend(b *testing.B) {
	r, cat := benchRouter(b)
	t := benchTable(cat, false, 16)
	batches := make([]row.Rows, 64)
	for i := range batches {
		batches[i] = benchRows(t, rand.New(rand.NewPCG(uint64(i), 1)), 256, 1000, 1<<30)
	}
	b.SetBytes(256 << 10)
	b.ResetTimer()
	writers(b, 64, func(w int, _ *rand.Rand) {
		_, err := r.Write(context.Background(), &router.WriteRequest{Table: t, Mode: router.Append, Rows: batches[w]})
		if err != nil {
			b.Error(err)
		}
	})
}

// 64 writers upsert batches of 100 rows of 100 bytes over a million keys (R9).
func BenchmarkUpsert(b *testing.B) {
	r, cat := benchRouter(b)
	t := benchTable(cat, true, 16)
	batches := make([]row.Rows, 512)
	for i := range batches {
		batches[i] = benchRows(t, rand.New(rand.NewPCG(uint64(i), 1)), 100, 100, 1_000_000)
	}
	b.ResetTimer()
	writers(b, 64, func(_ int, rnd *rand.Rand) {
		_, err := r.Write(context.Background(), &router.WriteRequest{Table: t, Mode: router.Upsert, Rows: batches[rnd.IntN(len(batches))]})
		if err != nil {
			b.Error(err)
		}
	})
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "rows/s")
}

// Lookups in batches of 100 (R7).
func BenchmarkLookup(b *testing.B) {
	r, cat := benchRouter(b)
	t := benchTable(cat, true, 16)
	for i := range 50 {
		_, err := r.Write(context.Background(), &router.WriteRequest{Table: t, Mode: router.Upsert, Rows: benchRows(t, rand.New(rand.NewPCG(uint64(i), 1)), 2000, 100, 100_000)})
		require.NoError(b, err)
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	keys := make([]row.Rows, 256)
	for i := range keys {
		all := benchRows(t, rnd, 100, 1, 100_000)
		keys[i] = row.Rows{Record: row.Project(all.Record, []int{0})}
	}
	cols, err := router.LookupColumns(t, nil)
	require.NoError(b, err)
	b.ResetTimer()
	for i := range b.N {
		res, err := r.Lookup(context.Background(), t, keys[i%len(keys)].Record, cols)
		if err != nil {
			b.Fatal(err)
		}
		res.Record.Release()
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "keys/s")
}
