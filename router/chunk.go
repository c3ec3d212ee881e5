package router

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
)

// Chunk is rows of one bucket on their way out, or of several of one partition.
type Chunk struct {
	BucketKey     string          // "" of NoBucket
	PartitionName string          // "" on tables without partitions
	Bucket        uint16          // NoBucket for rows of several
	Base          millrace.Offset // of the first row; NoOffset for rows of keyed state and of the lake
	Next          millrace.Offset // where the bucket's log is read on after this chunk
	HighWatermark millrace.Offset
	Rows          int
	Micros        int64 // time of the last row; 0 for rows of keyed state and of the lake

	rd *Reader
	// Of the log: rows [lo, hi) of a batch, or sel when a filter took some.
	batch  *bucket.Batch
	lo, hi int
	sel    []int32
	stands bool // the rows stand for keys, as those of state do: without offset and time
	// What each record of the batch did; the binlog view only, nil when all are +I.
	changes []millrace.ChangeType
	// Of keyed state and of the lake: the data columns of the answer; and of state the
	// keys of the rows, of the lake where each stands in its file.
	state arrow.RecordBatch
	keys  *stateGroup
	at    []int64
	part  *partReader
	far   *Frame // of rows that came from elsewhere; then there is no batch and no state
	room  int64  // what it was given of the room
}

// stateKey is the primary key of a row of keyed state.
func (c *Chunk) stateKey(i int) []byte {
	if c.sel != nil {
		i = int(c.sel[i])
	}
	return c.keys.key(i)
}

// Release lets go of what the chunk stands on.
func (c *Chunk) Release() {
	if c.batch != nil {
		c.rd.release(c.batch)
		c.batch = nil
	}
	if c.state != nil {
		c.state.Release()
		c.state = nil
	}
	c.rd.leaveRoom()
}

// release lets go of a batch of a log, and counts what was read of it.
func (rd *Reader) release(b *bucket.Batch) {
	p := b.Payload
	rd.stats.BytesRead += p.BytesRead()
	rd.stats.BytesSkipped += max(0, p.Size()-p.BytesRead())
	if err := b.Release(); err != nil {
		rd.r.o.Logger.Warn("segment close failed", errAttr(err))
	}
}

// Whole says whether the chunk is a stored batch as it lies.
func (c *Chunk) whole() bool {
	return c.batch != nil && c.sel == nil && c.lo == 0 && c.hi == c.batch.Header.Rows
}

// Record decodes the chunk into the plan's columns. The caller releases it.
func (c *Chunk) Record() (arrow.RecordBatch, error) {
	if c.far != nil {
		return c.farRecord()
	}
	if c.rd.plan.View == BinlogView {
		return c.images()
	}
	data, system := splitColumns(c.rd.plan.Columns)
	var rec arrow.RecordBatch
	if c.state != nil {
		c.state.Retain()
		rec = c.state
	} else {
		var err error
		rec, err = c.batch.Payload.Record(memory.DefaultAllocator, c.rd.plan.schemas(c.rd.r), data)
		if err != nil {
			return nil, err
		}
		c.decoded(rec)
		if c.sel != nil {
			taken := row.Take(memory.DefaultAllocator, rec, c.sel)
			rec.Release()
			rec = taken
		} else {
			rec = sliceRecord(rec, c.lo, c.hi)
		}
	}
	if len(system) == 0 {
		return c.withSchema(rec), nil
	}
	return c.withSystem(rec, data, system, c.rd.plan.Columns)
}

// withSchema gives rec, which it takes over, the plan's schema.
func (c *Chunk) withSchema(rec arrow.RecordBatch) arrow.RecordBatch {
	defer rec.Release()
	return array.NewRecordBatch(c.rd.plan.Schema, rec.Columns(), rec.NumRows())
}

func splitColumns(cols []millrace.Column) (data, system []millrace.Column) {
	for _, c := range cols {
		if isSystem(c) {
			system = append(system, c)
		} else {
			data = append(data, c)
		}
	}
	return data, system
}

// withSystem puts system columns to the data columns of rec, which it takes over:
// in the order given, or behind them when order is nil.
func (c *Chunk) withSystem(rec arrow.RecordBatch, data, system, order []millrace.Column) (arrow.RecordBatch, error) {
	defer rec.Release()
	if order == nil {
		order = append(slices.Clone(data), system...)
	}
	rows := c.rowsOf(rec)
	arrs := make([]arrow.Array, len(order))
	fields := make([]arrow.Field, len(order))
	next := 0
	for i, col := range order {
		fields[i] = arrow.Field{Name: col.Name, Type: row.ArrowType(col.Type), Nullable: col.Nullable}
		if !isSystem(col) {
			arrs[i] = rec.Column(next)
			arrs[i].Retain()
			next++
			continue
		}
		a, err := c.systemArray(col.ID, rows)
		if err != nil {
			return nil, err
		}
		arrs[i] = a
	}
	schema := arrow.NewSchema(fields, nil)
	if len(order) == len(c.rd.plan.Columns) && &order[0] == &c.rd.plan.Columns[0] {
		schema = c.rd.plan.Schema
	}
	out := array.NewRecordBatch(schema, arrs, rec.NumRows())
	for _, a := range arrs {
		a.Release()
	}
	return out, nil
}

// rowsOf is the rows of the batch that rec holds; while a filter is being applied
// that is [lo, hi).
func (c *Chunk) rowsOf(rec arrow.RecordBatch) []int32 {
	if c.sel != nil && c.batch != nil {
		return c.sel
	}
	out := make([]int32, rec.NumRows())
	for i := range out {
		out[i] = int32(c.lo + i)
	}
	return out
}

// systemArray is a system column for the given rows of the batch, or for as many
// rows of keyed state.
func (c *Chunk) systemArray(id millrace.ColumnID, rows []int32) (arrow.Array, error) {
	mem := memory.DefaultAllocator
	switch id {
	case idChangeType:
		return c.changeTypes(mem, rows)
	case idLogOffset:
		b := array.NewInt64Builder(mem)
		defer b.Release()
		b.Reserve(len(rows))
		for _, r := range rows {
			if c.batch == nil || c.stands {
				b.AppendNull()
			} else {
				b.UnsafeAppend(int64(c.batch.Header.Base) + int64(c.first(r)))
			}
		}
		return b.NewArray(), nil
	case idCommitTimestamp:
		b := array.NewTimestampBuilder(mem, row.ArrowType(systemColumn(id).Type).(*arrow.TimestampType))
		defer b.Release()
		b.Reserve(len(rows))
		for _, r := range rows {
			if c.batch == nil || c.stands {
				b.AppendNull()
			} else {
				b.UnsafeAppend(arrow.Timestamp(c.batch.Header.TimeAt(int(r)) / 1000))
			}
		}
		return b.NewArray(), nil
	case idPartition:
		b := array.NewStringBuilder(mem)
		defer b.Release()
		for range rows {
			if c.PartitionName == "" {
				b.AppendNull()
			} else {
				b.Append(c.PartitionName)
			}
		}
		return b.NewArray(), nil
	case idBucket:
		b := array.NewInt32Builder(mem)
		defer b.Release()
		b.Reserve(len(rows))
		for range rows {
			if c.Bucket == NoBucket {
				b.AppendNull()
			} else {
				b.UnsafeAppend(int32(c.Bucket))
			}
		}
		return b.NewArray(), nil
	}
	panic(fmt.Sprintf("router: no system column %d", id))
}

func (c *Chunk) changeTypes(mem memory.Allocator, rows []int32) (arrow.Array, error) {
	var changes []millrace.ChangeType
	if c.batch != nil {
		var err error
		if changes, err = c.batch.Payload.Changes(); err != nil {
			return nil, err
		}
	}
	b := array.NewStringBuilder(mem)
	defer b.Release()
	b.Reserve(len(rows))
	b.ReserveData(2 * len(rows))
	for _, r := range rows {
		t := millrace.Insert
		if changes != nil {
			t = changes[r]
		}
		if c.rd.plan.View == BinlogView {
			b.Append(binlogType(t))
		} else {
			b.Append(t.String())
		}
	}
	return b.NewArray(), nil
}

// Shipment is a chunk, or a part of one, as an Arrow message.
type Shipment struct {
	Message *segment.Message
	Rows    int
	Base    millrace.Offset // of the first row; NoOffset for keyed state
	Next    millrace.Offset // where the log is read on after it
	Micros  int64
}

// Ship makes the Arrow messages of the chunk, each with a body of at most about
// most bytes. A stored batch goes as it lies, unless that is too large.
func (c *Chunk) Ship(codec segment.Codec, most int) ([]Shipment, error) {
	if c.far != nil {
		return c.farShip(codec, most)
	}
	if c.whole() {
		data, system := splitColumns(c.rd.plan.Columns)
		if c.batch.Payload.Size() <= int64(most) || len(data) < len(c.rd.plan.Table.Schema.Columns) {
			m, err := c.stored(data, system, codec)
			if err != nil {
				return nil, err
			}
			if len(m.Body) <= most {
				return []Shipment{{Message: m, Rows: c.Rows, Base: c.Base, Next: c.Next, Micros: c.Micros}}, nil
			}
			m.Release()
		}
	}
	rec, err := c.Record()
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	if codec == segment.Stored {
		codec = segment.None
		if c.batch != nil && c.batch.Payload.Encoding() == segment.Columns {
			codec = c.batch.Payload.Codec()
		}
	}
	return c.cutUp(rec, codec, most)
}

// stored ships a stored batch without decoding it.
func (c *Chunk) stored(data, system []millrace.Column, codec segment.Codec) (*segment.Message, error) {
	var extra []segment.ExtraColumn
	defer func() {
		for _, e := range extra {
			e.Array.Release()
		}
	}()
	if len(system) > 0 {
		rows := make([]int32, c.Rows)
		for i := range rows {
			rows[i] = int32(i)
		}
		for pos, col := range c.rd.plan.Columns {
			if isSystem(col) {
				a, err := c.systemArray(col.ID, rows)
				if err != nil {
					return nil, err
				}
				extra = append(extra, segment.ExtraColumn{Position: pos, Array: a})
			}
		}
	}
	return c.batch.Payload.Message(c.rd.plan.schemas(c.rd.r), data, extra, codec)
}

// cutUp encodes a record in pieces, without parting a -U from its +U.
func (c *Chunk) cutUp(rec arrow.RecordBatch, codec segment.Codec, most int) ([]Shipment, error) {
	var changes []millrace.ChangeType
	if c.batch != nil {
		var err error
		if changes, err = c.batch.Payload.Changes(); err != nil {
			return nil, err
		}
	}
	var out []Shipment
	start := 0
	for _, rng := range segment.SplitRows(rec, most) {
		end := rng.End
		if end <= start {
			continue // the piece before took this row along
		}
		if changes != nil && end < c.Rows && changes[c.row(end-1)] == millrace.UpdateBefore && c.row(end) == c.row(end-1)+1 {
			end++
		}
		piece := rec.NewSlice(int64(start), int64(end))
		m, err := segment.EncodeMessage(piece, codec)
		piece.Release()
		if err != nil {
			return nil, err
		}
		s := Shipment{Message: m, Rows: end - start, Base: c.Base, Next: c.Next, Micros: c.Micros}
		if c.batch != nil && !c.stands {
			h := &c.batch.Header
			s.Base = h.Base + millrace.Offset(c.row(start))
			s.Micros = h.TimeAt(c.row(end - 1))
			if end < c.Rows {
				s.Next = h.Base + millrace.Offset(c.row(end-1)) + 1
			}
		}
		out = append(out, s)
		start = end
	}
	return out, nil
}
