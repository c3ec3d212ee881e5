package segment

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
)

// Encoding says how a payload holds its rows.
type Encoding uint8

// The encodings; the numbers are in files.
const (
	Columns Encoding = 0
	Rows    Encoding = 1
)

// String is the encoding's name.
func (e Encoding) String() string {
	switch e {
	case Columns:
		return "columns"
	case Rows:
		return "rows"
	}
	return fmt.Sprintf("Encoding(%d)", uint8(e))
}

// Limits.
const (
	// MaxPayloadBytes is the longest payload, and the most that its buffers may
	// hold before compression.
	MaxPayloadBytes = 64 << 20
	// MaxPayloadRows is the most rows of a payload.
	MaxPayloadRows = 1 << 22
	// TargetBatchBytes is what SplitRows should be asked for when batches are to
	// be stored or sent.
	TargetBatchBytes = 2 << 20

	// metaGuess is how much is read to find the meta part in one read.
	metaGuess = 4 << 10
)

// Schemas finds a version of the table's schema; nil when there is none.
type Schemas func(millrace.SchemaID) *millrace.Schema

// ReaderAt is where payloads lie; vfs.File is one.
type ReaderAt interface {
	ReadAt(p []byte, off int64) (int, error)
}

// Payload is an opened payload. It is immutable and may be used by many
// goroutines; it lives as long as what it was opened from.
type Payload struct {
	head payloadHead
	meta []byte
	// whole is the payload when it lies in memory; else it is at off in src.
	whole []byte
	src   ReaderAt
	off   int64
	where string // names the source in errors
	read  atomic.Int64
}

// Open reads and checks the meta part of the payload at [off, off+size) of src.
func Open(src ReaderAt, off, size int64) (*Payload, error) {
	p := &Payload{src: src, off: off, where: "payload"}
	if size < payloadHeader || size > MaxPayloadBytes {
		return nil, p.corrupt(0, "a payload of %d bytes", size)
	}
	b := make([]byte, min(size, metaGuess))
	if err := p.readAt(b, 0); err != nil {
		return nil, err
	}
	if err := p.init(b, size); err != nil {
		return nil, err
	}
	return p, nil
}

// OpenBytes opens a payload that lies in memory. b must not change as long as
// the Payload is used.
func OpenBytes(b []byte) (*Payload, error) {
	p := &Payload{where: "payload in memory"}
	if len(b) < payloadHeader || len(b) > MaxPayloadBytes {
		return nil, p.corrupt(0, "a payload of %d bytes", len(b))
	}
	if err := p.init(b, int64(len(b))); err != nil {
		return nil, err
	}
	p.read.Store(int64(p.head.metaLen))
	return p, nil
}

// init takes the first bytes of a payload, at least its header.
func (p *Payload) init(b []byte, size int64) error {
	n, err := metaLenOf(b, size)
	if err != nil {
		return p.locate(err, 0)
	}
	if int64(len(b)) == size {
		p.whole = b
	}
	if n > len(b) {
		// Longer than the guess: read the rest, which stays bounded by size.
		have := len(b)
		b = append(make([]byte, 0, n), b...)[:n]
		if err := p.readAt(b[have:], have); err != nil {
			return err
		}
	}
	_, err = p.sound(b[:n:n], 0, func(b []byte) error { return p.initMeta(b, size) })
	return err
}

func (p *Payload) initMeta(b []byte, size int64) (err error) {
	p.meta = b
	if p.head, err = parseHead(p.meta, size); err != nil {
		return p.locate(err, 0)
	}
	if p.head.encoding == Columns {
		err = checkDirectory(&p.head, p.meta)
	} else if least := int64(payloadHeader) + int64(p.head.changesLen()) + 4*int64(p.head.rows); least > size {
		err = errs.New(errs.CorruptData, "%d rows in a payload of %d bytes", p.head.rows, size)
	}
	return p.locate(err, 0)
}

// Encoding says how the rows are held.
func (p *Payload) Encoding() Encoding { return p.head.encoding }

// Rows is the number of rows.
func (p *Payload) Rows() int { return p.head.rows }

// SchemaID is the schema version of a columnar payload, the newest one among the
// rows of a row payload.
func (p *Payload) SchemaID() millrace.SchemaID { return p.head.schema }

// Codec is the codec of a columnar payload; None for rows.
func (p *Payload) Codec() Codec { return p.head.codec }

// InMemory says whether the whole payload lies in memory.
func (p *Payload) InMemory() bool { return p.whole != nil }

// HasChanges says whether the payload has change types; without, all rows are +I.
func (p *Payload) HasChanges() bool { return p.head.flags&flagChanges != 0 }

// Size is the payload's length in bytes.
func (p *Payload) Size() int64 { return p.head.size }

// MetaCRC is the checksum of the meta part, which a BatchHeader repeats.
func (p *Payload) MetaCRC() uint32 { return le.Uint32(p.meta[crcAt:]) }

// BytesRead is the number of the payload's bytes that were read so far, for the
// meta part and for data; what was read twice counts twice.
func (p *Payload) BytesRead() int64 { return p.read.Load() }

// Stats describes a top-level scalar column; false when the payload has no
// statistics of it (rows, nested columns). A column that a columnar payload does not
// have is NULL in all its rows. Bytes of the bounds must not be changed.
func (p *Payload) Stats(id millrace.ColumnID) (filter.Stats, bool) {
	if i := p.find(id, 0); i >= 0 {
		e := entryAt(p.meta, i)
		return e.stats(p.meta)
	}
	if p.head.encoding == Columns {
		n := int64(p.head.rows)
		return filter.Stats{Rows: n, Nulls: n}, true
	}
	return filter.Stats{}, false
}

// Changes returns one change type a row, or nil when all are +I.
func (p *Payload) Changes() ([]millrace.ChangeType, error) {
	if !p.HasChanges() {
		return nil, nil
	}
	var packed []byte
	var err error
	if p.head.encoding == Rows {
		data, err := p.rowData()
		if err != nil {
			return nil, err
		}
		packed = data[:p.head.changesLen()]
	} else {
		b := make([]byte, ceil(p.head.changesLen(), chunkAlign))
		if err := p.readAt(b, p.head.metaLen); err != nil {
			return nil, err
		}
		packed, err = p.sound(b, p.head.metaLen, func(b []byte) error {
			if got := crcOf(b); got != p.head.dataCRC {
				return p.corrupt(p.head.metaLen, "the change types do not match their checksum (%08x, not %08x)", got, p.head.dataCRC)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	out := make([]millrace.ChangeType, p.head.rows)
	for i := range out {
		out[i] = millrace.ChangeType(packed[i/4] >> (2 * (i % 4)) & 3)
	}
	return out, nil
}

// find is the position of a column in the directory, or -1. The search begins
// at from: columns are mostly asked for in order.
func (p *Payload) find(id millrace.ColumnID, from int) int {
	n := p.head.columns
	for k := range n {
		i := from + k
		if i >= n {
			i -= n
		}
		if millrace.ColumnID(int32(le.Uint32(p.meta[payloadHeader+i*entryBytes:]))) == id {
			return i
		}
	}
	return -1
}

// readAt fills b from position pos of the payload.
func (p *Payload) readAt(b []byte, pos int) error {
	if p.whole != nil {
		copy(b, p.whole[pos:])
		if p.src == nil {
			p.read.Add(int64(len(b)))
		}
		return nil
	}
	n, err := p.src.ReadAt(b, p.off+int64(pos))
	p.read.Add(int64(n))
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return p.corrupt(pos+n, "the data ends here")
	}
	return fileError("segment.Read", fmt.Sprintf("%s, byte %d", p.where, p.off+int64(pos)), err)
}

// run checks the chunks of n columns from the entry first on, which lie behind each
// other in b, and returns where they are sound.
func (p *Payload) run(b []byte, first, n int) ([]byte, error) {
	from := entryAt(p.meta, first).pos
	check := func(b []byte) error {
		for k := range n {
			e := entryAt(p.meta, first+k)
			if err := p.checkChunk(&e, b[e.pos-from:][:e.len]); err != nil {
				return err
			}
		}
		return nil
	}
	return p.sound(b, from, check)
}

// sound checks bytes of the payload from a position on, and reads them anew where
// there is another copy when they are not what was stored.
func (p *Payload) sound(b []byte, pos int, check func([]byte) error) ([]byte, error) {
	err := check(b)
	f, ok := p.src.(*File)
	if err == nil || !ok {
		return b, err
	}
	if p.whole != nil {
		b = make([]byte, len(b)) // others read whole
	}
	if err := f.again(b, p.off+int64(pos), err); err != nil {
		return nil, err
	}
	return b, check(b)
}

// move copies bytes, unless they are there already.
func move(dst, src []byte) {
	if len(src) > 0 && &dst[0] != &src[0] {
		copy(dst, src)
	}
}

// checkChunk compares a column's chunk with its checksum.
func (p *Payload) checkChunk(e *entry, chunk []byte) error {
	if got := crcOf(chunk); got != e.crc {
		return p.corrupt(e.pos, "the chunk of column %d does not match its checksum (%08x, not %08x)", e.id, got, e.crc)
	}
	return nil
}

func (p *Payload) corrupt(pos int, format string, args ...any) error {
	return p.locate(errs.New(errs.CorruptData, format, args...), pos)
}

// locate says where in the source an error was found; nil stays nil.
func (p *Payload) locate(err error, pos int) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		panic(err) // only errors made here come by
	}
	e.Message = fmt.Sprintf("%s, byte %d: %s", p.where, p.off+int64(pos), e.Message)
	return e
}
