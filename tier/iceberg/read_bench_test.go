package iceberg

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
)

// BenchmarkRead compares our reading of a lake file with arrow-go's of the same file
// (R13 wants 0.80 of it), bytes of the file by processor second.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	store, err := objstore.Open(b.Context(), "file://"+dir, objstore.Options{})
	require.NoError(b, err)
	f := New(Options{Store: store, Clock: &testClock{now: time.Now()}, Logger: slog.New(slog.DiscardHandler)})
	d := testTable(1, nil, nil, 1, "id BIGINT NOT NULL", "device INT", "kind TINYINT", "name STRING", "value DOUBLE", "price DECIMAL(12,2)", "at TIMESTAMP(3)", "seen TIMESTAMP_LTZ(6)", "note STRING")
	d.Options.Lake.TargetFileBytes = 1 << 30
	const rows = 1 << 20
	lt, err := f.Open(b.Context(), d)
	require.NoError(b, err)
	r, err := lt.Begin(b.Context(), d)
	require.NoError(b, err)
	a, err := r.Append(b.Context(), lake.Slice{Bucket: lake.NoBucket})
	require.NoError(b, err)
	lines := make([]string, 4096)
	for at := 0; at < rows; at += len(lines) {
		for i := range lines {
			n := at + i
			lines[i] = fmt.Sprintf(`{"id":%d,"device":%d,"kind":%d,"name":"device-%d","value":%g,"price":"%d.%02d","at":"2026-01-01T%02d:%02d:%02d.%03d","seen":"2026-01-01T00:%02d:%02d.%06dZ","note":"row number %d of the table"}`,
				n, n*7919%1000, n%100, n*31%5000, float64(n*7919%100003)/7, n%9999, n%100, n/3600000%24, n/60000%60, n/1000%60, n%1000, n/60%60, n%60, n%1000000, n)
		}
		rec := batch(b, d.Schema.Columns, lines...)
		require.NoError(b, a.Write(rec))
		rec.Release()
	}
	require.NoError(b, a.Close())
	s, err := r.Commit(b.Context(), nil)
	require.NoError(b, err)
	files, err := s.Files(b.Context(), lake.Scope{})
	require.NoError(b, err)
	require.Len(b, files, 1)
	path := filepath.Join("/", strings.TrimPrefix(files[0].Path, "file://"))

	b.Run("lake", func(b *testing.B) {
		perCPU(b, files[0].Bytes, func() {
			rs, err := s.Rows(b.Context(), &files[0], lake.Read{Columns: d.Schema.Columns})
			require.NoError(b, err)
			n := int64(0)
			for {
				rec, _, err := rs.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(b, err)
				n += rec.NumRows()
				rec.Release()
			}
			require.NoError(b, rs.Close())
			require.Equal(b, int64(rows), n)
		})
	})
	for _, parallel := range []bool{false, true} {
		b.Run(fmt.Sprintf("bare,parallel=%t", parallel), func(b *testing.B) {
			perCPU(b, files[0].Bytes, func() {
				in, err := os.Open(path)
				require.NoError(b, err)
				pf, err := file.NewParquetReader(in)
				require.NoError(b, err)
				fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: maxBatchRows, Parallel: parallel}, memory.DefaultAllocator)
				require.NoError(b, err)
				rr, err := fr.GetRecordReader(b.Context(), nil, nil)
				require.NoError(b, err)
				n := int64(0)
				for rr.Next() {
					n += rr.RecordBatch().NumRows()
				}
				require.NoError(b, rr.Err())
				rr.Release()
				require.NoError(b, pf.Close())
				require.Equal(b, int64(rows), n)
			})
		})
	}
}
