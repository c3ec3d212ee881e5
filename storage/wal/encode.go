package wal

import (
	"fmt"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// encoder packs entries into records, each with room for a frame before it.
type encoder struct {
	cluster ClusterID
	shard   millrace.ShardID
	tail    Tail // after the last finished record; its epoch is that of the open one
	buf     []byte
	start   int // of the open record's frame
	entries uint32
}

// keepBuffer is the largest buffer that is kept from one Append to the next.
const keepBuffer = 4 << 20

// encode replaces e.buf by the records that hold the entries after tail.
func (e *encoder) encode(tail Tail, entries []Entry) error {
	var size int
	for _, en := range entries {
		if len(en.Data) > MaxEntryBytes {
			return errs.New(errs.TooLarge, "an entry of %d bytes is above the limit of %d", len(en.Data), MaxEntryBytes)
		}
		if size += entryHeaderSize + len(en.Data); size > MaxAppendBytes {
			return errs.New(errs.TooLarge, "the entries of one append are above the limit of %d bytes", MaxAppendBytes)
		}
	}
	// Each record but the last is more than half full.
	size += (2*size/maxBodyBytes + 2) * (frameSize + recordHeaderSize + entryHeaderSize)
	e.buf, e.tail = slices.Grow(e.buf[:0], size), tail
	e.begin()
	for _, en := range entries {
		e.add(en)
	}
	e.finish(0)
	return nil
}

func (e *encoder) begin() {
	e.start, e.entries = len(e.buf), 0
	e.buf = append(e.buf, make([]byte, frameSize+recordHeaderSize)...)
}

func (e *encoder) room() int {
	return maxBodyBytes - (len(e.buf) - e.start - frameSize - recordHeaderSize)
}

func (e *encoder) add(en Entry) {
	if en.Kind == 0 {
		panic("wal: an entry without a kind")
	}
	newRecord := entryHeaderSize+len(en.Data) > e.room()
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
	flags, data := uint8(entryFirst), en.Data
	if en.Ignorable {
		flags |= entryIgnorable
	}
	for {
		part := data[:min(len(data), e.room()-entryHeaderSize)]
		data = data[len(part):]
		if len(data) == 0 {
			flags |= entryLast
		}
		e.put(entryHeader{en.Kind, flags, uint32(len(part))}, part)
		if len(data) == 0 {
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

func (e *encoder) put(h entryHeader, data []byte) {
	var head [entryHeaderSize]byte
	h.put(head[:])
	e.buf = append(append(e.buf, head[:]...), data...)
	e.entries++
}

// release lets go of a large buffer.
func (e *encoder) release() {
	if cap(e.buf) > keepBuffer {
		e.buf = nil
	}
}

// finish writes the open record's header and moves the tail behind it.
func (e *encoder) finish(flags uint16) {
	rec := e.buf[e.start+frameSize:]
	body := rec[recordHeaderSize:]
	h := recordHeader{
		version: recordVersion, flags: flags, feature: featureLevel,
		cluster: e.cluster, logID: e.tail.LogID, epoch: e.tail.Epoch, lsn: e.tail.LSN + 1, prev: e.tail.Hash,
		bodyCRC: checksum(body), bodySize: uint32(len(body)), entries: e.entries, shard: e.shard,
	}
	h.put(rec)
	e.tail.LSN, e.tail.Hash = h.lsn, chainHash(rec)
}
