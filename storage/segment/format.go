package segment

import (
	"encoding/binary"
	"hash/crc32"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// The meta part of a payload: a header, and for columns a directory. Numbers are
// little endian. A payload is the meta part, then the data: for columns the
// change types and one chunk a column, each 64-byte aligned; for rows one piece.
//
//	    0         1         2         3         4                   8
//	   +---------+---------+---------+---------+-------------------+
//	 0 | version | encoding| codec   | flags   | schema id         |
//	   +---------+---------+---------+---------+-------------------+
//	 8 | rows                                  | columns           |
//	   +---------------------------------------+-------------------+
//	16 | meta length                           | meta CRC32C       |
//	   +---------------------------------------+-------------------+
//	24 | payload length                                            |
//	   +---------------------------------------+-------------------+
//	32 | data CRC32C                           | 0                 |
//	   +---------------------------------------+-------------------+
//	40 | one entry of 32 bytes a column, in the schema's order     |
//	   +-----------------------------------------------------------+
//	   | one detail a column, then zeros up to meta length         |
//	   +-----------------------------------------------------------+
//
// The meta CRC covers [0, 20) and [24, meta length). The data CRC covers the
// change types (columns), or everything after the meta part (rows).
//
// An entry:
//
//	 0 | column id                             | chunk position    |
//	   +---------------------------------------+-------------------+
//	 8 | chunk length                          | chunk CRC32C      |
//	   +---------------------------------------+---------+---------+
//	16 | detail position                       | kind    | bounds  |  22: 0
//	   +---------------------------------------+---------+---------+
//	24 | field nodes                           | buffers           |
//
// A detail: {length, null count} of each field node, depth first; the length of
// each buffer; for a scalar: the number of NaNs (FLOAT, DOUBLE), min, max.
const (
	payloadVersion = 1
	payloadHeader  = 40
	entryBytes     = 32
	chunkAlign     = 64
	bufferAlign    = 8

	flagChanges = 1 << 0

	boundStats = 1 << 0 // the column has statistics
	boundMin   = 1 << 1
	boundMax   = 1 << 2

	crcAt = 20 // of the meta CRC
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func ceil(n, to int) int { return (n + to - 1) &^ (to - 1) }

// appendZeros appends zeros until dst is a multiple of to longer than from.
func appendZeros(dst []byte, from, to int) []byte {
	n := ceil(len(dst)-from, to) - (len(dst) - from)
	return append(dst, zeros[:n]...)
}

var zeros [chunkAlign]byte

// metaCRC is the checksum of a meta part, leaving out the field that holds it.
func metaCRC(meta []byte) uint32 {
	return crc32.Update(crcOf(meta[:crcAt]), castagnoli, meta[crcAt+4:])
}

type payloadHead struct {
	encoding Encoding
	codec    Codec
	flags    uint8
	schema   millrace.SchemaID
	rows     int
	columns  int
	metaLen  int
	size     int64
	dataCRC  uint32
}

// put writes the header at the start of meta, with the checksum of all of meta.
func (h *payloadHead) put(meta []byte) {
	meta[0], meta[1], meta[2], meta[3] = payloadVersion, byte(h.encoding), byte(h.codec), h.flags
	le.PutUint32(meta[4:], uint32(h.schema))
	le.PutUint32(meta[8:], uint32(h.rows))
	le.PutUint32(meta[12:], uint32(h.columns))
	le.PutUint32(meta[16:], uint32(h.metaLen))
	le.PutUint64(meta[24:], uint64(h.size))
	le.PutUint32(meta[32:], h.dataCRC)
	le.PutUint32(meta[crcAt:], metaCRC(meta))
}

// metaLenOf is the length of the meta part whose first bytes are b; what a
// damaged header claims stays within a payload of the given size.
func metaLenOf(b []byte, size int64) (int, error) {
	n := int64(le.Uint32(b[16:]))
	if n < payloadHeader || n > size {
		return 0, errs.New(errs.CorruptData, "a meta part of %d bytes in a payload of %d", n, size)
	}
	return int(n), nil
}

// parseHead reads and checks a whole meta part.
func parseHead(meta []byte, size int64) (payloadHead, error) {
	if got, want := metaCRC(meta), le.Uint32(meta[crcAt:]); got != want {
		return payloadHead{}, errs.New(errs.CorruptData, "the payload's meta part does not match its checksum (%08x, not %08x)", got, want)
	}
	if meta[0] != payloadVersion {
		return payloadHead{}, errs.New(errs.NotImplemented, "the payload has format %d, which is newer than this release reads (%d)", meta[0], payloadVersion)
	}
	h := payloadHead{
		encoding: Encoding(meta[1]),
		codec:    Codec(meta[2]),
		flags:    meta[3],
		schema:   millrace.SchemaID(le.Uint32(meta[4:])),
		rows:     int(le.Uint32(meta[8:])),
		columns:  int(le.Uint32(meta[12:])),
		metaLen:  len(meta),
		size:     int64(le.Uint64(meta[24:])),
		dataCRC:  le.Uint32(meta[32:]),
	}
	switch {
	case h.size != size:
		return h, errs.New(errs.CorruptData, "a payload of %d bytes that says it has %d", size, h.size)
	case h.rows > MaxPayloadRows:
		return h, errs.New(errs.CorruptData, "a payload of %d rows", h.rows)
	case h.codec > None || h.encoding > Rows || h.encoding == Rows && h.codec != None:
		return h, errs.New(errs.CorruptData, "encoding %d with codec %d", h.encoding, h.codec)
	case h.encoding == Rows && (h.columns != 0 || h.metaLen != payloadHeader):
		return h, errs.New(errs.CorruptData, "a payload of rows with a directory")
	case h.encoding == Columns && (h.metaLen%chunkAlign != 0 || payloadHeader+h.columns*entryBytes > h.metaLen):
		return h, errs.New(errs.CorruptData, "a directory of %d columns in a meta part of %d bytes", h.columns, h.metaLen)
	}
	return h, nil
}

// changesLen is the length of the change types: two bits a row.
func (h *payloadHead) changesLen() int {
	if h.flags&flagChanges == 0 {
		return 0
	}
	return (h.rows + 3) / 4
}

// firstChunk is the position of the first column's chunk.
func (h *payloadHead) firstChunk() int { return h.metaLen + ceil(h.changesLen(), chunkAlign) }

// entry is a column's directory entry.
type entry struct {
	id       millrace.ColumnID
	pos, len int
	crc      uint32
	detail   int
	kind     millrace.Kind
	bounds   uint8
	nodes    int
	buffers  int
}

func (e *entry) put(b []byte) {
	le.PutUint32(b, uint32(e.id))
	le.PutUint32(b[4:], uint32(e.pos))
	le.PutUint32(b[8:], uint32(e.len))
	le.PutUint32(b[12:], e.crc)
	le.PutUint32(b[16:], uint32(e.detail))
	b[20], b[21] = byte(e.kind), e.bounds
	le.PutUint32(b[24:], uint32(e.nodes))
	le.PutUint32(b[28:], uint32(e.buffers))
}

func entryAt(meta []byte, i int) entry {
	b := meta[payloadHeader+i*entryBytes:][:entryBytes]
	return entry{
		id:      millrace.ColumnID(int32(le.Uint32(b))),
		pos:     int(le.Uint32(b[4:])),
		len:     int(le.Uint32(b[8:])),
		crc:     le.Uint32(b[12:]),
		detail:  int(le.Uint32(b[16:])),
		kind:    millrace.Kind(b[20]),
		bounds:  b[21],
		nodes:   int(le.Uint32(b[24:])),
		buffers: int(le.Uint32(b[28:])),
	}
}

// checkDirectory shows that the chunks follow each other to the payload's end
// and that nodes and buffers lie in the meta part.
func checkDirectory(h *payloadHead, meta []byte) error {
	next := int64(h.firstChunk())
	for i := range h.columns {
		e := entryAt(meta, i)
		if int64(e.pos) != next || e.len%chunkAlign != 0 {
			return errs.New(errs.CorruptData, "the chunk of column %d does not follow the one before it", e.id)
		}
		next += int64(e.len)
		if e.nodes < 1 || e.buffers < 1 || e.detail < payloadHeader+h.columns*entryBytes ||
			uint64(e.detail)+8*uint64(e.nodes)+4*uint64(e.buffers) > uint64(h.metaLen) {
			return errs.New(errs.CorruptData, "the details of column %d lie outside the meta part", e.id)
		}
		if total := e.bufferBytes(meta); total > int64(e.len) || int64(e.len) >= total+chunkAlign {
			return errs.New(errs.CorruptData, "the buffers of column %d do not fill its chunk", e.id)
		}
	}
	if next != h.size {
		return errs.New(errs.CorruptData, "chunks that end at byte %d of a payload of %d", next, h.size)
	}
	return nil
}

// node is the n-th field node.
func (e *entry) node(meta []byte, n int) (length, nulls int) {
	b := meta[e.detail+8*n:]
	return int(le.Uint32(b)), int(le.Uint32(b[4:]))
}

// buffer is the length of the n-th buffer.
func (e *entry) buffer(meta []byte, n int) int {
	return int(le.Uint32(meta[e.detail+8*e.nodes+4*n:]))
}

// bufferBytes is the length of all buffers with their padding.
func (e *entry) bufferBytes(meta []byte) int64 {
	var total int64
	for n := range e.buffers {
		total += int64(ceil(e.buffer(meta, n), bufferAlign))
	}
	return total
}
