package shardrpc

import (
	"encoding/binary"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Values on the wire: varints, zigzag where they can be negative; bytes with their
// length before them; lists with their number of elements before them.

func appendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendOptional is bytes that may be nil.
func appendOptional(b, v []byte) []byte {
	if v == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(v))+1), v...)
}

// decoder reads values one after the other. Once something does not read, bad is set and
// everything else is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() {
	d.bad, d.b = true, nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// within is an unsigned value up to most.
func (d *decoder) within(most uint64) uint64 {
	v := d.uint()
	if v > most {
		d.fail()
		return 0
	}
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bool() bool { return d.within(1) == 1 }

// bytes are part of what is decoded: they are not copied.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) optional() []byte {
	n := d.uint()
	switch {
	case n == 0:
		return nil
	case n-1 > uint64(len(d.b)):
		d.fail()
		return nil
	}
	out := d.b[: n-1 : n-1]
	d.b = d.b[n-1:]
	return out
}

// count is the length of a list whose elements take at least so many bytes each (P3).
func (d *decoder) count(least int) int {
	n := d.uint()
	if n > uint64(len(d.b)/least) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) offset() millrace.Offset { return millrace.Offset(d.int()) }

func appendOffset(b []byte, o millrace.Offset) []byte { return binary.AppendVarint(b, int64(o)) }

// appendBucket is a bucket of a table that is known.
func appendBucket(b []byte, id millrace.BucketID) []byte {
	b = binary.AppendUvarint(b, uint64(id.Partition))
	return binary.AppendUvarint(b, uint64(id.Bucket))
}

func (d *decoder) bucket(t millrace.TableID) millrace.BucketID {
	return millrace.BucketID{Table: t, Partition: millrace.PartitionID(d.within(1<<32 - 1)), Bucket: uint16(d.within(1<<16 - 1))}
}

func (d *decoder) table() millrace.TableID { return millrace.TableID(d.within(1<<32 - 1)) }

// end says whether everything was read, and all of it was good.
func (d *decoder) end() error {
	if d.bad || len(d.b) > 0 {
		return errBroken
	}
	return nil
}

// errBroken is the error of bytes that are none of ours: a fault, or another version.
var errBroken = errs.New(errs.Internal, "a message between processes of the cluster does not read")
