package iceberg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/row"
)

const (
	// maxBatchRows is the most rows of a batch unless the reader asks for fewer.
	maxBatchRows = 32 << 10
	// firstBatchRows begins each row group: batches grow as their bytes turn out small,
	// since a few stored bytes may be many in memory.
	firstBatchRows = 2 << 10
	// wantBatchBytes is what a batch grows to.
	wantBatchBytes = 4 << 20
)

// rows reads the live rows of one Parquet file, a row group at a time, the next one's
// bytes being fetched meanwhile.
type rows struct {
	ctx     context.Context // of the reader: its life is that of the rows
	cancel  context.CancelFunc
	file    *parquetFile
	schema  *arrow.Schema
	columns []column
	leaves  []int
	most    int64           // rows of a batch
	deleted *roaring.Bitmap // positions; nil: none

	groups  []int // that are still to be read, rising
	from    int64 // no row below
	readers []*pqarrow.ColumnReader
	at, end int64      // what of the current row group is still to be read
	step    int64      // rows of the next batch
	ahead   chan fetch // of groups[0]; nil: it is not fetched ahead

	positions []int64
	idx       []int32
	stats     lake.ReadStats
	err       error
	missing   func(error) error // says what a file means that is not there; nil: nobody does
}

// column is one of those that are read.
type column struct {
	millrace.Column
	field  int // of the file; -1: it has none
	leaves []int
	align  align
}

// fetch is the bytes of a row group.
type fetch struct {
	spans []span
	err   error
}

var _ lake.Rows = (*rows)(nil)

// reading says what is read of a file.
type reading struct {
	lake.Read
	// deleted are positions that are left out; nil: none.
	deleted *roaring.Bitmap
	// mayHold leaves out row groups by the statistics of their columns; nil: none.
	mayHold func(stats func(millrace.Column) (filter.Stats, bool)) bool
}

// openRows begins to read a file.
func openRows(ctx context.Context, store objstore.Reader, key string, size int64, r reading) (*rows, error) {
	ctx, cancel := context.WithCancel(ctx)
	f, err := openParquet(ctx, store, key, size)
	if err != nil {
		cancel()
		return nil, err
	}
	out := &rows{
		ctx: ctx, cancel: cancel, file: f, schema: row.ArrowSchema(r.Columns), deleted: r.deleted,
		most: maxBatchRows, from: max(0, r.From),
	}
	if r.BatchRows > 0 {
		out.most = int64(r.BatchRows)
	}
	if err := f.guard(func() error { return out.plan(r) }); err != nil {
		cancel()
		return nil, err
	}
	return out, nil
}

// plan finds the columns in the file, and the row groups that are read.
func (r *rows) plan(read reading) error {
	for _, c := range read.Columns {
		col, err := r.file.find(c)
		if err != nil {
			return err
		}
		r.columns = append(r.columns, col)
		r.leaves = append(r.leaves, col.leaves...)
	}
	slices.Sort(r.leaves)
	r.leaves = slices.Compact(r.leaves)
	starts := r.file.starts
	for g := range len(starts) - 1 {
		if starts[g+1] <= r.from {
			continue
		}
		if !r.file.mayMatch(g, &read) {
			r.stats.RowsSkipped += starts[g+1] - max(starts[g], r.from)
			continue
		}
		r.groups = append(r.groups, g)
	}
	r.fetchAhead()
	return nil
}

// find looks for a column in the file, by id.
func (f *parquetFile) find(c millrace.Column) (column, error) {
	fields := f.fr.Manifest.Fields
	col := column{Column: c, field: indexField(fields, c.ID)}
	var err error
	switch {
	case col.field >= 0:
		field := &fields[col.field]
		if col.leaves, err = leavesOf(field, c.Type); err == nil {
			col.align, err = newAlign(pruned(field, col.leaves), c.Type)
		}
	case !c.Nullable:
		err = errors.New("it is NOT NULL, but not there")
	}
	if err != nil {
		return col, fmt.Errorf("column %q: %w", c.Name, err)
	}
	return col, nil
}

// mayMatch says whether a row group may hold a row that is wanted.
func (f *parquetFile) mayMatch(group int, r *reading) bool {
	stats := func(c millrace.Column) (filter.Stats, bool) { return f.columnStats(group, c) }
	if r.mayHold != nil && !r.mayHold(stats) {
		return false
	}
	return r.Filter == nil || r.Filter.MayMatch(func(name string) (filter.Stats, bool) {
		i := r.Schema.Index(name)
		if i < 0 {
			return filter.Stats{}, false
		}
		return stats(r.Schema.Columns[i])
	})
}

// columnStats are the statistics of a scalar column of a row group; false when there
// are none.
func (f *parquetFile) columnStats(group int, c millrace.Column) (filter.Stats, bool) {
	field := indexField(f.fr.Manifest.Fields, c.ID)
	switch {
	case c.Type.Nested():
		return filter.Stats{}, false
	case field < 0: // the file is older than the column
		n := f.starts[group+1] - f.starts[group]
		return filter.Stats{Rows: n, Nulls: n}, true
	}
	leaf := f.fr.Manifest.Fields[field].ColIndex
	if leaf < 0 {
		return filter.Stats{}, false
	}
	return groupStats(f.rd.MetaData(), group, leaf, c.Type)
}

// fetchAhead begins to fetch the next row group, if it is small enough to be held.
func (r *rows) fetchAhead() {
	r.ahead = nil
	if len(r.groups) == 0 || len(r.leaves) == 0 {
		return
	}
	extents, err := r.file.chunks(r.groups[0], r.leaves)
	var total int64
	for _, e := range r.file.src.joined(extents) {
		total += e.to - e.from
	}
	if err != nil || total > maxGroupBytes {
		return // opening it says what is wrong
	}
	ahead := make(chan fetch, 1)
	r.ahead = ahead
	go func() {
		spans, err := r.file.src.fetch(r.ctx, extents)
		ahead <- fetch{spans, err}
	}()
}

// Next implements lake.Rows.
func (r *rows) Next() (arrow.RecordBatch, []int64, error) {
	for r.err == nil {
		var batch arrow.RecordBatch
		err := r.file.guard(func() (err error) {
			batch, err = r.next()
			return err
		})
		if err != nil && r.missing != nil {
			err = r.missing(err)
		}
		if err != nil {
			r.err = err
			break
		}
		if batch == nil {
			r.err = io.EOF
			break
		}
		if batch = r.live(batch); batch != nil {
			return batch, r.positions, nil
		}
	}
	return nil, nil, r.err
}

// next decodes the next batch, deleted rows and all; nil at the end.
func (r *rows) next() (arrow.RecordBatch, error) {
	for r.at == r.end {
		if len(r.groups) == 0 {
			return nil, nil
		}
		if err := r.openGroup(); err != nil {
			return nil, err
		}
	}
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	n := min(r.step, r.most, r.end-r.at)
	batch, err := r.decode(n)
	if err != nil {
		return nil, err
	}
	r.positions = r.positions[:0]
	for i := range n {
		r.positions = append(r.positions, r.at+i)
	}
	r.at += n
	if size := batchBytes(batch); size > wantBatchBytes {
		r.step = max(1, r.step/2)
	} else if size < wantBatchBytes/4 {
		r.step = min(r.step*4, maxBatchRows)
	}
	return batch, nil
}

// openGroup begins the next row group at its first row that is wanted.
func (r *rows) openGroup() error {
	r.closeGroup()
	g := r.groups[0]
	start := r.file.starts[g]
	r.at, r.end, r.step = max(start, r.from), r.file.starts[g+1], firstBatchRows
	if _, err := r.file.chunks(g, r.leaves); err != nil {
		return err
	}
	r.file.src.held, r.file.props.BufferSize = nil, streamBytes
	if r.ahead != nil {
		got := <-r.ahead
		r.ahead = nil
		if got.err != nil {
			return got.err
		}
		r.file.src.held, r.file.props.BufferSize = got.spans, heldBytes
	}
	r.groups = r.groups[1:]
	r.fetchAhead()
	r.readers = make([]*pqarrow.ColumnReader, len(r.columns))
	for i := range r.columns {
		if err := r.openColumn(i, g, r.at-start); err != nil {
			return err
		}
	}
	return nil
}

// openColumn begins to read a column of a row group at a row of it.
func (r *rows) openColumn(i, group int, skip int64) error {
	c := &r.columns[i]
	if c.field < 0 {
		return nil
	}
	leaves := make(map[int]bool, len(c.leaves))
	for _, l := range c.leaves {
		leaves[l] = true
	}
	rd, err := r.file.fr.GetFieldReader(r.ctx, c.field, leaves, []int{group})
	if err != nil {
		return err
	}
	r.readers[i] = rd
	if skip > 0 && !r.file.repeated(c.leaves) {
		return rd.SeekToRow(skip)
	}
	for skip > 0 {
		n := min(skip, firstBatchRows)
		passed, err := rd.NextBatch(n)
		if err != nil {
			return err
		}
		got := int64(passed.Len())
		passed.Release()
		if got != n {
			return fmt.Errorf("column %q ends early", c.Name)
		}
		skip -= n
	}
	return nil
}

// repeated says whether leaves lie in lists or maps.
func (f *parquetFile) repeated(leaves []int) bool {
	return slices.ContainsFunc(leaves, func(l int) bool { return f.rd.MetaData().Schema.Column(l).MaxRepetitionLevel() > 0 })
}

// decode reads the next n rows of the row group.
func (r *rows) decode(n int64) (arrow.RecordBatch, error) {
	arrs := make([]arrow.Array, len(r.columns))
	defer func() {
		for _, a := range arrs {
			if a != nil {
				a.Release()
			}
		}
	}()
	for i := range r.columns {
		var err error
		if arrs[i], err = r.decodeColumn(i, n); err != nil {
			return nil, fmt.Errorf("column %q: %w", r.columns[i].Name, err)
		}
	}
	return array.NewRecordBatch(r.schema, arrs, n), nil
}

func (r *rows) decodeColumn(i int, n int64) (arrow.Array, error) {
	c := &r.columns[i]
	if c.field < 0 {
		return row.BuildNulls(memory.DefaultAllocator, c.Type, int(n)), nil
	}
	chunked, err := r.readers[i].NextBatch(n)
	if err != nil {
		return nil, err
	}
	defer chunked.Release()
	if int64(chunked.Len()) != n {
		return nil, fmt.Errorf("it has %d rows where there are %d", chunked.Len(), n)
	}
	chunk := chunked.Chunk(0)
	if len(chunked.Chunks()) > 1 {
		if chunk, err = array.Concatenate(chunked.Chunks(), memory.DefaultAllocator); err != nil {
			return nil, err
		}
		defer chunk.Release()
	}
	data, err := c.align(chunk.Data())
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return array.MakeFromData(data), nil
}

// live leaves deleted rows out; nil when none is left.
func (r *rows) live(batch arrow.RecordBatch) arrow.RecordBatch {
	if r.deleted == nil {
		return batch
	}
	r.idx = r.idx[:0]
	kept := r.positions[:0]
	for i, p := range r.positions {
		if !r.deleted.Contains(uint32(p)) {
			r.idx = append(r.idx, int32(i))
			kept = append(kept, p)
		}
	}
	r.positions = kept
	defer batch.Release()
	if len(kept) == 0 {
		return nil
	}
	return row.Take(memory.DefaultAllocator, batch, r.idx)
}

func batchBytes(batch arrow.RecordBatch) (n int64) {
	for _, c := range batch.Columns() {
		n += int64(c.Data().SizeInBytes())
	}
	return n
}

// Stats implements lake.Rows.
func (r *rows) Stats() lake.ReadStats {
	st := r.stats
	st.BytesRead = r.file.src.read.Load()
	st.BytesSkipped = max(0, r.file.src.size-st.BytesRead)
	return st
}

func (r *rows) closeGroup() {
	for _, rd := range r.readers {
		if rd != nil {
			rd.Release()
		}
	}
	r.readers = nil
}

// Close implements lake.Rows.
func (r *rows) Close() error {
	r.cancel()
	r.closeGroup()
	if r.ahead != nil {
		<-r.ahead
		r.ahead = nil
	}
	if r.err == nil {
		r.err = errs.New(errs.Internal, "the rows of file %s were closed", r.file.src.key)
	}
	return nil
}
