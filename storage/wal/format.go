package wal

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"

	millrace "github.com/millrace/millrace"
)

// A record, little endian; the same bytes wherever the log is kept:
//
//	+0   magic "MRWR"       4
//	+4   header checksum    4   CRC32C of bytes [8,80)
//	+8   version            2   1
//	+10  flags              2   bit 0: the last entry goes on in the next record
//	+12  feature level      4   that a reader must know
//	+16  cluster id        16
//	+32  log id             8
//	+40  epoch              8
//	+48  LSN                8
//	+56  previous hash      8   chain hash of the record before, 0 for LSN 1
//	+64  body checksum      4   CRC32C of the body
//	+68  body length        4
//	+72  entries            4   entry headers in the body
//	+76  shard              2
//	+78  reserved           2   0
//	+80  body: per entry
//	     +0 kind 1 · +1 flags 1 (1 first, 2 last, 4 ignorable) · +2 reserved 2 · +4 length 4 · +8 data
//
// The chain hash of a record is XXH64 (seed 0) of its header, which has the body's
// checksum and the hash before it: hashing bodies as well would double what a record
// costs the CPU. Magic, header checksum and what it covers stay in place in every
// version, so that the checksum is checked before the version is believed.
const (
	recordMagic      = 0x5257524d // "MRWR"
	recordHeaderSize = 80
	recordVersion    = 1
	featureLevel     = 1 // the highest that this release knows

	recordContinues = 1 // the last entry of the record goes on in the next record

	entryHeaderSize = 8
	entryFirst      = 1
	entryLast       = 2
	entryIgnorable  = 4

	maxBodyBytes = MaxRecordBytes - recordHeaderSize
)

// ClusterID names a cluster.
type ClusterID = [16]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func checksumUpdate(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// chainHash is the chain hash of a record, or of its header alone.
func chainHash(record []byte) uint64 { return xxhash.Sum64(record[:recordHeaderSize]) }

type recordHeader struct {
	version  uint16
	flags    uint16
	feature  uint32
	cluster  ClusterID
	logID    uint64
	epoch    millrace.Epoch
	lsn      millrace.LSN
	prev     uint64
	bodyCRC  uint32
	bodySize uint32
	entries  uint32
	shard    millrace.ShardID

	hash uint64 // of the record; of a parsed header only
}

// put writes the header and its checksum to b[:recordHeaderSize].
func (h *recordHeader) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, recordMagic)
	le.PutUint16(b[8:], h.version)
	le.PutUint16(b[10:], h.flags)
	le.PutUint32(b[12:], h.feature)
	copy(b[16:32], h.cluster[:])
	le.PutUint64(b[32:], h.logID)
	le.PutUint64(b[40:], uint64(h.epoch))
	le.PutUint64(b[48:], uint64(h.lsn))
	le.PutUint64(b[56:], h.prev)
	le.PutUint32(b[64:], h.bodyCRC)
	le.PutUint32(b[68:], h.bodySize)
	le.PutUint32(b[72:], h.entries)
	le.PutUint16(b[76:], uint16(h.shard))
	le.PutUint16(b[78:], 0)
	le.PutUint32(b[4:], checksum(b[8:recordHeaderSize]))
}

// parseRecordHeader reads a header; false when b does not begin with one.
func parseRecordHeader(b []byte) (h recordHeader, ok bool) {
	le := binary.LittleEndian
	if len(b) < recordHeaderSize || le.Uint32(b) != recordMagic || le.Uint32(b[4:]) != checksum(b[8:recordHeaderSize]) {
		return h, false
	}
	h = recordHeader{
		version: le.Uint16(b[8:]), flags: le.Uint16(b[10:]), feature: le.Uint32(b[12:]),
		cluster: ClusterID(b[16:32]), logID: le.Uint64(b[32:]), epoch: millrace.Epoch(le.Uint64(b[40:])),
		lsn: millrace.LSN(le.Uint64(b[48:])), prev: le.Uint64(b[56:]),
		bodyCRC: le.Uint32(b[64:]), bodySize: le.Uint32(b[68:]), entries: le.Uint32(b[72:]),
		shard: millrace.ShardID(le.Uint16(b[76:])), hash: chainHash(b),
	}
	return h, h.bodySize <= maxBodyBytes
}

// newer says whether a release that can read the record must be newer than this one.
func (h *recordHeader) newer() bool {
	return h.version != recordVersion || h.feature > featureLevel || h.flags&^recordContinues != 0
}

func (h *recordHeader) size() int { return recordHeaderSize + int(h.bodySize) }

// entryHeader is the head of an entry or of a fragment of one.
type entryHeader struct {
	kind  Kind
	flags uint8
	size  uint32
}

func (h entryHeader) put(b []byte) {
	b[0], b[1], b[2], b[3] = byte(h.kind), h.flags, 0, 0
	binary.LittleEndian.PutUint32(b[4:], h.size)
}

// cutEntry splits a body after its first entry; false when the body is not well formed.
func cutEntry(body []byte) (h entryHeader, data, rest []byte, ok bool) {
	if len(body) < entryHeaderSize {
		return h, nil, nil, false
	}
	h = entryHeader{Kind(body[0]), body[1], binary.LittleEndian.Uint32(body[4:])}
	body = body[entryHeaderSize:]
	if uint64(h.size) > uint64(len(body)) {
		return h, nil, nil, false
	}
	return h, body[:h.size], body[h.size:], true
}
