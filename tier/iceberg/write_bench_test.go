package iceberg

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/iceberg-go/table"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/row"
)

// orders are batches of a table such as the benchmarks have: numbers, short texts, a
// decimal, a timestamp.
func orders(b *testing.B) (d *millrace.Table, batches []arrow.RecordBatch, size int64) {
	d = testTable(1, nil, nil, 1, "id BIGINT NOT NULL", "customer INT NOT NULL", "status STRING", "price DECIMAL(12,2)", "at TIMESTAMP(3)", "comment STRING", "n SMALLINT")
	fields := make([]arrow.Field, len(d.Schema.Columns))
	for i, c := range d.Schema.Columns {
		fields[i] = arrow.Field{Name: c.Name, Type: row.ArrowType(c.Type), Nullable: c.Nullable}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	rb := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer rb.Release()
	for n := range 30 {
		for i := range 8192 {
			id := int64(n*8192 + i)
			rb.Field(0).(*array.Int64Builder).Append(id)
			rb.Field(1).(*array.Int32Builder).Append(rnd.Int32N(100_000))
			rb.Field(2).(*array.StringBuilder).Append([]string{"open", "paid", "sent", "done"}[rnd.IntN(4)])
			require.NoError(b, rb.Field(3).AppendValueFromString(fmt.Sprintf("%d.%02d", rnd.IntN(10_000), rnd.IntN(100))))
			rb.Field(4).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000 + id*17))
			rb.Field(5).(*array.StringBuilder).Append(fmt.Sprintf("customer %d asked for %x", rnd.IntN(1000), rnd.Uint64()))
			rb.Field(6).(*array.Int16Builder).Append(int16(rnd.IntN(100)))
		}
		rec := rb.NewRecordBatch()
		for _, c := range rec.Columns() {
			for _, buf := range c.Data().Buffers() {
				if buf != nil {
					size += int64(buf.Len())
				}
			}
		}
		batches = append(batches, rec)
	}
	return d, batches, size
}

// cpu is the processor time that the process has had.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perCPU runs a benchmark and reports bytes by processor second.
func perCPU(b *testing.B, size int64, run func()) {
	b.ReportAllocs()
	run()
	b.ResetTimer()
	start := cpu()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/(cpu()-start).Seconds(), "MB/cpu-s")
}

// BenchmarkWrite writes a file of a lake table, and the same batches by pqarrow alone with
// the same properties, in types that it need not convert (R12).
func BenchmarkWrite(b *testing.B) {
	d, batches, size := orders(b)
	s, err := objstore.Open(b.Context(), "file:///lake", objstore.Options{FS: vfs.NewMem()})
	require.NoError(b, err)
	f := New(Options{Store: s, Clock: &testClock{now: time.Now()}, Logger: slog.New(slog.DiscardHandler)})
	d.Options.Lake.TargetFileBytes = 1 << 30
	lt, err := f.open(b.Context(), d)
	require.NoError(b, err)
	b.Run("lake", func(b *testing.B) {
		perCPU(b, size, func() {
			r, err := lt.begin(b.Context(), d)
			require.NoError(b, err)
			a, err := r.Append(b.Context(), lake.Slice{Bucket: lake.NoBucket})
			require.NoError(b, err)
			for _, rec := range batches {
				require.NoError(b, a.Write(rec))
			}
			require.NoError(b, a.Close())
			r.Abort(b.Context())
		})
	})
	schema, err := schemaOf(d)
	require.NoError(b, err)
	to, err := table.SchemaToArrowSchema(schema, nil, true, false)
	require.NoError(b, err)
	w := &fileWriter{r: &round{desc: d}, schema: to}
	for i, rec := range batches {
		batches[i], err = w.convert(rec)
		require.NoError(b, err)
	}
	b.Run("pqarrow", func(b *testing.B) {
		var buf bytes.Buffer
		perCPU(b, size, func() {
			buf.Reset()
			pq, err := pqarrow.NewFileWriter(to, &struct{ io.Writer }{&buf}, writerProperties(), pqarrow.NewArrowWriterProperties())
			require.NoError(b, err)
			for _, rec := range batches {
				require.NoError(b, pq.WriteBuffered(rec))
			}
			require.NoError(b, pq.Close())
		})
		b.ReportMetric(float64(buf.Len())/1e6, "MB/file")
	})
}
