package shardrpc

import (
	"encoding/binary"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
)

func appendKeys(b []byte, of []router.BucketKeys, most int64) []byte {
	b = binary.AppendVarint(b, most)
	b = binary.AppendUvarint(b, uint64(len(of)))
	for _, k := range of {
		b = binary.AppendUvarint(b, uint64(k.Bucket.Table))
		b = appendBucket(b, k.Bucket)
		b = binary.AppendUvarint(b, uint64(len(k.Keys)))
		for _, key := range k.Keys {
			b = appendBytes(b, key)
		}
	}
	return b
}

func (d *decoder) keys() (of []router.BucketKeys, most int64) {
	most = d.int()
	of = make([]router.BucketKeys, d.count(4))
	for i := range of {
		of[i].Bucket = d.bucket(d.table())
		of[i].Keys = make([][]byte, d.count(1))
		for j := range of[i].Keys {
			of[i].Keys[j] = d.bytes()
		}
	}
	return of, most
}

func appendRows(b []byte, rows [][]byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(rows)))
	for _, r := range rows {
		b = appendOptional(b, r)
	}
	return b
}

func (d *decoder) rows() [][]byte {
	out := make([][]byte, d.count(1))
	for i := range out {
		out[i] = d.optional()
	}
	return out
}

func appendPrefixes(b []byte, of []router.BucketPrefix, limit, most int64) []byte {
	b = binary.AppendVarint(b, limit)
	b = binary.AppendVarint(b, most)
	b = binary.AppendUvarint(b, uint64(len(of)))
	for _, p := range of {
		b = binary.AppendUvarint(b, uint64(p.Bucket.Table))
		b = appendBucket(b, p.Bucket)
		b = appendBytes(b, p.Prefix)
	}
	return b
}

func (d *decoder) prefixes() (of []router.BucketPrefix, limit, most int64) {
	limit, most = d.int(), d.int()
	of = make([]router.BucketPrefix, d.count(4))
	for i := range of {
		of[i].Bucket = d.bucket(d.table())
		of[i].Prefix = d.bytes()
	}
	return of, limit, most
}

func appendRowLists(b []byte, lists [][][]byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(lists)))
	for _, rows := range lists {
		b = appendRows(b, rows)
	}
	return b
}

func (d *decoder) rowLists() [][][]byte {
	out := make([][][]byte, d.count(1))
	for i := range out {
		out[i] = d.rows()
	}
	return out
}

func appendOffsets(b []byte, next map[millrace.BucketID]millrace.Offset) []byte {
	b = binary.AppendUvarint(b, uint64(len(next)))
	for id, at := range next {
		b = binary.AppendUvarint(b, uint64(id.Table))
		b = appendBucket(b, id)
		b = appendOffset(b, at)
	}
	return b
}

func (d *decoder) offsets() map[millrace.BucketID]millrace.Offset {
	n := d.count(4)
	out := make(map[millrace.BucketID]millrace.Offset, n)
	for range n {
		id := d.bucket(d.table())
		out[id] = d.offset()
	}
	return out
}
