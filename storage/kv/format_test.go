package kv

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
)

// Shows that keys and values of format version 1 are the bytes that docs/formats/kv.md
// draws, and are read back.
func TestFormat(t *testing.T) {
	b := millrace.BucketID{Table: 0x01020304, Partition: 0x05060708, Bucket: 0x090a}
	h := hex.EncodeToString
	require.Equal(t, "0102030405060708090a01", h(metaKey(b)))
	require.Equal(t, "0102030405060708090a02"+h([]byte("scope")), h(writerKey(b, "scope")))
	require.Equal(t, "0102030405060708090a10"+h([]byte("key")), h(AppendRowKey(nil, b, []byte("key"))))
	require.Equal(t, "0000000000000000000000", h(appliedKey))

	m := Meta{Next: 0x1122, TimeMicros: -2, Rows: 3}
	require.Equal(t, "01"+"2211000000000000"+"feffffffffffffff"+"0300000000000000", h(m.encode()))
	got, err := decodeMeta(m.encode())
	require.NoError(t, err)
	require.Equal(t, m, got)

	w := &Writer{Epoch: 5, SeenMicros: 6, Taken: []Taken{{Seq: 7, Start: 8, End: 9}, {Seq: 10, Start: 11, End: 12}}}
	require.Equal(t, "01"+"0500000000000000"+"0600000000000000"+"02"+
		"0700000000000000"+"0800000000000000"+"0900000000000000"+
		"0a00000000000000"+"0b00000000000000"+"0c00000000000000", h(w.encode()))
	back, err := decodeWriter(w.encode())
	require.NoError(t, err)
	require.Equal(t, w, back)
}

// Shows that a writer whose batches have hashes is the bytes of version 2, and that
// hashes that are missing are found.
func TestFormatOfHashedWriters(t *testing.T) {
	w := &Writer{SeenMicros: 6, Taken: []Taken{{Seq: 7, Start: 8, End: 9, Hash: 0x0102030405060708}, {Seq: 10, Start: 11, End: 12, Hash: 13}}}
	require.Equal(t, "02"+"0000000000000000"+"0600000000000000"+"02"+
		"0700000000000000"+"0800000000000000"+"0900000000000000"+"0807060504030201"+
		"0a00000000000000"+"0b00000000000000"+"0c00000000000000"+"0d00000000000000", hex.EncodeToString(w.encode()))
	back, err := decodeWriter(w.encode())
	require.NoError(t, err)
	require.Equal(t, w, back)
	w.Taken[0].Hash = 1
	b := w.encode()
	b[18+24] = 0
	_, err = decodeWriter(b)
	require.Error(t, err)
	_, err = decodeWriter(b[:18])
	require.Error(t, err)
	_, err = decodeWriter(w.encode()[:18+40])
	require.Error(t, err)
}

// FuzzValues shows that any bytes are a value or an error, and a value is written as
// it was read.
func FuzzValues(f *testing.F) {
	f.Add((&Meta{Next: 1}).encode())
	f.Add((&Writer{Taken: []Taken{{Seq: 1}}}).encode())
	f.Add((&Writer{Taken: []Taken{{Seq: 1, Hash: 2}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMeta(b); err == nil && !bytes.Equal(b, m.encode()) {
			t.Fatalf("%x is read as %+v", b, m)
		}
		if w, err := decodeWriter(b); err == nil && !bytes.Equal(b, w.encode()) {
			t.Fatalf("%x is read as %+v", b, w)
		}
	})
}
