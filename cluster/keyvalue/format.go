package keyvalue

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// A message of the catalog's stream, little endian:
//
//	+-------+---------+------+----------+-----+------------+---------+--------+
//	| magic | version | kind | previous | id  | raw length | payload | crc32c |
//	| "MK"  | u8 = 1  |  u8  |   u64    | 16B |    u32     |  zstd   |  u32   |
//	+-------+---------+------+----------+-----+------------+---------+--------+
//
// The checksum covers everything before it. Of a commit, previous is the sequence
// of the commit before it and id its own; of a part of a snapshot, previous is the
// revision of the snapshot and id the same in all its parts. See docs/formats/cluster-catalog.md.
const (
	messageMagic    = "MK"
	messageVersion  = 1
	messageHeader   = 2 + 1 + 1 + 8 + 16 + 4
	messageOverhead = messageHeader + 4
	// maxRaw is the most that a payload may say to be without compression.
	maxRaw = 64 << 20
)

// The kinds of messages; numbers are never used again.
const (
	kindCommit byte = 1
	kindPart   byte = 2
	kindEnd    byte = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// message is one message, decoded but for its payload.
type message struct {
	kind     byte
	previous uint64
	id       [16]byte
	payload  []byte // without compression
}

// coder compresses and decompresses payloads.
type coder struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCoder() (*coder, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "keyvalue.Open", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRaw))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "keyvalue.Open", err)
	}
	return &coder{enc: enc, dec: dec}, nil
}

func (c *coder) close() { c.dec.Close() }

// encode makes a message of m.
func (c *coder) encode(m message) []byte {
	b := make([]byte, 0, messageOverhead+len(m.payload)/2)
	b = append(b, messageMagic...)
	b = append(b, messageVersion, m.kind)
	b = binary.LittleEndian.AppendUint64(b, m.previous)
	b = append(b, m.id[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.payload)))
	b = c.enc.EncodeAll(m.payload, b)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// repoint is the message b with another previous commit.
func repoint(b []byte, previous uint64) []byte {
	binary.LittleEndian.PutUint64(b[4:], previous)
	body := b[:len(b)-4]
	binary.LittleEndian.PutUint32(b[len(body):], crc32.Checksum(body, castagnoli))
	return b
}

// decode checks and decodes a message of a kind; where says which it is.
func (c *coder) decode(b []byte, kind byte, where string) (message, error) {
	bad := func(format string, args ...any) (message, error) {
		return message{}, errs.New(errs.CorruptData, where+": "+format, args...)
	}
	if len(b) < messageOverhead || string(b[:2]) != messageMagic {
		return bad("it is not a message of the catalog")
	}
	body := b[:len(b)-4]
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(b[len(body):]); got != want {
		return bad("the checksum is %08x, not %08x", got, want)
	}
	if v := b[2]; v != messageVersion {
		return message{}, errs.New(errs.NotImplemented, "%s: it has format version %d: it was written by a newer release; start that one", where, v)
	}
	m := message{kind: b[3], previous: binary.LittleEndian.Uint64(b[4:])}
	if m.kind != kind {
		return bad("it is of kind %d, not %d", m.kind, kind)
	}
	copy(m.id[:], b[12:])
	raw := binary.LittleEndian.Uint32(b[28:])
	if raw > maxRaw {
		return bad("its payload is said to have %d bytes", raw)
	}
	var err error
	if m.payload, err = c.dec.DecodeAll(body[messageHeader:], make([]byte, 0, raw)); err != nil || len(m.payload) != int(raw) {
		return bad("its payload does not decompress to %d bytes: %v", raw, err)
	}
	return m, nil
}

// The payload of a commit is its writes: a byte, 0 for a deletion and 1 for a value;
// the key; the value, unless deleted. Keys and values have their length, a uvarint,
// before them.
func encodeWrites(writes []catalog.Write) []byte {
	var b []byte
	for _, w := range writes {
		if w.Value == nil {
			b = appendBytes(append(b, 0), w.Key)
		} else {
			b = appendBytes(appendBytes(append(b, 1), w.Key), w.Value)
		}
	}
	return b
}

func decodeWrites(b []byte) ([]catalog.Write, bool) {
	var writes []catalog.Write
	for len(b) > 0 {
		set := b[0]
		key, rest, ok := cutBytes(b[1:])
		if !ok || set > 1 {
			return nil, false
		}
		w := catalog.Write{Key: string(key)}
		if b = rest; set == 1 {
			if w.Value, b, ok = cutBytes(b); !ok {
				return nil, false
			}
		}
		writes = append(writes, w)
	}
	return writes, true
}

// The payload of a part of a snapshot is entries: the key, the revision as a uvarint,
// the value.
func appendEntry(b []byte, e catalog.Entry) []byte {
	return appendBytes(binary.AppendUvarint(appendBytes(b, e.Key), e.Revision), e.Value)
}

func decodeEntries(b []byte, into map[string]catalog.Entry) bool {
	for len(b) > 0 {
		key, rest, ok := cutBytes(b)
		if !ok {
			return false
		}
		revision, n := binary.Uvarint(rest)
		if n <= 0 {
			return false
		}
		var value []byte
		if value, b, ok = cutBytes(rest[n:]); !ok {
			return false
		}
		if _, twice := into[string(key)]; twice {
			return false
		}
		into[string(key)] = catalog.Entry{Key: string(key), Value: value, Revision: revision}
	}
	return true
}

// The payload of the end of a snapshot: how many parts and entries there are, u32
// each, and the CRC-32C of the parts' own checksums in their order.
type snapshotEnd struct{ parts, entries, sum uint32 }

func (e snapshotEnd) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, e.parts)
	b = binary.LittleEndian.AppendUint32(b, e.entries)
	return binary.LittleEndian.AppendUint32(b, e.sum)
}

func decodeEnd(b []byte) (snapshotEnd, bool) {
	if len(b) != 12 {
		return snapshotEnd{}, false
	}
	return snapshotEnd{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])}, true
}

// addSum adds a message's checksum to the sum of a snapshot.
func addSum(sum uint32, message []byte) uint32 {
	return crc32.Update(sum, castagnoli, message[len(message)-4:])
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutBytes(b []byte) (s, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n) : size+int(n)], b[size+int(n):], true
}
