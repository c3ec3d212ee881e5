package wal

import (
	"encoding/binary"
	"iter"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// What is here serves logs that keep each record by itself, as a message.

// Record is a record as it was read. Its bytes are the caller's.
type Record struct {
	h    recordHeader
	body []byte
}

// ParseRecord reads a record, which is all of b. The error is errs.CorruptData when a
// checksum does not match or the length is not that of the record, and
// errs.NotImplemented when it is of a newer release; it does not say where.
func ParseRecord(b []byte) (Record, error) {
	h, ok := parseRecordHeader(b)
	if !ok {
		return Record{}, errs.New(errs.CorruptData, "there is no record, or the checksum of its header does not match")
	}
	if h.newer() {
		return Record{}, errNewer("a record")
	}
	if h.size() != len(b) {
		return Record{}, errs.New(errs.CorruptData, "record %d has %d bytes instead of %d", h.lsn, len(b), h.size())
	}
	if checksum(b[recordHeaderSize:]) != h.bodyCRC {
		return Record{}, errs.New(errs.CorruptData, "the checksum of record %d does not match", h.lsn)
	}
	return Record{h, b[recordHeaderSize:]}, nil
}

// Cluster is the cluster that the record is of.
func (r *Record) Cluster() ClusterID { return r.h.cluster }

// Shard is the shard that the record is of.
func (r *Record) Shard() millrace.ShardID { return r.h.shard }

// Tail is where a log ends that ends with the record.
func (r *Record) Tail() Tail { return Tail{r.h.logID, r.h.lsn, r.h.hash, r.h.epoch} }

// Prev is the chain hash of the record before.
func (r *Record) Prev() uint64 { return r.h.prev }

// Continues says whether the last entry goes on in the next record.
func (r *Record) Continues() bool { return r.h.flags&recordContinues != 0 }

// Ends is how many entries end in the record.
func (r *Record) Ends() int {
	n, body := 0, r.body
	for range r.h.entries {
		eh, _, rest, ok := cutEntry(body)
		if !ok {
			break
		}
		if eh.flags&entryLast != 0 {
			n++
		}
		body = rest
	}
	return n
}

// Encoder makes records of entries.
type Encoder struct {
	enc encoder
	buf []byte
}

// NewEncoder makes an encoder of a shard's records.
func NewEncoder(cluster ClusterID, shard millrace.ShardID) *Encoder {
	return &Encoder{enc: encoder{cluster: cluster, shard: shard}}
}

// Encode makes the records that hold the entries after tail: one at least. It panics
// as Append does.
func (e *Encoder) Encode(tail Tail, entries []Entry) error { return e.enc.encode(tail, entries) }

// Size is how many records Encode made, and their bytes together.
func (e *Encoder) Size() (records, bytes int) {
	return len(e.enc.frames), int(sizeOf(e.enc.out)) - len(e.enc.frames)*frameSize
}

// Records are what Encode made, in order, with where the log ends after each. A
// record is valid until the next; the entries' data must not have changed since.
func (e *Encoder) Records() iter.Seq2[Tail, []byte] {
	return func(yield func(Tail, []byte) bool) {
		pieces := e.enc.out
		var piece []byte
		for _, f := range e.enc.frames {
			left := frameSize + recordHeaderSize + int(binary.LittleEndian.Uint32(f[frameSize+68:]))
			if len(piece) >= left { // it lies in one
				if rec := piece[frameSize:left:left]; !yield(tailOf(rec), rec) {
					return
				}
				piece = piece[left:]
				continue
			}
			e.buf = e.buf[:0]
			for left > 0 {
				if len(piece) == 0 {
					piece, pieces = pieces[0], pieces[1:]
				}
				n := min(left, len(piece))
				e.buf, piece, left = append(e.buf, piece[:n]...), piece[n:], left-n
			}
			if rec := e.buf[frameSize:]; !yield(tailOf(rec), rec) {
				return
			}
		}
	}
}

// tailOf is where a log ends after a record of ours.
func tailOf(rec []byte) Tail {
	h, ok := parseRecordHeader(rec)
	if !ok {
		panic("wal: the encoder made what is no record")
	}
	return Tail{h.logID, h.lsn, h.hash, h.epoch}
}

// Release lets go of the entries' data, and of a large buffer.
func (e *Encoder) Release() { e.enc.release() }

// Assembler makes entries of the records of one shard, fed in order.
type Assembler struct{ asm assembler }

// Feed takes the next record, whose place in the chain was checked, and calls fn with
// each entry that ends in it; without fn they are dropped. Data is valid during the
// call. The error is fn's as it is, errs.NotImplemented, or a [Malformed].
func (a *Assembler) Feed(r *Record, fn func(millrace.LSN, millrace.Epoch, Entry) error) error {
	return a.asm.feed(&r.h, r.body, fn)
}

// Abandoned is how many entries were dropped because their last fragment never came.
// It is asked at the end.
func (a *Assembler) Abandoned() int {
	if a.asm.open {
		return a.asm.abandoned + 1
	}
	return a.asm.abandoned
}
