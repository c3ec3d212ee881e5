package router

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A cursor is "c1." and base64url of, in varints: table id · number of places ·
// each place {difference of the partition to the one before, zigzag; bucket; offset} ·
// flag of a state part: 0, or 1 (2) and {index of the place being read, (end of the
// places with state,) snapshots {shard, id}…, key read last}; then CRC32C, 4 bytes.
// It is a place in a stream, not a credential.
const (
	cursorPrefix   = "c1."
	maxCursorBytes = 16 << 10
)

// cursor is where a reader of a table's log stands.
type cursor struct {
	table  millrace.TableID
	places []place
	state  *cursorState
}

type place struct {
	partition millrace.PartitionID
	bucket    uint16
	offset    millrace.Offset
}

// cursorState is where a reader of `full` stands in the keyed state: the places
// before index are done, the one at index was read up to the key after, and from end
// on there is none to read.
type cursorState struct {
	index     int
	end       int
	snapshots map[millrace.ShardID]string
	after     []byte
}

func (c *cursor) String() string {
	b := binary.AppendUvarint(nil, uint64(c.table))
	b = binary.AppendUvarint(b, uint64(len(c.places)))
	last := int64(0)
	for _, p := range c.places {
		b = binary.AppendVarint(b, int64(p.partition)-last)
		last = int64(p.partition)
		b = binary.AppendUvarint(b, uint64(p.bucket))
		b = binary.AppendUvarint(b, uint64(p.offset))
	}
	if c.state == nil {
		b = append(b, 0)
	} else {
		if c.state.end == len(c.places) {
			b = binary.AppendUvarint(append(b, 1), uint64(c.state.index))
		} else {
			b = binary.AppendUvarint(append(b, 2), uint64(c.state.index))
			b = binary.AppendUvarint(b, uint64(c.state.end))
		}
		b = binary.AppendUvarint(b, uint64(len(c.state.snapshots)))
		ids := make([]millrace.ShardID, 0, len(c.state.snapshots))
		for id := range c.state.snapshots {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids {
			b = binary.AppendUvarint(b, uint64(id))
			b = appendBytes(b, []byte(c.state.snapshots[id]))
		}
		b = appendBytes(b, c.state.after)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return cursorPrefix + base64.RawURLEncoding.EncodeToString(b)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// parseCursor reads what String wrote.
func parseCursor(s string) (*cursor, error) {
	bad := errs.New(errs.InvalidValue, "the cursor is damaged or not one of ours: send it as it was received")
	if len(s) > maxCursorBytes || len(s) < len(cursorPrefix) {
		return nil, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(s[len(cursorPrefix):])
	if err != nil || len(b) < 4 || crc32.Checksum(b[:len(b)-4], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, bad
	}
	r := varints{b: b[:len(b)-4]}
	c := &cursor{table: millrace.TableID(r.next())}
	n := r.next()
	if n > MaxMergedBuckets {
		return nil, bad
	}
	partition := int64(0)
	for range n {
		partition += r.nextSigned()
		c.places = append(c.places, place{
			partition: millrace.PartitionID(partition), bucket: uint16(r.next()), offset: millrace.Offset(r.next()),
		})
	}
	if flag := r.next(); flag > 0 {
		st := &cursorState{index: int(r.next() & 0xffff), end: len(c.places), snapshots: map[millrace.ShardID]string{}}
		if flag == 2 {
			st.end = int(r.next() & 0xffff)
		}
		for range min(r.next(), 1<<16) {
			if r.bad {
				break
			}
			id := millrace.ShardID(r.next())
			st.snapshots[id] = string(r.bytes())
		}
		st.after = r.bytes()
		c.state = st
	}
	if r.bad || len(r.b) != 0 || c.state != nil && (c.state.index >= c.state.end || c.state.end > len(c.places)) {
		return nil, bad
	}
	return c, nil
}

// varints reads one after the other; what is short sets bad and reads zeros.
type varints struct {
	b   []byte
	bad bool
}

func (r *varints) next() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *varints) nextSigned() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *varints) bytes() []byte {
	n := r.next()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}
