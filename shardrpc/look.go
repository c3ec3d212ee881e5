package shardrpc

import (
	"encoding/binary"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
)

// Bits of a question.
const (
	askSnapshot = 1 << iota
	askRows
	askPromised
	askWritten
)

func appendQuestion(b []byte, q *router.Question) []byte {
	flags := uint64(0)
	for bit, set := range map[uint64]bool{askSnapshot: q.Snapshot, askRows: q.Rows, askPromised: q.Promised, askWritten: q.Written != nil} {
		if set {
			flags |= bit
		}
	}
	b = binary.AppendUvarint(b, uint64(q.Table))
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendUvarint(b, uint64(len(q.Times)))
	for _, t := range q.Times {
		b = binary.AppendVarint(b, t)
	}
	b = binary.AppendUvarint(b, uint64(len(q.Buckets)))
	for i, id := range q.Buckets {
		b = appendBucket(b, id)
		if q.Written != nil {
			b = appendOffset(b, q.Written[i])
		}
	}
	return b
}

func (d *decoder) question() *router.Question {
	q := &router.Question{Table: d.table()}
	flags := d.within(askWritten<<1 - 1)
	q.Snapshot, q.Rows, q.Promised = flags&askSnapshot != 0, flags&askRows != 0, flags&askPromised != 0
	for range d.count(1) {
		q.Times = append(q.Times, d.int())
	}
	n := d.count(2)
	q.Buckets = make([]millrace.BucketID, n)
	if flags&askWritten != 0 {
		q.Written = make([]millrace.Offset, n)
	}
	for i := range q.Buckets {
		q.Buckets[i] = d.bucket(q.Table)
		if q.Written != nil {
			q.Written[i] = d.offset()
		}
	}
	return q
}

func appendLooks(b []byte, l *router.Looks) []byte {
	b = appendBytes(b, l.Snapshot)
	b = binary.AppendUvarint(b, uint64(len(l.Buckets)))
	for i := range l.Buckets {
		k := &l.Buckets[i]
		b = appendBool(b, k.There)
		for _, v := range []int64{int64(k.Start), int64(k.Kept), int64(k.End), k.Bytes, int64(k.Next), k.Rows, int64(k.Promised), int64(k.At[0]), int64(k.At[1]), k.Micros} {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

func (d *decoder) looks() *router.Looks {
	l := &router.Looks{Snapshot: string(d.bytes())}
	l.Buckets = make([]router.Look, d.count(11))
	for i := range l.Buckets {
		k := &l.Buckets[i]
		k.There = d.bool()
		k.Start, k.Kept, k.End, k.Bytes = d.offset(), d.offset(), d.offset(), d.int()
		k.Next, k.Rows, k.Promised = d.offset(), d.int(), d.offset()
		k.At[0], k.At[1], k.Micros = d.offset(), d.offset(), d.int()
	}
	return l
}
