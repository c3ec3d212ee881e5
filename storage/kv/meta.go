package kv

import (
	"encoding/binary"
	"fmt"

	millrace "github.com/millrace/millrace"
)

// Meta is what the store knows of a bucket.
//
//	u8 version (1) · i64 next · i64 last time µs · i64 rows        little endian
type Meta struct {
	Next       millrace.Offset // the bucket's next offset
	TimeMicros int64           // time of its last record
	Rows       int64           // rows of keyed state; 0 for log tables
}

const metaVersion = 1

func (m Meta) encode() []byte {
	b := make([]byte, 0, 25)
	b = append(b, metaVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Next))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.TimeMicros))
	return binary.LittleEndian.AppendUint64(b, uint64(m.Rows))
}

func decodeMeta(b []byte) (Meta, error) {
	if len(b) != 25 || b[0] != metaVersion {
		return Meta{}, fmt.Errorf("a bucket meta of %d bytes cannot be read", len(b))
	}
	return Meta{
		Next:       millrace.Offset(binary.LittleEndian.Uint64(b[1:])),
		TimeMicros: int64(binary.LittleEndian.Uint64(b[9:])),
		Rows:       int64(binary.LittleEndian.Uint64(b[17:])),
	}, nil
}

// WriterWindow is how many batches of a writer a bucket remembers. Of an idempotency
// key it remembers all chunks, up to KeyChunks: each may come again, with another body.
const (
	WriterWindow = 64
	KeyChunks    = 4096
)

// Taken is a batch that a bucket took from a writer, and the offsets it got.
type Taken struct {
	Seq        uint64
	Start, End millrace.Offset
	Hash       uint64 // of what the client sent; 0 when the writer's batches have none
}

// Writer is what a bucket knows of a writer. Version 1 is of writers whose batches
// have no hashes, version 2 of those whose batches all have one, version 3 of those
// with more than WriterWindow.
//
//	u8 version (1) · u64 epoch · i64 last seen µs · u8 n · n × (u64 seq, i64 start, i64 end)
//	u8 version (2) · u64 epoch · i64 last seen µs · u8 n · n × (u64 seq, i64 start, i64 end, u64 hash)
//	u8 version (3) · u64 epoch · i64 last seen µs · u16 n · n × as version 2
type Writer struct {
	Epoch      uint64
	SeenMicros int64
	Taken      []Taken // rising by Seq: the last WriterWindow, of a key all
}

const (
	writerVersion       = 1
	hashedWriterVersion = 2
	longWriterVersion   = 3
	takenBytes          = 24
	hashedTakenBytes    = takenBytes + 8
)

func (w *Writer) encode() []byte {
	version, each := byte(writerVersion), takenBytes
	if len(w.Taken) > 0 && w.Taken[0].Hash != 0 {
		version, each = hashedWriterVersion, hashedTakenBytes
	}
	if len(w.Taken) > WriterWindow {
		version = longWriterVersion
	}
	b := make([]byte, 0, 19+each*len(w.Taken))
	b = append(b, version)
	b = binary.LittleEndian.AppendUint64(b, w.Epoch)
	b = binary.LittleEndian.AppendUint64(b, uint64(w.SeenMicros))
	if version == longWriterVersion {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(w.Taken)))
	} else {
		b = append(b, byte(len(w.Taken)))
	}
	for _, t := range w.Taken {
		b = binary.LittleEndian.AppendUint64(b, t.Seq)
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Start))
		b = binary.LittleEndian.AppendUint64(b, uint64(t.End))
		if each == hashedTakenBytes {
			b = binary.LittleEndian.AppendUint64(b, t.Hash)
		}
	}
	return b
}

func decodeWriter(b []byte) (*Writer, error) {
	bad := fmt.Errorf("a writer state of %d bytes cannot be read", len(b))
	if len(b) < 18 {
		return nil, bad
	}
	each, n, head := takenBytes, int(b[17]), 18
	switch b[0] {
	case writerVersion:
	case hashedWriterVersion:
		each = hashedTakenBytes
	case longWriterVersion:
		if len(b) < 19 {
			return nil, bad
		}
		each, n, head = hashedTakenBytes, int(binary.LittleEndian.Uint16(b[17:])), 19
	default:
		return nil, bad
	}
	if len(b) != head+each*n {
		return nil, bad
	}
	w := &Writer{
		Epoch:      binary.LittleEndian.Uint64(b[1:]),
		SeenMicros: int64(binary.LittleEndian.Uint64(b[9:])),
		Taken:      make([]Taken, n),
	}
	for i := range w.Taken {
		e := b[head+each*i:]
		w.Taken[i] = Taken{
			Seq:   binary.LittleEndian.Uint64(e),
			Start: millrace.Offset(binary.LittleEndian.Uint64(e[8:])),
			End:   millrace.Offset(binary.LittleEndian.Uint64(e[16:])),
		}
		if each == hashedTakenBytes {
			w.Taken[i].Hash = binary.LittleEndian.Uint64(e[24:])
		}
	}
	if each == hashedTakenBytes && (len(w.Taken) == 0 || w.Taken[0].Hash == 0) {
		return nil, fmt.Errorf("a writer state of version %d has no hash", b[0])
	}
	return w, nil
}
