package stream_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// BenchmarkReplay reads a log of 256 MiB in records of a size; heap-MB is the most that
// was in use while it did.
func BenchmarkReplay(b *testing.B) {
	srv, err := natstest.Start(b.Context(), natstest.Options{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(srv.Close)
	conn, err := cluster.Connect(b.Context(), cluster.Options{URLs: srv.URLs()})
	require.NoError(b, err)
	b.Cleanup(conn.Close)
	s, err := stream.New(conn, stream.Options{})
	require.NoError(b, err)
	const total = 256 << 20
	for i, size := range []int{8 << 10, wal.MaxRecordBytes - 1000} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			log, err := s.Shard(b.Context(), millrace.ShardID(i))
			require.NoError(b, err)
			for log.Tail().LSN < millrace.LSN(total/size) {
				_, err := log.Append(b.Context(), []wal.Entry{{Kind: wal.Data, Data: waltest.Pattern(1, size)}})
				require.NoError(b, err)
			}
			b.SetBytes(total)
			var most uint64
			for b.Loop() {
				n := 0
				err := log.Replay(context.Background(), 0, func(_ millrace.LSN, _ millrace.Epoch, _ wal.Entry) error {
					if n++; n%100 == 0 {
						var m runtime.MemStats
						runtime.ReadMemStats(&m)
						most = max(most, m.HeapInuse)
					}
					return nil
				})
				require.NoError(b, err)
				require.Equal(b, total/size, n)
			}
			b.ReportMetric(float64(most)/1e6, "heap-MB")
		})
	}
}
