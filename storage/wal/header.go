package wal

import (
	"encoding/binary"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A file begins with two copies of its header, each a multiple of 4096 bytes
// long, so that neither a bit nor a sector can take the file with it:
//
//	+0   magic "MRWALF\r\n" 8
//	+8   length             4   of a copy, zero padding included
//	+12  checksum           4   CRC32C of bytes [0,12) and [16,length)
//	+16  version            2   1
//	+18  reserved           2   0
//	+20  feature level      4
//	+24  cluster id        16
//	+40  file number        8
//	+48  born length        8   of the file when it got its name; all of it was synced
//	+56  shards             4
//	+60  files              4
//	+64  per shard, where it stood when the file was begun:
//	     log id 8 · LSN 8 · chain hash 8 · epoch 8 · damage: file number 8 (0 = none) · offset 8
//	     then per file that lives, in order of numbers: number 8 · end 8
//
// Magic, length and checksum stay in place in every version.
const (
	fileVersion       = 1
	headerBlock       = 4096
	headerFixed       = 64
	headerShardSize   = 48
	headerFileSize    = 16
	maxHeaderBytes    = 16 << 20
	headerLengthField = 8
	headerSumField    = 12
)

var fileMagic = []byte("MRWALF\r\n")

// place is where damage was found; the zero value is none.
type place struct {
	file uint64
	off  int64
}

// head is where a shard's log stands at some point of a file.
type head struct {
	Tail
	damage place
}

// fileEnd says where the part of a file ends that belongs to the log.
type fileEnd struct {
	number uint64
	end    int64
}

type fileHeader struct {
	cluster ClusterID
	number  uint64
	born    int64
	heads   []head
	files   []fileEnd
}

func (h *fileHeader) copySize() int {
	n := headerFixed + headerShardSize*len(h.heads) + headerFileSize*len(h.files)
	return (n + headerBlock - 1) / headerBlock * headerBlock
}

// dataStart is the offset of the first frame.
func (h *fileHeader) dataStart() int64 { return int64(2 * h.copySize()) }

// encode returns both copies.
func (h *fileHeader) encode() []byte {
	le, size := binary.LittleEndian, h.copySize()
	b := make([]byte, 2*size)
	copy(b, fileMagic)
	le.PutUint32(b[headerLengthField:], uint32(size))
	le.PutUint16(b[16:], fileVersion)
	le.PutUint32(b[20:], featureLevel)
	copy(b[24:40], h.cluster[:])
	le.PutUint64(b[40:], h.number)
	le.PutUint64(b[48:], uint64(h.born))
	le.PutUint32(b[56:], uint32(len(h.heads)))
	le.PutUint32(b[60:], uint32(len(h.files)))
	p := b[headerFixed:headerFixed]
	for _, s := range h.heads {
		for _, v := range [...]uint64{s.LogID, uint64(s.LSN), s.Hash, uint64(s.Epoch), s.damage.file, uint64(s.damage.off)} {
			p = le.AppendUint64(p, v)
		}
	}
	for _, f := range h.files {
		p = le.AppendUint64(le.AppendUint64(p, f.number), uint64(f.end))
	}
	le.PutUint32(b[headerSumField:], headerSum(b[:size]))
	copy(b[size:], b[:size])
	return b
}

func headerSum(b []byte) uint32 {
	return checksumUpdate(checksum(b[:headerSumField]), b[headerSumField+4:])
}

// parseFileHeader reads one copy, at the start of b. The error is errs.CorruptData
// when the bytes do not check and errs.NotImplemented when they are of a newer release.
func parseFileHeader(b []byte, number uint64) (*fileHeader, error) {
	le := binary.LittleEndian
	if len(b) < headerBlock || string(b[:len(fileMagic)]) != string(fileMagic) {
		return nil, errs.New(errs.CorruptData, "no log file header")
	}
	size := le.Uint32(b[headerLengthField:])
	if size%headerBlock != 0 || size == 0 || uint64(size) > uint64(len(b)) {
		return nil, errs.New(errs.CorruptData, "a log file header that claims %d bytes of %d", size, len(b))
	}
	b = b[:size]
	if le.Uint32(b[headerSumField:]) != headerSum(b) {
		return nil, errs.New(errs.CorruptData, "the checksum of the log file header does not match")
	}
	if v, level := le.Uint16(b[16:]), le.Uint32(b[20:]); v != fileVersion || level > featureLevel {
		return nil, errNewer(fmt.Sprintf("the log file has version %d and feature level %d; this release reads %d and %d", v, level, fileVersion, featureLevel))
	}
	h := &fileHeader{cluster: ClusterID(b[24:40]), number: le.Uint64(b[40:]), born: int64(le.Uint64(b[48:]))}
	shards, files := uint64(le.Uint32(b[56:])), uint64(le.Uint32(b[60:]))
	if h.number != number || h.born < 0 || headerFixed+shards*headerShardSize+files*headerFileSize > uint64(size) {
		return nil, errs.New(errs.CorruptData, "the log file header of file %d, %d shards, %d files does not fit", h.number, shards, files)
	}
	p := b[headerFixed:]
	next := func() uint64 { v := le.Uint64(p); p = p[8:]; return v }
	for range shards {
		var s head
		s.LogID, s.LSN, s.Hash, s.Epoch = next(), millrace.LSN(next()), next(), millrace.Epoch(next())
		s.damage.file, s.damage.off = next(), int64(next())
		h.heads = append(h.heads, s)
	}
	for range files {
		h.files = append(h.files, fileEnd{next(), int64(next())})
	}
	return h, nil
}

func errNewer(what string) error {
	return errs.New(errs.NotImplemented, "%s: written by a newer release", what)
}
