package router

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/shard"
)

// Bounds of a chunk of keyed state.
const (
	stateChunkRows  = 8192
	stateChunkBytes = 2 << 20
)

// readState gives the next chunk of a part's keyed state. No chunk and no error:
// look at the part again, or at its log when the state was read to the end.
func (rd *Reader) readState(ctx context.Context, pr *partReader) (*Chunk, error) {
	if pr.rows == nil {
		sn, err := rd.stateSnapshot(pr)
		if err != nil {
			return nil, err
		}
		if pr.rows, err = sn.Rows(ctx, pr.Bucket, pr.Prefix, pr.After); err != nil {
			return nil, err
		}
	}
	if err := rd.enterRoom(ctx); err != nil {
		return nil, err
	}
	group, err := rd.gather(pr)
	if err != nil {
		return nil, err
	}
	if group.rec == nil {
		return nil, pr.closeState()
	}
	rd.stats.RowsRead += int64(len(group.ends))
	rd.stats.BytesRead += group.bytes
	return rd.stateChunk(pr, group)
}

// stateGroup is rows of keyed state, decoded, and their keys.
type stateGroup struct {
	rec   arrow.RecordBatch
	bytes int64
	keys  []byte
	ends  []int // of each key in keys
}

func (g *stateGroup) key(i int) []byte {
	from := 0
	if i > 0 {
		from = g.ends[i-1]
	}
	return g.keys[from:g.ends[i]]
}

// gather decodes the next rows: the data columns of the answer, then those that
// only the filter needs.
func (rd *Reader) gather(pr *partReader) (*stateGroup, error) {
	most := int64(stateChunkRows)
	if rd.left >= 0 {
		// A small limit reads little; a filter may have to look at more.
		most = min(most, max(rd.left, 256))
		if rd.plan.filter == nil {
			most = min(most, rd.left)
		}
	}
	find := rd.plan.schemas(rd.r)
	r := guardedRows{Reader: row.NewReader(memory.DefaultAllocator, find, rd.plan.stateColumns()), guard: &rd.guard, find: find}
	g := &stateGroup{}
	for int64(len(g.ends)) < most && r.Bytes() < stateChunkBytes && pr.rows.Next() {
		if err := r.Append(pr.rows.Row()); err != nil {
			return nil, errors.Join(err, pr.closeState())
		}
		g.bytes += int64(len(pr.rows.Row()))
		g.keys = append(g.keys, pr.rows.Key()...)
		g.ends = append(g.ends, len(g.keys))
	}
	if len(g.ends) == 0 {
		return g, nil
	}
	g.rec = r.Record()
	return g, nil
}

// stateChunk filters a group and cuts it to the limit.
func (rd *Reader) stateChunk(pr *partReader, g *stateGroup) (*Chunk, error) {
	defer g.rec.Release()
	n := len(g.ends)
	c := &Chunk{BucketKey: pr.Key, PartitionName: pr.Partition, Bucket: pr.Bucket.Bucket, Base: millrace.NoOffset, Next: pr.Start, HighWatermark: pr.Start, rd: rd, part: pr, Rows: n}
	var sel []int32
	if f := rd.plan.filter; f != nil {
		rec, err := rd.filterRecord(c, g.rec)
		if err != nil {
			return nil, err
		}
		sel, err = f.Select(rec)
		rec.Release()
		if err != nil {
			return nil, err
		}
		c.Rows = len(sel)
	}
	last := n - 1
	if rd.left >= 0 && int64(c.Rows) > rd.left {
		c.Rows = int(rd.left)
		if sel != nil {
			sel = sel[:c.Rows]
			last = int(sel[c.Rows-1])
		} else {
			last = c.Rows - 1
		}
	}
	pr.After, pr.cut = bytes.Clone(g.key(last)), last < n-1
	if c.Rows == 0 {
		return nil, nil
	}
	out := row.Project(g.rec, indexes(len(rd.plan.Data)))
	switch {
	case sel != nil && len(sel) < n:
		taken := row.Take(memory.DefaultAllocator, out, sel)
		out.Release()
		out = taken
	case c.Rows < n:
		out = sliceRecord(out, 0, c.Rows)
	}
	c.state, c.sel, c.keys = out, sel, g
	return c, nil
}

// filterRecord is a state record with the system columns that the filter names.
func (rd *Reader) filterRecord(c *Chunk, rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	var system []millrace.Column
	for _, name := range rd.plan.filter.ColumnNames() {
		for _, col := range systemColumns {
			if col.Name == name {
				system = append(system, col)
			}
		}
	}
	rec.Retain()
	if len(system) == 0 {
		return rec, nil
	}
	return c.withSystem(rec, rd.plan.stateColumns(), system, nil)
}

// stateColumns are the data columns of the answer and those only the filter needs.
func (p *Plan) stateColumns() []millrace.Column {
	if p.filter == nil {
		return p.Data
	}
	out := slices.Clone(p.Data)
	for _, name := range p.filter.ColumnNames() {
		i := p.Table.Schema.Index(name)
		if i < 0 {
			continue
		}
		have := false
		for _, c := range out {
			have = have || c.Name == name
		}
		if !have {
			out = append(out, p.Table.Schema.Columns[i])
		}
	}
	return out
}

// stateSnapshot is the snapshot that a part reads: the plan's, or a held one.
func (rd *Reader) stateSnapshot(pr *partReader) (*shard.Snapshot, error) {
	if pr.Snapshot == "" {
		if pin := rd.plan.snaps[pr.Shard]; pin.sn != nil {
			return pin.sn, nil
		}
		return nil, errs.New(errs.SnapshotGone, "the snapshot that bucket %s was read from is no longer held: start the read again", pr.Key)
	}
	sh, err := rd.r.here(pr.Shard)
	if err != nil {
		return nil, err
	}
	sn, err := sh.Held(pr.Snapshot)
	if err != nil {
		return nil, err
	}
	pr.held = sn
	return sn, nil
}

// closeState ends the read of a part's keyed state.
func (pr *partReader) closeState() error {
	var err error
	if pr.rows != nil {
		err = pr.rows.Close()
		pr.rows = nil
	}
	if pr.held != nil {
		pr.held.Release()
		pr.held = nil
	}
	pr.state = false
	return err
}
