package iceberg

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
)

// A row group ends at rowGroupBytes of encoded columns, which are held in memory until
// then, or at rowGroupRows. Batches are written in pieces of about pieceBytes and at most
// writeRows, so that neither it nor the file is passed by much.
const (
	rowGroupBytes = 32 << 20
	rowGroupRows  = 1 << 20
	writeRows     = 32 << 10
	pieceBytes    = 1 << 20
	minPieceRows  = 64
)

// writerProperties are those of all Parquet files.
func writerProperties() *parquet.WriterProperties {
	return parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1),
		parquet.WithMaxRowGroupLength(rowGroupRows), parquet.WithDataPageSize(1<<20),
		parquet.WithCreatedBy("millrace"),
	)
}

// fileWriter writes Parquet files of one slice. It is an appender's, and whoever
// rewrites files uses it too.
type fileWriter struct {
	r      *round
	ctx    context.Context //nolint:containedctx // A lifetime: the appender's.
	slice  lake.Slice
	values map[int]any
	schema *arrow.Schema
	target int64 // bytes of a file
	group  int64 // bytes of a row group

	file  *openFile
	done  []ice.DataFile
	rows  int64
	bytes int64
}

// openFile is the file that is being written.
type openFile struct {
	key  string
	out  *countingWriter
	seal *sealer
	pq   *pqarrow.FileWriter
}

// countingWriter counts what goes into an object.
type countingWriter struct {
	objstore.Writer
	n int64
}

// Write implements io.Writer.
func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.n += int64(n)
	return n, err
}

// newFileWriter begins to write files of a slice.
func (r *round) newFileWriter(ctx context.Context, s lake.Slice) (*fileWriter, error) {
	values, err := partitionValues(r.desc, &r.spec, s)
	if err != nil {
		return nil, err
	}
	schema, err := table.SchemaToArrowSchema(r.schema, nil, true, false)
	if err != nil {
		return nil, errs.New(errs.UnsupportedByLake, "table %s cannot be written as Parquet: %v", r.desc.Path, err)
	}
	target := int64(millrace.DefaultTargetFileBytes)
	if o := r.desc.Options.Lake; o != nil && o.TargetFileBytes > 0 {
		target = o.TargetFileBytes
	}
	return &fileWriter{r: r, ctx: ctx, slice: s, values: values, schema: schema, target: target, group: rowGroupBytes}, nil
}

// write appends a batch of the round's lake columns.
func (w *fileWriter) write(batch arrow.RecordBatch) error {
	if batch.NumRows() == 0 {
		return nil
	}
	rec, err := w.convert(batch)
	if err != nil {
		return err
	}
	defer rec.Release()
	size := int64(1)
	for _, c := range rec.Columns() {
		size += dataBytes(c.Data())
	}
	step := min(writeRows, max(minPieceRows, rec.NumRows()*pieceBytes/size))
	for at := int64(0); at < rec.NumRows(); at += step {
		piece := rec.NewSlice(at, min(at+step, rec.NumRows()))
		err := w.writePiece(piece)
		piece.Release()
		if err != nil {
			return err
		}
	}
	w.rows += rec.NumRows()
	return nil
}

// dataBytes is how much memory a column's buffers take.
func dataBytes(d arrow.ArrayData) (n int64) {
	for _, b := range d.Buffers() {
		if b != nil {
			n += int64(b.Len())
		}
	}
	for _, c := range d.Children() {
		n += dataBytes(c)
	}
	return n
}

// convert gives a batch in the types of the file.
func (w *fileWriter) convert(batch arrow.RecordBatch) (arrow.RecordBatch, error) {
	if int(batch.NumCols()) != w.schema.NumFields() {
		return nil, errs.New(errs.Internal, "a batch for the lake table of %s has %d columns, not %d", w.r.desc.Path, batch.NumCols(), w.schema.NumFields())
	}
	cols := make([]arrow.Array, 0, batch.NumCols())
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	for i, f := range w.schema.Fields() {
		data, err := toLake(batch.Column(i).Data(), f.Type)
		if err != nil {
			return nil, errs.New(errs.Internal, "column %s of table %s: %v", f.Name, w.r.desc.Path, err)
		}
		cols = append(cols, array.MakeFromData(data))
		data.Release()
	}
	return array.NewRecordBatch(w.schema, cols, batch.NumRows()), nil
}

func (w *fileWriter) writePiece(rec arrow.RecordBatch) error {
	if w.file == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	pq := w.file.pq
	// A row group begins with its first rows: one without rows has no statistics, and then
	// the file has no bounds.
	if pq.RowGroupTotalBytesWritten() >= w.group {
		if err := pq.NewBufferedRowGroupChecked(); err != nil {
			return storeError(err, "write %s", w.file.key)
		}
	}
	if err := pq.WriteBuffered(rec); err != nil {
		return storeError(err, "write %s", w.file.key)
	}
	if w.file.out.n+pq.RowGroupTotalBytesWritten() >= w.target {
		return w.finish()
	}
	return nil
}

// begin opens the next file.
func (w *fileWriter) begin() error {
	key := w.r.t.folder + "/data/" + dataName(w.slice, w.r.number)
	if err := w.r.own(key); err != nil {
		return err
	}
	out, err := w.r.t.f.o.Store.Writer(w.ctx, key)
	if err != nil {
		return storeError(err, "create %s", key)
	}
	counted := &countingWriter{Writer: out}
	seal := newSealer(counted)
	pq, err := pqarrow.NewFileWriter(w.schema, seal, writerProperties(), pqarrow.NewArrowWriterProperties())
	if err != nil {
		out.Abort()
		if e, ok := errors.AsType[*errs.Error](err); ok {
			return e // of the store: the file begins with its first bytes
		}
		return errs.New(errs.UnsupportedByLake, "table %s cannot be written as Parquet: %v", w.r.desc.Path, err)
	}
	w.file = &openFile{key: key, out: counted, seal: seal, pq: pq}
	return nil
}

// finish publishes the file.
func (w *fileWriter) finish() error {
	f := w.file
	w.file = nil
	f.seal.hold()
	if err := f.pq.Close(); err != nil {
		f.out.Abort()
		return storeError(err, "write %s", f.key)
	}
	meta, err := f.pq.FileMetadata()
	if err != nil {
		f.out.Abort()
		return fmt.Errorf("describe %s: %w", f.key, err)
	}
	if err := f.seal.seal(plainIntegers(meta)); err != nil {
		f.out.Abort()
		return storeError(err, "write %s", f.key)
	}
	if w.r.isEnded() {
		f.out.Abort()
		return errClosed
	}
	if err := f.out.Close(); err != nil {
		return storeError(err, "write %s", f.key)
	}
	df, err := table.DataFileFromMetadata(table.DataFileArgs{
		Schema: w.r.schema, Spec: w.r.spec, Format: ice.ParquetFile, Metadata: meta,
		FilePath: uriOf(w.r.t.f.o.Store, f.key), FileSize: f.out.n, Content: ice.EntryContentData,
		PartitionValues: w.values, FormatVersion: formatVersion, Properties: boundless(meta, w.r.schema),
	})
	if err != nil {
		return fmt.Errorf("describe %s: %w", f.key, err)
	}
	w.done = append(w.done, df)
	w.bytes += f.out.n
	return nil
}

// close finishes the last file and gives all of them.
func (w *fileWriter) close() ([]ice.DataFile, error) {
	if w.file != nil {
		if err := w.finish(); err != nil {
			return nil, err
		}
	}
	return w.done, nil
}

// abort gives up the file that is being written.
func (w *fileWriter) abort() {
	if w.file != nil {
		w.file.out.Abort()
		w.file = nil
	}
}

// appender implements lake.Appender.
type appender struct {
	w      *fileWriter
	closed bool
}

var _ lake.Appender = (*appender)(nil)

// errClosed is the misuse of what has ended.
var errClosed = errors.New("iceberg: the round or appender has ended")

// Write implements lake.Appender.
func (a *appender) Write(batch arrow.RecordBatch) error {
	if a.closed {
		return errClosed
	}
	if err := a.w.write(batch); err != nil {
		a.closed = true
		a.w.abort()
		return err
	}
	return nil
}

// Close implements lake.Appender.
func (a *appender) Close() error {
	if a.closed {
		return errClosed
	}
	a.closed = true
	files, err := a.w.close()
	if err != nil {
		a.w.abort()
		return err
	}
	return a.w.r.added(files, a.w.rows, a.w.bytes)
}
