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
// flag of a state part: 0, or 1 (2, 3) and {index of the place being read, (end of the
// places with state,) snapshots {shard, id}…, key read last}; with 3 also {snapshot of
// the lake, file, row, and for each place from index to end whether it has rows there, a
// bit each}; then CRC32C, 4 bytes. It is a place in a stream, not a credential.
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

// cursorState is where a reader of `full` stands in the keyed state, or in the lake: the
// places before index are done, the one at index was read up to the key after, or to a
// row of a file, and from end on there is none to read.
type cursorState struct {
	index     int
	end       int
	snapshots map[millrace.ShardID]string
	after     []byte

	lake   int64 // the snapshot; 0: none
	file   int
	row    int64
	inLake []bool // of the places from index to end
}

// inLake says whether rows of the lake are to be read for place i.
func (c *cursor) inLake(i int) bool {
	st := c.state
	return st != nil && st.lake != 0 && i >= st.index && i < st.end && st.inLake[i-st.index]
}

// enter puts a part where the cursor stands at place i.
func (c *cursor) enter(part *Part, i int) {
	st := c.state
	switch {
	case st == nil || i < st.index || i >= st.end:
	case c.inLake(i):
		if i == st.index {
			part.File, part.Row = st.file, st.row
		}
	case st.lake == 0 || st.snapshots[part.Shard] != "": // between places of the lake some have neither
		part.State, part.Snapshot = true, st.snapshots[part.Shard]
		if i == st.index {
			part.After = st.after
		}
	}
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
		switch {
		case c.state.lake != 0:
			b = binary.AppendUvarint(append(b, 3), uint64(c.state.index))
			b = binary.AppendUvarint(b, uint64(c.state.end))
		case c.state.end == len(c.places):
			b = binary.AppendUvarint(append(b, 1), uint64(c.state.index))
		default:
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
		if c.state.lake != 0 {
			b = c.state.appendLake(b)
		}
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
	if flag := r.next(); flag > 3 {
		return nil, bad
	} else if flag > 0 {
		st := &cursorState{index: int(r.next() & 0xffff), end: len(c.places), snapshots: map[millrace.ShardID]string{}}
		if flag > 1 {
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
		if st.index >= st.end || st.end > len(c.places) {
			return nil, bad
		}
		if flag == 3 {
			st.readLake(&r)
		}
		c.state = st
	}
	if r.bad || len(r.b) != 0 {
		return nil, bad
	}
	return c, nil
}

func (st *cursorState) appendLake(b []byte) []byte {
	b = binary.AppendVarint(b, st.lake)
	b = binary.AppendUvarint(b, uint64(st.file))
	b = binary.AppendUvarint(b, uint64(st.row))
	bits := make([]byte, (len(st.inLake)+7)/8)
	for i, is := range st.inLake {
		if is {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return append(b, bits...)
}

// readLake reads what appendLake wrote.
func (st *cursorState) readLake(r *varints) {
	st.lake = r.nextSigned()
	st.file, st.row = int(r.next()&0xffffff), int64(r.next()&(1<<62-1))
	n := st.end - st.index
	if st.lake == 0 || len(r.b) < (n+7)/8 {
		r.bad, r.b = true, nil
		return
	}
	st.inLake = make([]bool, n)
	for i := range st.inLake {
		st.inLake[i] = r.b[i/8]&(1<<(i%8)) != 0
	}
	r.b = r.b[(n+7)/8:]
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
