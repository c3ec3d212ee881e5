package wal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// The disk is shared and its speed changes from second to second, so each benchmark
// alternates between the log and a bare loop that writes and fdatasyncs the same
// bytes (log, raw, raw, log), and reports the median of the ratios of their times:
// ratio 1 is as fast as the bare loop.

// round is what one side does in one turn.
const round = 32 << 20

// BenchmarkAppend is durable appends from several shards at the same time. raw is
// how many bytes the bare loop writes per fdatasync.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ shards, size, raw int }{
		{1, 256 << 10, 256 << 10},
		{4, 256 << 10, 256 << 10},
		{4, 256 << 10, 512 << 10},
		{4, 256 << 10, 1 << 20},
		{16, 256 << 10, 1 << 20},
		{1, 1 << 10, 1 << 10},
		{4, 1 << 10, 1 << 10},
		{50, 1 << 10, 1 << 10},
	} {
		b.Run(fmt.Sprintf("shards=%d/bytes=%d/raw=%d", c.shards, c.size, c.raw), func(b *testing.B) {
			reg := prometheus.NewRegistry()
			ours, closeOurs := benchLog(b, reg, c.shards, c.size)
			defer closeOurs()
			raw, closeRaw := benchRaw(b, c.raw)
			defer closeRaw()
			n := min(round/c.raw, 2048) * c.raw / c.size
			var ratios []float64
			var took [2]time.Duration
			turn := func(side int, run func()) time.Duration {
				begun := time.Now()
				run()
				d := time.Since(begun)
				took[side] += d
				return d
			}
			for b.Loop() {
				a := turn(0, func() { ours(n) })
				r := turn(1, func() { raw(n * c.size / c.raw) })
				r += turn(1, func() { raw(n * c.size / c.raw) })
				a += turn(0, func() { ours(n) })
				ratios = append(ratios, float64(r)/float64(a))
			}
			slices.Sort(ratios)
			mb := float64(2*n*c.size*len(ratios)) / 1e6
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(mb/took[0].Seconds(), "log-MB/s")
			b.ReportMetric(mb/took[1].Seconds(), "raw-MB/s")
			b.ReportMetric(took[0].Seconds()*1e6/float64(2*n*len(ratios)), "log-µs/append")
			b.ReportMetric(appendsPerFsync(b, reg), "appends/fsync")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func appendsPerFsync(b *testing.B, reg *prometheus.Registry) float64 {
	families, err := reg.Gather()
	require.NoError(b, err)
	for _, f := range families {
		if f.GetName() == "millrace_wal_group_appends" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleSum() / float64(h.GetSampleCount())
		}
	}
	b.Fatal("no histogram of groups")
	return 0
}

// benchLog returns a function that makes n appends, spread over the shards.
func benchLog(b *testing.B, reg *prometheus.Registry, shards, size int) (run func(n int), done func()) {
	f := mustOpen(b, vfs.Default, b.TempDir(), wal.Options{ClusterID: cluster, Shards: shards, Registerer: reg})
	payload := waltest.Pattern(1, size)
	ctx := context.Background()
	run = func(n int) {
		var left atomic.Int64
		left.Store(int64(n))
		var wg sync.WaitGroup
		for s := range shards {
			log := mustShard(b, f, millrace.ShardID(s))
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if _, err := log.Append(ctx, []wal.Entry{{Kind: wal.Data, Data: payload}}); err != nil {
						b.Error(err)
					}
				}
				if err := log.Purge(ctx, log.Tail().LSN); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	return run, func() { require.NoError(b, f.Close()) }
}

// benchRaw returns a function that writes and syncs n times, to a new file each 64 MiB.
func benchRaw(b *testing.B, size int) (run func(n int), done func()) {
	path := filepath.Join(b.TempDir(), "raw")
	payload := waltest.Pattern(1, size)
	var f *os.File
	var written int
	next := func() {
		if f != nil {
			require.NoError(b, f.Close())
			require.NoError(b, os.Remove(path))
		}
		var err error
		f, err = os.Create(path)
		require.NoError(b, err)
		written = 0
	}
	next()
	run = func(n int) {
		for range n {
			if written += size; written > 64<<20 {
				next()
			}
			if _, err := f.Write(payload); err != nil {
				b.Fatal(err)
			}
			if err := syscall.Fdatasync(int(f.Fd())); err != nil {
				b.Fatal(err)
			}
		}
	}
	return run, func() { require.NoError(b, f.Close()) }
}

// BenchmarkReplay reads one of four shards that share files, from the page cache; the
// bytes are those of the shard.
func BenchmarkReplay(b *testing.B) {
	for _, size := range []int{1 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			f := mustOpen(b, vfs.Default, b.TempDir(), wal.Options{ClusterID: cluster, Shards: 4})
			defer func() { require.NoError(b, f.Close()) }()
			payload := waltest.Pattern(1, size)
			const each = 32 << 20
			batch := make([]wal.Entry, max(1, 64<<10/size))
			for i := range batch {
				batch[i] = wal.Entry{Kind: wal.Data, Data: payload}
			}
			for range each / size / len(batch) {
				for s := range 4 {
					_, err := mustShard(b, f, millrace.ShardID(s)).Append(context.Background(), batch)
					require.NoError(b, err)
				}
			}
			log := mustShard(b, f, 2)
			b.SetBytes(each)
			b.ReportAllocs()
			for b.Loop() {
				var n int
				err := log.Replay(context.Background(), 0, func(_ millrace.LSN, _ millrace.Epoch, e wal.Entry) error {
					n += len(e.Data)
					return nil
				})
				require.NoError(b, err)
				require.Equal(b, each, n)
			}
		})
	}
}
