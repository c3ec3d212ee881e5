package router

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
)

// lakeBatchRows bounds the rows of the lake that a reader has in memory; formats bound
// their bytes. Smaller ones made narrow reads dearer (R13).
const lakeBatchRows = 32 << 10

// readLake gives the next chunk of a part's rows in the lake. No chunk and no error:
// look at the part again, or go on behind them when they were read to the end.
func (rd *Reader) readLake(ctx context.Context, pr *partReader) (*Chunk, error) {
	if err := rd.overlays(ctx, pr); err != nil || !pr.lake {
		return nil, err
	}
	if pr.file == nil {
		if err := rd.plan.listParts(ctx, (*Part).ofFiles); err != nil {
			return nil, err
		}
		files := rd.plan.filesOf(&pr.Part)
		if pr.File >= len(files) {
			pr.lake = false
			return nil, nil
		}
		if err := rd.enterRoom(ctx); err != nil { // for what opening it reads
			return nil, err
		}
		file, err := rd.plan.history.snap.Rows(ctx, &files[pr.File], rd.lakeRead(pr))
		if err != nil {
			return nil, err
		}
		pr.file = file
		rd.stats.LakeFiles++
	}
	if err := rd.enterRoom(ctx); err != nil {
		return nil, err
	}
	batch, positions, err := pr.file.Next()
	rd.countFile(pr)
	switch {
	case errors.Is(err, io.EOF):
		pr.File, pr.Row = pr.File+1, 0
		return nil, rd.closeFile(pr)
	case err != nil:
		return nil, err
	}
	defer batch.Release()
	return rd.lakeChunk(pr, batch, positions)
}

// lakeRead says what is read of the files of a part.
func (rd *Reader) lakeRead(pr *partReader) lake.Read {
	p := rd.plan
	most := lakeBatchRows
	if rd.left >= 0 { // a small limit reads little; a filter may have to look at more
		most = int(min(lakeBatchRows, max(rd.left, 256)))
	}
	return lake.Read{Columns: rd.lakeColumns(pr), Schema: p.Table.Schema, Filter: p.filter, From: pr.Row, BatchRows: most}
}

// lakeColumns are read of the lake: those of state, and one at least, since rows without
// columns could not be counted.
func (p *Plan) lakeColumns() []millrace.Column {
	cols := p.stateColumns()
	if len(cols) == 0 {
		cols = p.Table.Schema.Columns[:1]
	}
	return cols
}

// lakeColumns are the columns that a part reads of the lake: also those of the key, when
// rows are left out by it.
func (rd *Reader) lakeColumns(pr *partReader) []millrace.Column {
	cols := rd.plan.lakeColumns()
	if pr.over == nil || len(pr.over.gone) == 0 {
		return cols
	}
	cols = slices.Clone(cols)
	for _, c := range rd.plan.Table.Columns(rd.plan.Table.PrimaryKey) {
		if !slices.ContainsFunc(cols, func(h millrace.Column) bool { return h.ID == c.ID }) {
			cols = append(cols, c)
		}
	}
	return cols
}

// countFile counts what reading a file has cost since it was asked last.
func (rd *Reader) countFile(pr *partReader) {
	s := pr.file.Stats()
	rd.stats.RowsSkipped += s.RowsSkipped - pr.cost.RowsSkipped
	rd.stats.BytesRead += s.BytesRead - pr.cost.BytesRead
	rd.stats.BytesSkipped += s.BytesSkipped - pr.cost.BytesSkipped
	pr.cost = s
}

// closeFile ends the read of a file of the lake.
func (rd *Reader) closeFile(pr *partReader) error {
	if pr.file == nil {
		return nil
	}
	rd.countFile(pr)
	err := pr.file.Close()
	pr.file, pr.cost = nil, lake.ReadStats{}
	return err
}

// lakeChunk filters a batch of the lake and cuts it to the limit.
func (rd *Reader) lakeChunk(pr *partReader, batch arrow.RecordBatch, positions []int64) (*Chunk, error) {
	n, cols := int(batch.NumRows()), rd.lakeColumns(pr)
	if len(positions) != n || int(batch.NumCols()) != len(cols) {
		return nil, errs.New(errs.Internal, "a batch of the lake has %d rows at %d places, in %d columns", n, len(positions), batch.NumCols())
	}
	if n == 0 {
		return nil, nil
	}
	rec := array.NewRecordBatch(row.ArrowSchema(cols), batch.Columns(), batch.NumRows())
	defer rec.Release()
	rd.stats.RowsRead += int64(n)
	c := &Chunk{
		BucketKey: pr.Key, PartitionName: pr.Partition, Bucket: pr.Bucket.Bucket,
		Base: millrace.NoOffset, Next: pr.Start, HighWatermark: pr.Start, rd: rd, part: pr,
	}
	sel, err := rd.lakeRows(c, rec)
	if err != nil {
		return nil, err
	}
	if pr.over != nil && len(pr.over.gone) > 0 {
		sel = pr.over.standing(rec, keysIn(rd.plan.Table, cols), sel)
	}
	pr.Row, pr.cut = positions[n-1]+1, false
	if rd.left >= 0 && int64(len(sel)) > rd.left {
		sel = sel[:rd.left]
		pr.Row, pr.cut = positions[sel[len(sel)-1]]+1, true
	}
	if c.Rows = len(sel); c.Rows == 0 {
		return nil, nil
	}
	out := row.Project(rec, indexes(len(rd.plan.Data)))
	defer out.Release()
	c.state = row.Take(memory.DefaultAllocator, out, sel)
	c.at = make([]int64, len(sel))
	for i, s := range sel {
		c.at[i] = positions[s]
	}
	return c, nil
}

// lakeRows are the rows of a batch that are given.
func (rd *Reader) lakeRows(c *Chunk, rec arrow.RecordBatch) ([]int32, error) {
	f := rd.plan.filter
	if f == nil {
		out := make([]int32, rec.NumRows())
		for i := range out {
			out[i] = int32(i)
		}
		return out, nil
	}
	with, err := rd.filterRecord(c, rec)
	if err != nil {
		return nil, err
	}
	defer with.Release()
	return f.Select(with)
}

// moreInLake says whether there may be rows of the lake behind those that were given.
// It looks at the file being read, so nothing may be read after it.
func (rd *Reader) moreInLake(pr *partReader) bool {
	if pr.cut || pr.file == nil || pr.File+1 < len(rd.plan.filesOf(&pr.Part)) {
		return true
	}
	batch, _, err := pr.file.Next()
	if err == nil {
		batch.Release()
	}
	pr.lake = !errors.Is(err, io.EOF)
	return pr.lake
}

// readsFiles says whether parts have rows of the lake to read.
func readsFiles(parts []Part) bool {
	return slices.ContainsFunc(parts, func(p Part) bool { return p.Lake || p.Overlay })
}
