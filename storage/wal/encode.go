package wal

import (
	"fmt"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// encoder packs entries into records, each with room for a frame before it. Data is
// copied when it is short only: out is what is to be written, one after the other.
type encoder struct {
	cluster ClusterID
	shard   millrace.ShardID
	tail    Tail // after the last finished record; its epoch is that of the open one

	out    [][]byte // stretches of buf, and data of entries
	frames [][]byte // of buf: each record's frame and header
	buf    []byte   // never moves while an Append is encoded
	taken  int      // how much of buf is in out

	// The open record.
	start    int // of its frame, in buf
	entries  uint32
	bodySize int
	bodyCRC  uint32
}

const (
	// keepBuffer is the largest buffer that is kept from one Append to the next.
	keepBuffer = 4 << 20
	// copyBelow is the size below which data is copied: it is written together with
	// what stands around it.
	copyBelow = 4 << 10
)

// encode makes the records that hold the entries after tail.
func (e *encoder) encode(tail Tail, entries []Entry) error {
	var size, copied int
	for _, en := range entries {
		n := en.Len()
		if n > MaxEntryBytes {
			return errs.New(errs.TooLarge, "an entry of %d bytes is above the limit of %d", n, MaxEntryBytes)
		}
		if size += entryHeaderSize + n; size > MaxAppendBytes {
			return errs.New(errs.TooLarge, "the entries of one append are above the limit of %d bytes", MaxAppendBytes)
		}
		copied += entryHeaderSize
		for _, p := range en.pieces() {
			if len(p) < copyBelow {
				copied += len(p)
			}
		}
	}
	// Each record but the last is more than half full, and cuts a piece at most once at
	// its end, of which both parts may be short.
	copied += (2*size/maxBodyBytes + 2) * (frameSize + recordHeaderSize + entryHeaderSize + 2*copyBelow)
	e.buf, e.out, e.frames = slices.Grow(e.buf[:0], copied), e.out[:0], e.frames[:0]
	e.tail, e.taken = tail, 0
	e.begin()
	for _, en := range entries {
		e.add(en)
	}
	e.finish(0)
	e.flush()
	return nil
}

func (e *encoder) begin() {
	e.start, e.entries, e.bodySize, e.bodyCRC = len(e.buf), 0, 0, 0
	e.buf = append(e.buf, make([]byte, frameSize+recordHeaderSize)...)
}

func (e *encoder) room() int { return maxBodyBytes - e.bodySize }

// flush moves what was copied to out.
func (e *encoder) flush() {
	if e.taken < len(e.buf) {
		e.out = append(e.out, e.buf[e.taken:len(e.buf):len(e.buf)])
		e.taken = len(e.buf)
	}
}

func (e *encoder) add(en Entry) {
	if en.Kind == 0 {
		panic("wal: an entry without a kind")
	}
	left := en.Len()
	newRecord := entryHeaderSize+left > e.room()
	if en.Kind == Epoch {
		newRecord = true
	}
	if newRecord && e.entries > 0 {
		e.finish(0)
		e.begin()
	}
	if en.Kind == Epoch {
		e.raise(en)
	}
	flags, pieces := uint8(entryFirst), en.pieces()
	if en.Ignorable {
		flags |= entryIgnorable
	}
	for {
		part := min(left, e.room()-entryHeaderSize)
		if left -= part; left == 0 {
			flags |= entryLast
		}
		pieces = e.put(entryHeader{en.Kind, flags, uint32(part)}, pieces)
		if left == 0 {
			return
		}
		flags &^= entryFirst
		e.finish(recordContinues)
		e.begin()
	}
}

// raise sets the epoch of the open record, which is empty, and of later ones.
func (e *encoder) raise(en Entry) {
	epoch, err := EpochOf(en)
	if err != nil || epoch <= e.tail.Epoch {
		panic(fmt.Sprintf("wal: epoch entry %d after epoch %d of shard %d (%v)", epoch, e.tail.Epoch, e.shard, err))
	}
	e.tail.Epoch = epoch
}

// put appends an entry, or a part of one, to the open record, and returns what it
// left of the pieces.
func (e *encoder) put(h entryHeader, pieces [][]byte) [][]byte {
	var head [entryHeaderSize]byte
	h.put(head[:])
	e.append(head[:])
	e.entries++
	for left := int(h.size); left > 0; {
		p := pieces[0]
		if len(p) <= left {
			pieces = pieces[1:]
		} else {
			pieces = slices.Clone(pieces) // they are the caller's
			p, pieces[0] = p[:left], p[left:]
		}
		left -= len(p)
		e.append(p)
	}
	return pieces
}

// append appends to the open record's body.
func (e *encoder) append(b []byte) {
	e.bodySize += len(b)
	e.bodyCRC = checksumUpdate(e.bodyCRC, b)
	if len(b) >= copyBelow {
		e.flush()
		e.out = append(e.out, b)
		return
	}
	if len(e.buf)+len(b) > cap(e.buf) {
		panic("wal: an encoder that made too little room")
	}
	e.buf = append(e.buf, b...)
}

// release lets go of the callers' data, and of a large buffer.
func (e *encoder) release() {
	clear(e.out)
	if cap(e.buf) > keepBuffer {
		e.buf, e.frames = nil, nil
	}
}

// finish writes the open record's header and moves the tail behind it.
func (e *encoder) finish(flags uint16) {
	end := e.start + frameSize + recordHeaderSize
	rec := e.buf[e.start+frameSize : end]
	h := recordHeader{
		version: recordVersion, flags: flags, feature: featureLevel,
		cluster: e.cluster, logID: e.tail.LogID, epoch: e.tail.Epoch, lsn: e.tail.LSN + 1, prev: e.tail.Hash,
		bodyCRC: e.bodyCRC, bodySize: uint32(e.bodySize), entries: e.entries, shard: e.shard,
	}
	h.put(rec)
	e.tail.LSN, e.tail.Hash = h.lsn, chainHash(rec)
	e.frames = append(e.frames, e.buf[e.start:end:end])
}
