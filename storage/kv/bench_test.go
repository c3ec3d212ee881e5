package kv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/kv"
)

// A million rows of 100 bytes, written in random order, on the real disk; then reads
// of random rows, and random rows written again.
func BenchmarkStore(b *testing.B) {
	cache := pebble.NewCache(64 << 20)
	defer cache.Unref()
	s, err := kv.Open(kv.Options{FS: vfs.Default, Dir: b.TempDir(), Cache: cache, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	const rows = 1_000_000
	rnd := rand.New(rand.NewPCG(1, 1))
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	value := make([]byte, 100)
	lsn := millrace.LSN(0)
	write := func(keys []int) {
		batch := s.NewBatch()
		for _, k := range keys {
			for i := range value {
				value[i] = byte('a' + rnd.IntN(200))
			}
			require.NoError(b, batch.PutRow(string(kv.AppendRowKey(nil, one, key(k))), value))
		}
		lsn++
		require.NoError(b, batch.Commit(lsn))
	}
	order := rnd.Perm(rows)
	for len(order) > 0 {
		write(order[:1000])
		order = order[1000:]
	}
	require.NoError(b, s.Flush(context.Background()))
	lookup := func(b *testing.B, n, from int) {
		keys, out := make([][]byte, n), make([][]byte, n)
		for b.Loop() {
			for i := range keys {
				keys[i] = kv.AppendRowKey(keys[i][:0], one, key(from+rnd.IntN(rows)))
			}
			if err := s.Rows(keys, out); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
	}
	for _, n := range []int{1, 4, 25, 100} {
		b.Run(fmt.Sprint("rows/", n), func(b *testing.B) { lookup(b, n, 0) })
		b.Run(fmt.Sprint("absent/", n), func(b *testing.B) { lookup(b, n, rows) })
	}
	b.Run("read100write100", func(b *testing.B) {
		keys := make([]int, 100)
		raw, out := make([][]byte, len(keys)), make([][]byte, len(keys))
		for b.Loop() {
			for i := range keys {
				keys[i] = rnd.IntN(rows)
				raw[i] = kv.AppendRowKey(raw[i][:0], one, key(keys[i]))
			}
			if err := s.Rows(raw, out); err != nil {
				b.Fatal(err)
			}
			write(keys)
		}
	})
	require.NoError(b, s.Close())
}
