package segment

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A batch header, little endian:
//
//	    0                   4                   8
//	   +-------------------+-------------------+
//	 0 | magic "MRBH"      | CRC32C            |   of [8, length)
//	   +---------+---------+-------------------+
//	 8 | version | 0       | length            |   of all the header, u32 at 12
//	   +---------+---------+-------------------+
//	16 | table             | partition         |
//	   +---------+---------+-------------------+
//	24 | bucket  | 0       | rows              |
//	   +---------+---------+-------------------+
//	32 | base offset                           |
//	   +---------------------------------------+
//	40 | payload length                        |
//	   +-------------------+-------------------+
//	48 | payload meta CRC  | time runs         |
//	   +-------------------+-------------------+
//	56 | time of the first run, µs             |
//	   +---------------------------------------+
//	64 | per run: rows uvarint, µs after the run before uvarint
//	   +---------------------------------------+
const (
	batchMagic   = 0x4842524d // "MRBH"
	batchVersion = 1
	batchFixed   = 64
	// maxBatchHeader bounds what a reader takes in: a run of one row takes at
	// most 11 bytes.
	maxBatchHeader = batchFixed + 11*MaxPayloadRows
)

// TimeRun is some neighbouring rows that have the same time.
type TimeRun struct {
	Rows   int
	Micros int64 // µs since the Unix epoch
}

// BatchHeader is what the owner of a bucket stamps on a payload.
type BatchHeader struct {
	Bucket     millrace.BucketID
	Base       millrace.Offset // of the first row
	Rows       int
	Times      []TimeRun // of all rows, in order; never going back
	PayloadLen int64
	PayloadCRC uint32 // Payload.MetaCRC
}

// StampPayload makes the header of a payload. times covers its rows.
func StampPayload(p *Payload, bucket millrace.BucketID, base millrace.Offset, times ...TimeRun) BatchHeader {
	return BatchHeader{Bucket: bucket, Base: base, Rows: p.Rows(), Times: times, PayloadLen: p.Size(), PayloadCRC: p.MetaCRC()}
}

// End is the offset after the last row.
func (h *BatchHeader) End() millrace.Offset { return h.Base + millrace.Offset(h.Rows) }

// MaxTime is the time of the last row.
func (h *BatchHeader) MaxTime() int64 { return h.Times[len(h.Times)-1].Micros }

// TimeAt is the time of a row.
// REQUIRES: 0 ≤ row < Rows.
func (h *BatchHeader) TimeAt(row int) int64 {
	for _, t := range h.Times {
		if row < t.Rows {
			return t.Micros
		}
		row -= t.Rows
	}
	panic("segment: TimeAt of a row that the batch does not have")
}

// FirstRowAtOrAfter is the first row whose time is at or after micros; Rows when
// there is none.
func (h *BatchHeader) FirstRowAtOrAfter(micros int64) int {
	row := 0
	for _, t := range h.Times {
		if t.Micros >= micros {
			break
		}
		row += t.Rows
	}
	return row
}

// Owns checks that p is the payload that the header was stamped on.
func (h *BatchHeader) Owns(p *Payload) error {
	if p.MetaCRC() != h.PayloadCRC || p.Size() != h.PayloadLen || p.Rows() != h.Rows {
		return p.corrupt(0, "the payload is not the one that its batch header names (%d bytes, meta %08x, not %d, %08x)", p.Size(), p.MetaCRC(), h.PayloadLen, h.PayloadCRC)
	}
	return nil
}

// AppendBatchHeader appends the encoded header to dst; neighbouring runs of one
// time become one.
// REQUIRES: Times covers Rows, which are not none, and does not go back.
func AppendBatchHeader(dst []byte, h *BatchHeader) []byte {
	start := len(dst)
	dst = append(dst, zeros[:batchFixed]...)
	rows, runs := 0, uint32(0)
	for i := 0; i < len(h.Times); {
		t := h.Times[i]
		since := int64(0)
		if i > 0 {
			since = t.Micros - h.Times[i-1].Micros
		}
		n := 0
		for ; i < len(h.Times) && h.Times[i].Micros == t.Micros; i++ {
			n += h.Times[i].Rows
		}
		if n <= 0 || since < 0 {
			panic(fmt.Sprintf("segment: a run of %d rows %d µs after the one before it", n, since))
		}
		dst = binary.AppendUvarint(dst, uint64(n))
		dst = binary.AppendUvarint(dst, uint64(since))
		rows, runs = rows+n, runs+1
	}
	if rows != h.Rows || rows == 0 {
		panic(fmt.Sprintf("segment: times for %d rows of a batch of %d", rows, h.Rows))
	}
	b := dst[start:]
	le.PutUint32(b, batchMagic)
	b[8] = batchVersion
	le.PutUint32(b[12:], uint32(len(b)))
	le.PutUint32(b[16:], uint32(h.Bucket.Table))
	le.PutUint32(b[20:], uint32(h.Bucket.Partition))
	le.PutUint16(b[24:], h.Bucket.Bucket)
	le.PutUint32(b[28:], uint32(h.Rows))
	le.PutUint64(b[32:], uint64(h.Base))
	le.PutUint64(b[40:], uint64(h.PayloadLen))
	le.PutUint32(b[48:], h.PayloadCRC)
	le.PutUint32(b[52:], runs)
	le.PutUint64(b[56:], uint64(h.Times[0].Micros))
	le.PutUint32(b[4:], crcOf(b[8:]))
	return dst
}

// batchHeaderLen is how long the header is that begins with b, by its own word.
func batchHeaderLen(b []byte) (int, error) {
	if len(b) < batchFixed {
		return 0, errs.New(errs.CorruptData, "a batch header cut off after %d bytes", len(b))
	}
	if m := le.Uint32(b); m != batchMagic {
		return 0, errs.New(errs.CorruptData, "no batch header here (%08x)", m)
	}
	n := int(le.Uint32(b[12:]))
	if n < batchFixed || n > maxBatchHeader {
		return 0, errs.New(errs.CorruptData, "a batch header of %d bytes", n)
	}
	return n, nil
}

// ParseBatchHeader reads a header at the start of b and says how long it is.
func ParseBatchHeader(b []byte) (h BatchHeader, n int, err error) {
	if n, err = batchHeaderLen(b); err != nil {
		return h, 0, err
	}
	if n > len(b) {
		return h, 0, errs.New(errs.CorruptData, "a batch header of %d bytes cut off after %d", n, len(b))
	}
	b = b[:n]
	if got, want := crcOf(b[8:]), le.Uint32(b[4:]); got != want {
		return h, 0, errs.New(errs.CorruptData, "the batch header does not match its checksum (%08x, not %08x)", got, want)
	}
	if b[8] != batchVersion {
		return h, 0, errs.New(errs.NotImplemented, "the batch header has format %d, which is newer than this release reads (%d)", b[8], batchVersion)
	}
	h = BatchHeader{
		Bucket: millrace.BucketID{
			Table:     millrace.TableID(le.Uint32(b[16:])),
			Partition: millrace.PartitionID(le.Uint32(b[20:])),
			Bucket:    le.Uint16(b[24:]),
		},
		Rows:       int(le.Uint32(b[28:])),
		Base:       millrace.Offset(le.Uint64(b[32:])),
		PayloadLen: int64(le.Uint64(b[40:])),
		PayloadCRC: le.Uint32(b[48:]),
	}
	if h.Rows < 1 || h.Rows > MaxPayloadRows || h.Base < 0 || h.End() < 0 || h.PayloadLen < payloadHeader || h.PayloadLen > MaxPayloadBytes {
		return h, 0, errs.New(errs.CorruptData, "a batch of %d rows at offset %d in %d bytes", h.Rows, h.Base, h.PayloadLen)
	}
	if !h.parseTimes(b[batchFixed:], le.Uint32(b[52:]), int64(le.Uint64(b[56:]))) {
		return h, 0, errs.New(errs.CorruptData, "a batch header whose times cannot be read")
	}
	return h, n, nil
}

func (h *BatchHeader) parseTimes(b []byte, runs uint32, micros int64) bool {
	if runs < 1 || int64(runs)*2 > int64(len(b)) {
		return false
	}
	h.Times = slices.Grow(h.Times, int(runs))
	left := uint64(h.Rows)
	for range runs {
		n, k := binary.Uvarint(b)
		if k <= 0 || n == 0 || n > left {
			return false
		}
		since, l := binary.Uvarint(b[k:])
		if l <= 0 || since > math.MaxInt64 || micros > math.MaxInt64-int64(since) {
			return false
		}
		b = b[k+l:]
		micros += int64(since)
		left -= n
		h.Times = append(h.Times, TimeRun{int(n), micros})
	}
	return left == 0 && len(b) == 0
}
