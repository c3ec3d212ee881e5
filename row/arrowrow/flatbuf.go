package arrowrow

import (
	"encoding/binary"
	"fmt"
)

// fbuf reads a flatbuffer that may be anything. Every access is checked against
// the bytes; the first one that fails is kept in err and gives zero, as do all
// that come after, so that callers need to look at err only before they use what
// they read to allocate or to index.
type fbuf struct {
	b   []byte
	err error
}

func (f *fbuf) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// at is the n bytes at pos, or nil.
func (f *fbuf) at(pos, n int) []byte {
	if f.err != nil {
		return nil
	}
	if pos < 0 || n < 0 || pos > len(f.b)-n {
		f.fail("its metadata points outside itself")
		return nil
	}
	return f.b[pos : pos+n]
}

func (f *fbuf) u16(pos int) int {
	if b := f.at(pos, 2); b != nil {
		return int(binary.LittleEndian.Uint16(b))
	}
	return 0
}

func (f *fbuf) u32(pos int) int {
	if b := f.at(pos, 4); b != nil {
		return int(binary.LittleEndian.Uint32(b))
	}
	return 0
}

func (f *fbuf) i64(pos int) int64 {
	if b := f.at(pos, 8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// table is a flatbuffer table: a list of numbered slots, each absent or at some
// distance from pos. The size that a table states is not looked at: the Go builder
// lets tables of different sizes share one statement of it.
type table struct {
	f          *fbuf
	pos        int
	vtable     int
	vtableSize int
}

func (f *fbuf) root() table { return f.table(f.u32(0)) }

func (f *fbuf) table(pos int) table {
	vt := pos - int(int32(uint32(f.u32(pos))))
	t := table{f: f, pos: pos, vtable: vt, vtableSize: f.u16(vt)}
	f.at(vt, t.vtableSize)
	return t
}

// field is where a slot's value of n bytes stands, or 0 when it is absent.
func (t table) field(slot, n int) int {
	entry := 4 + 2*slot
	if t.f.err != nil || entry+2 > t.vtableSize {
		return 0
	}
	off := t.f.u16(t.vtable + entry)
	if off == 0 {
		return 0
	}
	t.f.at(t.pos+off, n)
	return t.pos + off
}

func (t table) bool(slot int) bool { return t.u8(slot) != 0 }

func (t table) u8(slot int) int {
	if p := t.field(slot, 1); p != 0 {
		if b := t.f.at(p, 1); b != nil {
			return int(b[0])
		}
	}
	return 0
}

// enum is the 16-bit enumeration that the tables of Arrow which have one have as
// their first field.
func (t table) enum(dflt int) int {
	if p := t.field(0, 2); p != 0 {
		return int(int16(uint16(t.f.u16(p))))
	}
	return dflt
}

func (t table) i32(slot, dflt int) int {
	if p := t.field(slot, 4); p != 0 {
		return int(int32(uint32(t.f.u32(p))))
	}
	return dflt
}

func (t table) i64(slot int) int64 {
	if p := t.field(slot, 8); p != 0 {
		return t.f.i64(p)
	}
	return 0
}

// table is the table that a slot refers to; ok is false when it is absent.
func (t table) table(slot int) (sub table, ok bool) {
	p := t.field(slot, 4)
	if p == 0 {
		return table{f: t.f}, false
	}
	sub = t.f.table(p + t.f.u32(p))
	return sub, t.f.err == nil
}

// vector is an array of n elements of size bytes each, all within the bytes.
type vector struct {
	f    *fbuf
	pos  int
	n    int
	size int
}

// vector is the array that a slot refers to; absent is empty.
func (t table) vector(slot, size int) vector {
	p := t.field(slot, 4)
	if p == 0 {
		return vector{f: t.f}
	}
	p += t.f.u32(p)
	v := vector{f: t.f, pos: p + 4, n: t.f.u32(p), size: size}
	if t.f.err == nil && v.n > (len(t.f.b)-v.pos)/size {
		t.f.fail("its metadata has a list that is longer than itself")
	}
	if t.f.err != nil {
		return vector{f: t.f}
	}
	return v
}

// i64 is the number at a distance from the beginning of element i.
func (v vector) i64(i, distance int) int64 {
	if i < 0 || i >= v.n {
		v.f.fail("its metadata has too few elements in a list")
		return 0
	}
	return v.f.i64(v.pos + i*v.size + distance)
}

// table is the table that element i refers to.
func (v vector) table(i int) table {
	p := v.pos + i*v.size
	return v.f.table(p + v.f.u32(p))
}

// text is the string that a slot refers to.
func (t table) text(slot int) []byte {
	v := t.vector(slot, 1)
	return t.f.at(v.pos, v.n)
}
