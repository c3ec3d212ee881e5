package wal

import (
	"encoding/binary"

	millrace "github.com/millrace/millrace"
)

// In a file, each record lies behind a frame, little endian:
//
//	+0   magic "MRWF"       4
//	+4   checksum           4   CRC32C of bytes [8,40)
//	+8   file number        8
//	+16  offset             4   of this frame in the file
//	+20  group              4   offset at which the write began that the frame was
//	                            part of: everything before it was synced by then
//	+24  ordinal            4   of the frame in the file, from 0
//	+28  record length      4
//	+32  shard              2
//	+34  previous shard     2   of the frame before; 0xffff for the first
//	+36  reserved           4   0
//
// Records are the same everywhere; the frame is what a shared file needs: a frame
// says where it lies, so that a copy of a log inside of a row is never taken for
// the log when a reader looks for the next frame behind a damaged place; the
// ordinal and the previous shard tell what was lost there; the group tells a torn
// write from damage.
const (
	frameMagic = 0x4657524d // "MRWF"
	frameSize  = 40
	noShard    = 0xffff
)

var frameMagicBytes = binary.LittleEndian.AppendUint32(nil, frameMagic)

type frame struct {
	file      uint64
	offset    uint32
	group     uint32
	ordinal   uint32
	size      uint32 // of the record
	shard     millrace.ShardID
	prevShard millrace.ShardID
}

func (f *frame) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, frameMagic)
	le.PutUint64(b[8:], f.file)
	le.PutUint32(b[16:], f.offset)
	le.PutUint32(b[20:], f.group)
	le.PutUint32(b[24:], f.ordinal)
	le.PutUint32(b[28:], f.size)
	le.PutUint16(b[32:], uint16(f.shard))
	le.PutUint16(b[34:], uint16(f.prevShard))
	le.PutUint32(b[36:], 0)
	le.PutUint32(b[4:], checksum(b[8:frameSize]))
}

// parseFrame reads the frame at an offset of a file; false when there is none.
func parseFrame(b []byte, file uint64, offset int64) (f frame, ok bool) {
	le := binary.LittleEndian
	if len(b) < frameSize || le.Uint32(b) != frameMagic || le.Uint32(b[4:]) != checksum(b[8:frameSize]) {
		return f, false
	}
	f = frame{
		file: le.Uint64(b[8:]), offset: le.Uint32(b[16:]), group: le.Uint32(b[20:]), ordinal: le.Uint32(b[24:]),
		size: le.Uint32(b[28:]), shard: millrace.ShardID(le.Uint16(b[32:])), prevShard: millrace.ShardID(le.Uint16(b[34:])),
	}
	return f, f.file == file && int64(f.offset) == offset && f.group <= f.offset &&
		f.size >= recordHeaderSize && f.size <= MaxRecordBytes
}
