package kv

import (
	"encoding/binary"

	millrace "github.com/millrace/millrace"
)

const (
	kindMeta   = 0x01
	kindWriter = 0x02
	kindRow    = 0x10

	prefixLen = 10
	// RowPrefixLen is the length of what stands before the primary key in a row's key.
	RowPrefixLen = prefixLen + 1
)

// appliedKey sorts before every bucket: table ids start at 1.
var appliedKey = make([]byte, prefixLen+1)

func appendPrefix(dst []byte, b millrace.BucketID, kind byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(b.Table))
	dst = binary.BigEndian.AppendUint32(dst, uint32(b.Partition))
	dst = binary.BigEndian.AppendUint16(dst, b.Bucket)
	return append(dst, kind)
}

// AppendRowKey appends the store's key of the row with the given primary key.
func AppendRowKey(dst []byte, b millrace.BucketID, key []byte) []byte {
	return append(appendPrefix(dst, b, kindRow), key...)
}

func metaKey(b millrace.BucketID) []byte { return appendPrefix(nil, b, kindMeta) }

func writerKey(b millrace.BucketID, scope string) []byte {
	return append(appendPrefix(nil, b, kindWriter), scope...)
}

// after is the least key above all keys that begin with p.
// REQUIRES: p has a byte below 0xff.
func after(p []byte) []byte {
	u := append([]byte(nil), p...)
	for i := len(u) - 1; ; i-- {
		if u[i] != 0xff {
			u[i]++
			return u[:i+1]
		}
	}
}
