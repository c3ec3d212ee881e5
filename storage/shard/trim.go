package shard

import (
	"encoding/binary"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A trim entry says where the logs of buckets begin from now on, since what lies below
// has expired (docs/formats/entries.md), little endian:
//
//	u8   version (1)
//	i64  time µs, when it was decided
//	u32  buckets, each: u32 table · u32 partition · u16 bucket · i64 start
//
// It is ignorable: a release that does not know it shows the records a while longer.
const (
	trimVersion = 1
	trimHeader  = 1 + 8 + 4
	trimBytes   = 4 + 4 + 2 + 8
	// maxTrims bounds the buckets of an entry; what is left comes with the next.
	maxTrims = 1 << 14
)

type trimEntry struct {
	micros int64
	trims  []trim
}

type trim struct {
	bucket millrace.BucketID
	start  millrace.Offset
}

func (e *trimEntry) encode() []byte {
	b := make([]byte, 0, trimHeader+trimBytes*len(e.trims))
	b = append(b, trimVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.micros))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.trims)))
	for _, t := range e.trims {
		b = binary.LittleEndian.AppendUint32(b, uint32(t.bucket.Table))
		b = binary.LittleEndian.AppendUint32(b, uint32(t.bucket.Partition))
		b = binary.LittleEndian.AppendUint16(b, t.bucket.Bucket)
		b = binary.LittleEndian.AppendUint64(b, uint64(t.start))
	}
	return b
}

func decodeTrim(b []byte) (*trimEntry, error) {
	c := &cursor{b: b}
	version := c.uint(1)
	e := &trimEntry{micros: int64(c.uint(8))}
	n := c.uint(4)
	if c.bad || version != trimVersion || uint64(len(c.b)) != n*trimBytes {
		return nil, errs.New(errs.CorruptData, "a trim entry of version %d with %d bytes cannot be read", version, len(b))
	}
	e.trims = make([]trim, n)
	for i := range e.trims {
		t := &e.trims[i]
		t.bucket = millrace.BucketID{
			Table:     millrace.TableID(c.uint(4)),
			Partition: millrace.PartitionID(c.uint(4)),
			Bucket:    uint16(c.uint(2)),
		}
		t.start = millrace.Offset(c.uint(8))
		if t.start < 0 {
			return nil, errs.New(errs.CorruptData, "a trim entry begins bucket %s at offset %d", t.bucket, t.start)
		}
	}
	return e, nil
}

// trim moves the starts of logs as an entry says.
func (r *replayer) trim(data []byte) error {
	e, err := decodeTrim(data)
	if err != nil {
		return err
	}
	for _, t := range e.trims {
		b := r.s.buckets[t.bucket]
		if b == nil {
			continue // dropped
		}
		if end := b.log.View().End; t.start > end {
			return errs.New(errs.CorruptData, "record %d begins bucket %s at offset %d, and its log ends at %d", r.lsn, t.bucket, t.start, end)
		}
		b.log.Trim(t.start, e.micros)
	}
	return nil
}
