package segment

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// EncodeOptions is how columns are encoded.
type EncodeOptions struct {
	Codec Codec

	// dense is 1 + the number of a column that is known not to compress.
	dense int
}

// columnEncoder holds what AppendColumns needs again and again.
type columnEncoder struct {
	w       chunkWriter
	columns []plannedColumn
	stats   []byte // of all columns
}

// plannedColumn is a column whose chunk is not written yet.
type plannedColumn struct {
	entry
	statsFrom, statsTo int // in columnEncoder.stats
}

var columnEncoders = sync.Pool{New: func() any { return new(columnEncoder) }}

// AppendColumns appends a columnar payload to dst. rec has all columns of the
// schema, in order, in the types of row.ArrowType; slices are written as if they
// stood alone. changes has one change type a row; nil means that all are +I. It
// fails with errs.TooLarge.
func AppendColumns(dst []byte, schema *millrace.Schema, rec arrow.RecordBatch, changes []millrace.ChangeType, o EncodeOptions) ([]byte, error) {
	rows := int(rec.NumRows())
	checkEncodable(schema, rec, changes)
	if rows > MaxPayloadRows {
		return dst, errs.New(errs.TooLarge, "a batch of %d rows; at most %d fit in one", rows, MaxPayloadRows)
	}
	raw := recordBytes(rec, 0, rows)
	if raw > MaxPayloadBytes {
		return dst, errs.New(errs.TooLarge, "a batch of %d bytes; at most %d fit in one", raw, MaxPayloadBytes)
	}
	e := columnEncoders.Get().(*columnEncoder)
	defer columnEncoders.Put(e)
	comp := getCompressor()
	defer putCompressor(comp)

	h := payloadHead{encoding: Columns, codec: o.Codec, schema: schema.ID, rows: rows, columns: len(schema.Columns)}
	if needsChanges(changes) {
		h.flags |= flagChanges
	}
	h.metaLen = e.plan(schema, rec)

	base := len(dst)
	dst = slices.Grow(dst, h.firstChunk()+raw/2)
	dst = append(dst, make([]byte, h.metaLen)...)
	if h.flags&flagChanges != 0 {
		start := len(dst)
		dst = appendZeros(appendChanges(dst, changes), base, chunkAlign)
		h.dataCRC = crcOf(dst[start:])
	}
	for i := range e.columns {
		comp.dense = i+1 == o.dense
		dst = e.chunk(dst, base, i, rec.Column(i).Data(), o.Codec, comp)
	}
	comp.dense = false
	h.size = int64(len(dst) - base)
	if h.size > MaxPayloadBytes {
		return dst[:base], errs.New(errs.TooLarge, "a payload of %d bytes; at most %d are allowed", h.size, MaxPayloadBytes)
	}
	h.put(dst[base:][:h.metaLen])
	return dst, nil
}

// encodeScratch holds buffers that payloads are made in: their length is known only
// when they are compressed, and a buffer that grows is cleared and copied.
var encodeScratch = sync.Pool{New: func() any { return new([]byte) }}

// maxEncodeScratch is the largest buffer that is kept.
const maxEncodeScratch = 4 << 20

// EncodeColumns is AppendColumns into a buffer of about the payload's length.
func EncodeColumns(schema *millrace.Schema, rec arrow.RecordBatch, changes []millrace.ChangeType, o EncodeOptions) ([]byte, error) {
	if o.dense = denseColumn(rec); o.dense > 0 || o.Codec == None {
		return AppendColumns(make([]byte, 0, mostBytes(schema, rec)), schema, rec, changes, o)
	}
	scratch := encodeScratch.Get().(*[]byte)
	defer encodeScratch.Put(scratch)
	payload, err := AppendColumns((*scratch)[:0], schema, rec, changes, o)
	if err != nil {
		return nil, err
	}
	if cap(payload) <= maxEncodeScratch {
		*scratch = payload
	}
	return bytes.Clone(payload), nil
}

// denseColumn is 1 + the number of the column that is most of a batch and does not
// compress; 0 when there is none.
func denseColumn(rec arrow.RecordBatch) int {
	raw := recordBytes(rec, 0, int(rec.NumRows()))
	for i, c := range rec.Columns() {
		values, ok := c.(interface{ ValueBytes() []byte })
		if !ok || len(values.ValueBytes()) < raw-raw/8 {
			continue
		}
		comp := getCompressor()
		defer putCompressor(comp)
		if !comp.promising(values.ValueBytes()) {
			return i + 1
		}
	}
	return 0
}

// mostBytes is what a payload takes at most, and what trying to compress it takes.
func mostBytes(schema *millrace.Schema, rec arrow.RecordBatch) int {
	raw := recordBytes(rec, 0, int(rec.NumRows()))
	size := payloadHeader + int(rec.NumRows())/4 + 2*chunkAlign + raw + raw/lz4Block*8
	for i := range schema.Columns {
		nodes, buffers := shape(&schema.Columns[i].Type)
		size += entryBytes + 8*nodes + buffers*(4+lengthPrefix+bufferAlign+32) + 4*maxBoundBytes + chunkAlign
	}
	return size
}

// plan computes statistics and lays out the meta part, whose length it returns.
func (e *columnEncoder) plan(schema *millrace.Schema, rec arrow.RecordBatch) int {
	e.stats, e.columns = e.stats[:0], e.columns[:0]
	at := payloadHeader + len(schema.Columns)*entryBytes
	for i := range schema.Columns {
		c := &schema.Columns[i]
		p := plannedColumn{entry: entry{id: c.ID, kind: c.Type.Kind, detail: at}, statsFrom: len(e.stats)}
		p.nodes, p.buffers = shape(&c.Type)
		if s, ok := columnStats(p.kind, rec.Column(i).Data()); ok {
			p.bounds = boundStats
			if p.kind == millrace.Float || p.kind == millrace.Double {
				e.stats = le.AppendUint32(e.stats, uint32(s.NaNs))
			}
			if s.HasMin {
				p.bounds |= boundMin
				e.stats = appendBound(e.stats, p.kind, &s.Min)
			}
			if s.HasMax {
				p.bounds |= boundMax
				e.stats = appendBound(e.stats, p.kind, &s.Max)
			}
		}
		p.statsTo = len(e.stats)
		at += 8*p.nodes + 4*p.buffers + p.statsTo - p.statsFrom
		e.columns = append(e.columns, p)
	}
	return ceil(at, chunkAlign)
}

// chunk appends the i-th column's chunk and completes its entry and detail.
func (e *columnEncoder) chunk(dst []byte, base, i int, data arrow.ArrayData, codec Codec, comp *compressor) []byte {
	p := &e.columns[i]
	start := len(dst)
	e.w.reset(codec, comp)
	dst = e.w.array(dst, data, data.Offset(), data.Len(), start)
	dst = appendZeros(dst, start, chunkAlign)
	p.pos, p.len, p.crc = start-base, len(dst)-start, crcOf(dst[start:])

	meta := dst[base:]
	p.put(meta[payloadHeader+i*entryBytes:])
	at := p.detail
	for _, n := range e.w.nodes {
		le.PutUint32(meta[at:], uint32(n.length))
		le.PutUint32(meta[at+4:], uint32(n.nulls))
		at += 8
	}
	for _, n := range e.w.buffers {
		le.PutUint32(meta[at:], uint32(n))
		at += 4
	}
	copy(meta[at:], e.stats[p.statsFrom:p.statsTo])
	return dst
}

// shape is how many field nodes and buffers a column of type t has.
func shape(t *millrace.DataType) (nodes, buffers int) {
	nodes, buffers = 1, 2
	switch t.Kind {
	case millrace.Char, millrace.String, millrace.Bytes:
		buffers = 3
	case millrace.Row:
		buffers = 1
	case millrace.Map:
		nodes, buffers = 2, 3 // the entries struct lies between
	default:
	}
	for i := range t.Children {
		n, b := shape(&t.Children[i].Type)
		nodes, buffers = nodes+n, buffers+b
	}
	return nodes, buffers
}

func checkEncodable(schema *millrace.Schema, rec arrow.RecordBatch, changes []millrace.ChangeType) {
	if int(rec.NumCols()) != len(schema.Columns) {
		panic(fmt.Sprintf("segment: a record batch of %d columns for a schema of %d", rec.NumCols(), len(schema.Columns)))
	}
	if changes != nil && len(changes) != int(rec.NumRows()) {
		panic(fmt.Sprintf("segment: %d change types for %d rows", len(changes), rec.NumRows()))
	}
	for i := range schema.Columns {
		if c := &schema.Columns[i]; !holds(rec.Column(i).DataType(), &c.Type) {
			panic(fmt.Sprintf("segment: column %q %s as Arrow %s", c.Name, c.Type, rec.Column(i).DataType()))
		}
	}
}

// needsChanges says whether the change types are worth writing.
func needsChanges(changes []millrace.ChangeType) bool {
	return slices.ContainsFunc(changes, func(c millrace.ChangeType) bool { return c != millrace.Insert })
}

// appendChanges packs four change types into a byte, the first lowest.
func appendChanges(dst []byte, changes []millrace.ChangeType) []byte {
	for i, c := range changes {
		if i%4 == 0 {
			dst = append(dst, 0)
		}
		dst[len(dst)-1] |= byte(c&3) << (2 * (i % 4))
	}
	return dst
}

// AppendRows appends a payload of compact rows to dst; each row carries the
// schema id it was written with, schemaID is the newest of them. changes has one
// change type a row; nil means that all are +I.
// REQUIRES: the rows have less than MaxPayloadBytes less 5 bytes a row.
func AppendRows(dst []byte, schemaID millrace.SchemaID, changes []millrace.ChangeType, rows [][]byte) []byte {
	if changes != nil && len(changes) != len(rows) {
		panic(fmt.Sprintf("segment: %d change types for %d rows", len(changes), len(rows)))
	}
	h := payloadHead{encoding: Rows, codec: None, schema: schemaID, rows: len(rows), metaLen: payloadHeader}
	if needsChanges(changes) {
		h.flags |= flagChanges
	}
	base, end := len(dst), 0
	size := payloadHeader + h.changesLen() + 4*len(rows)
	for _, r := range rows {
		size += len(r)
	}
	dst = slices.Grow(dst, size)
	dst = append(dst, zeros[:payloadHeader]...)
	if h.flags&flagChanges != 0 {
		dst = appendChanges(dst, changes)
	}
	for _, r := range rows {
		end += len(r)
		dst = le.AppendUint32(dst, uint32(end))
	}
	for _, r := range rows {
		dst = append(dst, r...)
	}
	h.size = int64(len(dst) - base)
	if h.size > MaxPayloadBytes || len(rows) > MaxPayloadRows {
		panic(fmt.Sprintf("segment: a payload of %d rows and %d bytes", len(rows), h.size))
	}
	h.dataCRC = crcOf(dst[base+payloadHeader:])
	h.put(dst[base:][:payloadHeader])
	return dst
}
