package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// What our lake files are written with, for the yardstick to do the same.
const (
	parquetGroupBytes = 32 << 20
	parquetGroupRows  = 1 << 20
	parquetPageBytes  = 1 << 20
	parquetReadRows   = 32 << 10
)

// writeParquet writes rows, in batches taken in turn, to a file that is then on disk,
// with arrow-go's writer alone, and says how large it is.
func writeParquet(path string, recs []arrow.RecordBatch, rows int) (size int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	pq, err := pqarrow.NewFileWriter(recs[0].Schema(), struct{ io.Writer }{f}, parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1),
		parquet.WithMaxRowGroupLength(parquetGroupRows), parquet.WithDataPageSize(parquetPageBytes),
	), pqarrow.NewArrowWriterProperties())
	if err != nil {
		return 0, err
	}
	for i := 0; rows > 0; i++ {
		rec := recs[i%len(recs)]
		rec = rec.NewSlice(0, min(int64(rows), rec.NumRows()))
		rows -= int(rec.NumRows())
		err := pq.WriteBuffered(rec)
		rec.Release()
		if err != nil {
			return 0, err
		}
		if pq.RowGroupTotalBytesWritten() >= parquetGroupBytes {
			pq.NewBufferedRowGroup()
		}
	}
	if err := pq.Close(); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// readParquet gives the batches of files, with columns by name (nil: all), as arrow-go
// alone reads them.
func readParquet(ctx context.Context, paths, columns []string, give func(arrow.RecordBatch) error) error {
	for _, path := range paths {
		if err := readParquetFile(ctx, path, columns, give); err != nil {
			return err
		}
	}
	return nil
}

func readParquetFile(ctx context.Context, path string, columns []string, give func(arrow.RecordBatch) error) (err error) {
	f, err := file.OpenParquetFile(path, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fr, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{BatchSize: parquetReadRows}, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	var leaves []int // of flat columns: their numbers
	for _, c := range columns {
		leaves = append(leaves, f.MetaData().Schema.ColumnIndexByName(c))
	}
	rr, err := fr.GetRecordReader(ctx, leaves, nil)
	if err != nil {
		return err
	}
	defer rr.Release()
	for rr.Next() {
		if err := give(rr.RecordBatch()); err != nil {
			return err
		}
	}
	if err := rr.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
