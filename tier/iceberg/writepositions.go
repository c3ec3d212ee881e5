package iceberg

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
)

// writePositions writes a file of position deletes of a slice, by path and position,
// as Iceberg wants it. files rise by path.
func (r *round) writePositions(ctx context.Context, s lake.Slice, files []*found) error {
	values, err := partitionValues(r.desc, &r.spec, s)
	if err != nil {
		return err
	}
	key := r.t.folder + "/data/" + deletesName(s, r.number)
	if err := r.own(key); err != nil {
		return err
	}
	out, err := r.t.f.o.Store.Writer(ctx, key)
	if err != nil {
		return storeError(err, "create %s", key)
	}
	defer out.Abort()
	counted := &countingWriter{Writer: out}
	seal := newSealer(counted)
	pq, err := pqarrow.NewFileWriter(row.ArrowSchema(positionColumns), seal, writerProperties(), pqarrow.NewArrowWriterProperties())
	if err != nil {
		return storeError(err, "begin %s", key) // with its first bytes
	}
	rows := int64(0)
	for _, f := range files {
		n, err := appendPositions(pq, f)
		if err != nil {
			return storeError(err, "write %s", key)
		}
		rows += n
	}
	seal.hold()
	if err := pq.Close(); err != nil {
		return storeError(err, "write %s", key)
	}
	if err := seal.seal(nil); err != nil {
		return storeError(err, "write %s", key)
	}
	meta, err := pq.FileMetadata()
	if err != nil {
		return fmt.Errorf("describe %s: %w", key, err)
	}
	if err := out.Close(); err != nil {
		return storeError(err, "write %s", key)
	}
	args := table.DataFileArgs{
		Schema: ice.PositionalDeleteSchema, Spec: r.spec, Format: ice.ParquetFile, Metadata: meta,
		FilePath: uriOf(r.t.f.o.Store, key), FileSize: counted.n, Content: ice.EntryContentPosDeletes,
		PartitionValues: values, FormatVersion: formatVersion,
		// Paths are long and differ late: cut bounds would make every reader read every
		// file of deletes.
		Properties: ice.Properties{table.DefaultWriteMetricsModeKey: "full"},
	}
	if len(files) == 1 {
		args.ReferencedDataFile = &files[0].file.path
	}
	df, err := table.DataFileFromMetadata(args)
	if err != nil {
		return fmt.Errorf("describe %s: %w", key, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ended {
		return errClosed
	}
	r.mu.addDeletes = append(r.mu.addDeletes, df)
	r.mu.written.Files++
	r.mu.written.Bytes += counted.n
	return nil
}

// appendPositions writes the positions of one file.
func appendPositions(pq *pqarrow.FileWriter, f *found) (int64, error) {
	paths, pos := array.NewStringBuilder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
	defer paths.Release()
	defer pos.Release()
	write := func() error {
		p, v := paths.NewArray(), pos.NewArray()
		defer p.Release()
		defer v.Release()
		rec := array.NewRecordBatch(row.ArrowSchema(positionColumns), []arrow.Array{p, v}, int64(p.Len()))
		defer rec.Release()
		return pq.WriteBuffered(rec)
	}
	n := int64(0)
	for it := f.positions.Iterator(); it.HasNext(); n++ {
		paths.Append(f.file.path)
		pos.Append(int64(it.Next()))
		if pos.Len() == writeRows {
			if err := write(); err != nil {
				return 0, err
			}
		}
	}
	return n, write()
}
