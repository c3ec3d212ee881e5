package shard

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/wal"
)

// A data entry holds what one group of requests added to one bucket
// (docs/formats/entries.md), little endian:
//
//	u8   version (1)
//	u32  table · u32 partition · u16 bucket
//	i64  base offset · i64 time µs
//	u16  writers, each: u16 n, n bytes scope · u8 flags · u64 epoch · u64 seq · u32 first (from base) · u32 records · with flag writerHashed: u64 hash
//	u16  payloads, each: u32 records · u32 length · bytes (docs/formats/segment.md, payload)
//
// The record's checksum covers it; damage inside is a bug or a forged log.
const dataVersion = 1

// dataEntry is a data entry decoded; it points into the entry's bytes.
type dataEntry struct {
	bucket   millrace.BucketID
	base     millrace.Offset
	time     int64
	writers  []entryWriter
	payloads []entryPayload
}

// Flags of a writer in an entry.
const (
	// The bucket knew nothing of the writer: its window begins here. What a bucket
	// forgets is not in the log, so the log has to say where that mattered.
	writerFresh = 1 << 0
	// The batch had been taken before; it raised the writer's epoch only.
	writerRaised = 1 << 1
	// The hash of the batch follows.
	writerHashed = 1 << 2
)

type entryWriter struct {
	scope          string
	flags          byte
	epoch, seq     uint64
	first, records uint32
	hash           uint64
}

type entryPayload struct {
	records uint32
	bytes   []byte
}

// bytes is what a writer takes in an entry.
func (w *entryWriter) bytes() int {
	n := 2 + len(w.scope) + 1 + 24
	if w.flags&writerHashed != 0 {
		n += 8
	}
	return n
}

// logEntry is the entry for the log. It refers to the payloads.
func (d *dataEntry) logEntry() wal.Entry {
	n := 1 + 10 + 16 + 4 + 8*len(d.payloads)
	for _, w := range d.writers {
		n += w.bytes()
	}
	b := make([]byte, 0, n) // all but the payloads; it does not move
	b = append(b, dataVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(d.bucket.Table))
	b = binary.LittleEndian.AppendUint32(b, uint32(d.bucket.Partition))
	b = binary.LittleEndian.AppendUint16(b, d.bucket.Bucket)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.base))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.time))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(d.writers)))
	for _, w := range d.writers {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(w.scope)))
		b = append(b, w.scope...)
		b = append(b, w.flags)
		b = binary.LittleEndian.AppendUint64(b, w.epoch)
		b = binary.LittleEndian.AppendUint64(b, w.seq)
		b = binary.LittleEndian.AppendUint32(b, w.first)
		b = binary.LittleEndian.AppendUint32(b, w.records)
		if w.flags&writerHashed != 0 {
			b = binary.LittleEndian.AppendUint64(b, w.hash)
		}
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(d.payloads)))
	e := wal.Entry{Kind: wal.Data, More: make([][]byte, 0, 2*len(d.payloads))}
	at := 0
	for i, p := range d.payloads {
		b = binary.LittleEndian.AppendUint32(b, p.records)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p.bytes)))
		if i == 0 {
			e.Data = b
		} else {
			e.More = append(e.More, b[at:])
		}
		e.More, at = append(e.More, p.bytes), len(b)
	}
	if len(d.payloads) == 0 {
		e.Data = b
	}
	return e
}

func (d *dataEntry) records() int64 {
	var n int64
	for _, p := range d.payloads {
		n += int64(p.records)
	}
	return n
}

// cursor reads fields one after the other; a short input sets bad and reads zeros.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) uint(n int) uint64 {
	var x uint64
	for i, v := range c.take(n) {
		x |= uint64(v) << (8 * i)
	}
	return x
}

func decodeData(b []byte) (*dataEntry, error) {
	c := &cursor{b: b}
	if v := c.uint(1); v != dataVersion {
		return nil, fmt.Errorf("a data entry of version %d cannot be read", v)
	}
	d := &dataEntry{}
	d.bucket = millrace.BucketID{
		Table:     millrace.TableID(c.uint(4)),
		Partition: millrace.PartitionID(c.uint(4)),
		Bucket:    uint16(c.uint(2)),
	}
	d.base = millrace.Offset(c.uint(8))
	d.time = int64(c.uint(8))
	for range c.uint(2) {
		w := entryWriter{scope: string(c.take(int(c.uint(2))))}
		w.flags = byte(c.uint(1))
		w.epoch, w.seq = c.uint(8), c.uint(8)
		w.first, w.records = uint32(c.uint(4)), uint32(c.uint(4))
		if w.flags&writerHashed != 0 {
			w.hash = c.uint(8)
		}
		if c.bad {
			break
		}
		if w.flags&^(writerFresh|writerRaised|writerHashed) != 0 || w.flags&writerHashed != 0 && w.hash == 0 {
			return nil, fmt.Errorf("a writer with flags %#x that cannot be read", w.flags)
		}
		d.writers = append(d.writers, w)
	}
	for range c.uint(2) {
		p := entryPayload{records: uint32(c.uint(4))}
		p.bytes = c.take(int(c.uint(4)))
		if c.bad {
			break
		}
		d.payloads = append(d.payloads, p)
	}
	if c.bad || len(c.b) != 0 || d.base < 0 {
		return nil, fmt.Errorf("a data entry of %d bytes cannot be read", len(b))
	}
	return d, nil
}

// openEntry opens buckets and makes a table's schema known to the shard: JSON, so
// that descriptors may grow.
type openEntry struct {
	Buckets []millrace.BucketID `json:"buckets"`
	Table   *millrace.Table     `json:"table,omitempty"`
}

// endEntry drops the buckets in this shard of a table, or of one partition of it when
// that is named; or it seals that partition.
type endEntry struct {
	Table     millrace.TableID     `json:"table"`
	Partition millrace.PartitionID `json:"partition,omitempty"`
}

func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("shard: %T does not encode: %v", v, err))
	}
	return b
}
