package segment

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A segment file, little endian: a header of 64 bytes; batches, each beginning
// at a multiple of 64: batch header, zeros to the next multiple of 64, payload,
// zeros to the next multiple of 64; in a sealed file, the index and the trailer.
//
//	    0                   4         5         6         8
//	   +-------------------+---------+---------+---------+
//	 0 | magic "MRSG"      | version | flags 0 | 0       |
//	   +-------------------+---------+---------+---------+
//	 8 | cluster id, 16 bytes                            |
//	   +-------------------+-----------------------------+
//	24 | table             | partition                   |
//	   +---------+---------+-----------------------------+
//	32 | bucket  | 0                                     |
//	   +---------+---------------------------------------+
//	40 | base offset                                     |
//	   +-------------------+-----------------------------+
//	48 | 0                 | 56: 0    60: CRC of [0, 60) |
//	   +-------------------+-----------------------------+
//
// The index has 40 bytes a batch: base offset i64, rows u32, length of the batch
// header u32, position u64, length with all padding u64, time of the last row i64.
// The trailer has 32: position of the index u64, batches u32, 0 u32, end offset
// i64, CRC32C of the index and of the trailer's first 24 bytes, magic "MRSE".
const (
	fileMagic    = 0x4753524d // "MRSG"
	trailerMagic = 0x4553524d // "MRSE"
	fileVersion  = 1
	fileHeader   = 64
	indexEntry   = 40
	fileTrailer  = 32
	fileSuffix   = ".seg"
)

// FileID says whose file it is; opening another's is an error.
type FileID struct {
	Cluster [16]byte
	Bucket  millrace.BucketID
	Base    millrace.Offset // of the first batch
}

// FileName is the name of the segment file that begins at base.
func FileName(base millrace.Offset) string { return fmt.Sprintf("%020d%s", base, fileSuffix) }

// ParseFileName reads a segment file's name.
func ParseFileName(name string) (base millrace.Offset, ok bool) {
	num, ok := strings.CutSuffix(name, fileSuffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 || FileName(millrace.Offset(n)) != name {
		return 0, false
	}
	return millrace.Offset(n), true
}

func appendFileHeader(dst []byte, id FileID) []byte {
	start := len(dst)
	dst = append(dst, zeros[:fileHeader]...)
	b := dst[start:]
	le.PutUint32(b, fileMagic)
	b[4] = fileVersion
	copy(b[8:], id.Cluster[:])
	le.PutUint32(b[24:], uint32(id.Bucket.Table))
	le.PutUint32(b[28:], uint32(id.Bucket.Partition))
	le.PutUint16(b[32:], id.Bucket.Bucket)
	le.PutUint64(b[40:], uint64(id.Base))
	le.PutUint32(b[60:], crcOf(b[:60]))
	return dst
}

// checkFileHeader shows that the file is readable and that of id.
func checkFileHeader(b []byte, id FileID) error {
	if m := le.Uint32(b); m != fileMagic {
		return errs.New(errs.CorruptData, "not a segment file (%08x)", m)
	}
	if got, want := crcOf(b[:60]), le.Uint32(b[60:]); got != want {
		return errs.New(errs.CorruptData, "the file header does not match its checksum (%08x, not %08x)", got, want)
	}
	if b[4] != fileVersion {
		return errs.New(errs.NotImplemented, "the file has format %d, which is newer than this release reads (%d)", b[4], fileVersion)
	}
	got := FileID{
		Cluster: [16]byte(b[8:]),
		Bucket: millrace.BucketID{
			Table:     millrace.TableID(le.Uint32(b[24:])),
			Partition: millrace.PartitionID(le.Uint32(b[28:])),
			Bucket:    le.Uint16(b[32:]),
		},
		Base: millrace.Offset(le.Uint64(b[40:])),
	}
	if got != id {
		return errs.New(errs.CorruptData, "the file of bucket %v from offset %d of cluster %x, not of bucket %v from offset %d of cluster %x", got.Bucket, got.Base, got.Cluster, id.Bucket, id.Base, id.Cluster)
	}
	return nil
}

// BatchRef is where a batch lies in a segment file.
type BatchRef struct {
	Base      millrace.Offset
	Rows      int
	HeaderLen int   // of the batch header, without padding
	Position  int64 // of the batch header
	Length    int64 // with all padding
	MaxTime   int64 // of the last row, µs
}

// End is the offset after the batch's last row.
func (r BatchRef) End() millrace.Offset { return r.Base + millrace.Offset(r.Rows) }

func appendIndex(dst []byte, position int64, batches []BatchRef, end millrace.Offset) []byte {
	start := len(dst)
	for i := range batches {
		r := &batches[i]
		dst = le.AppendUint64(dst, uint64(r.Base))
		dst = le.AppendUint32(dst, uint32(r.Rows))
		dst = le.AppendUint32(dst, uint32(r.HeaderLen))
		dst = le.AppendUint64(dst, uint64(r.Position))
		dst = le.AppendUint64(dst, uint64(r.Length))
		dst = le.AppendUint64(dst, uint64(r.MaxTime))
	}
	dst = le.AppendUint64(dst, uint64(position))
	dst = le.AppendUint32(dst, uint32(len(batches)))
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, uint64(end))
	dst = le.AppendUint32(dst, crcOf(dst[start:]))
	return le.AppendUint32(dst, trailerMagic)
}

// indexLen is the length of index and trailer, by the word of the trailer b at
// the end of a file of the given size.
func indexLen(b []byte, size int64) (int64, error) {
	if m := le.Uint32(b[28:]); m != trailerMagic {
		return 0, errs.New(errs.CorruptData, "no trailer: the file was not sealed or is cut off (%08x)", m)
	}
	n := int64(le.Uint32(b[8:]))*indexEntry + fileTrailer
	if at := int64(le.Uint64(b)); at < fileHeader || n > size-fileHeader || at != size-n {
		return 0, errs.New(errs.CorruptData, "an index of %d bytes at byte %d of a file of %d", n, at, size)
	}
	return n, nil
}

// parseIndex reads index and trailer.
func parseIndex(b []byte, base millrace.Offset) ([]BatchRef, error) {
	trailer := b[len(b)-fileTrailer:]
	if got, want := crcOf(b[:len(b)-8]), le.Uint32(trailer[24:]); got != want {
		return nil, errs.New(errs.CorruptData, "the index does not match its checksum (%08x, not %08x)", got, want)
	}
	batches := make([]BatchRef, 0, (len(b)-fileTrailer)/indexEntry)
	pos := int64(fileHeader)
	for ; len(b) > fileTrailer; b = b[indexEntry:] {
		r := BatchRef{
			Base:      millrace.Offset(le.Uint64(b)),
			Rows:      int(le.Uint32(b[8:])),
			HeaderLen: int(le.Uint32(b[12:])),
			Position:  int64(le.Uint64(b[16:])),
			Length:    int64(le.Uint64(b[24:])),
			MaxTime:   int64(le.Uint64(b[32:])),
		}
		if r.Base != base || r.Position != pos || r.HeaderLen < batchFixed || r.HeaderLen > maxBatchHeader ||
			r.Length < int64(ceil(r.HeaderLen, chunkAlign))+payloadHeader || r.Length > maxBatchHeader+MaxPayloadBytes+2*chunkAlign {
			return nil, errs.New(errs.CorruptData, "an index entry of %d rows from offset %d at byte %d where offset %d at byte %d follows", r.Rows, r.Base, r.Position, base, pos)
		}
		base, pos = r.End(), pos+r.Length
		batches = append(batches, r)
	}
	if pos != int64(le.Uint64(trailer)) || base != millrace.Offset(le.Uint64(trailer[16:])) {
		return nil, errs.New(errs.CorruptData, "batches end at byte %d, offset %d, not at byte %d, offset %d", pos, base, le.Uint64(trailer), le.Uint64(trailer[16:]))
	}
	return batches, nil
}

// fileError gives an error of the file system its code.
func fileError(op, path string, err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return errs.Wrap(e.Code, op, fmt.Errorf("%s: %w", path, err)) // a store that is away, or full
	}
	code := errs.Internal
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code = errs.StorageFull
	}
	return errs.Wrap(code, op, fmt.Errorf("%s: %w", path, err))
}
