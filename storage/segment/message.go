package segment

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Message is an Arrow IPC RecordBatch message.
type Message struct {
	Header []byte // the Message flatbuffer, without the stream's length prefix
	Body   []byte
	Rows   int
	Codec  Codec
}

// Release gives the body's memory back for other messages. It need not be
// called; after it neither m nor its Body may be used.
func (m *Message) Release() {
	putBytes(m.Body)
	m.Body = nil
}

// WriteTo writes the message as Arrow's stream format has it: a continuation
// mark and the header's length, the header filled up to 8 bytes, the body.
func (m *Message) WriteTo(w io.Writer) (int64, error) {
	head := make([]byte, 8, 16+len(m.Header))
	head = appendZeros(append(head, m.Header...), 0, 8)
	le.PutUint32(head, 0xffffffff)
	le.PutUint32(head[4:], uint32(len(head)-8))
	n, err := w.Write(head)
	if err != nil {
		return int64(n), err
	}
	k, err := w.Write(m.Body)
	return int64(n) + int64(k), err
}

var _ io.WriterTo = (*Message)(nil)

// ExtraColumn is a column that is not in the payload, to be sent with it.
type ExtraColumn struct {
	Position int         // in the message, counting all its columns
	Array    arrow.Array // one value a row; borrowed for the call
}

// Message makes the IPC message of the wanted columns, in that order, with the
// extra columns at their positions (given in rising order). Its schema is
// row.ArrowSchema of the wanted columns with the extra fields put in. A chunk
// whose codec and type are those asked for goes in as it lies; with another codec
// its buffers are compressed anew, with another type it is decoded and encoded.
// Stored asks for the payload's own codec.
func (p *Payload) Message(schemas Schemas, want []millrace.Column, extra []ExtraColumn, codec Codec) (*Message, error) {
	if codec == Stored {
		codec = p.head.codec
	}
	b := newMessageBuilder(codec, p.head.rows)
	defer b.close()
	if err := b.plan(p, schemas, want, extra); err != nil {
		return nil, err
	}
	if err := b.write(p); err != nil {
		b.drop()
		return nil, err
	}
	return b.finish(), nil
}

// EncodeMessage makes the IPC message of a record batch in the types of
// row.ArrowType; Stored means None. It fails with errs.TooLarge.
func EncodeMessage(rec arrow.RecordBatch, codec Codec) (*Message, error) {
	if codec == Stored {
		codec = None
	}
	rows := int(rec.NumRows())
	size := recordBytes(rec, 0, rows)
	if size > MaxPayloadBytes {
		return nil, errs.New(errs.TooLarge, "a batch of %d bytes; at most %d fit in a message", size, MaxPayloadBytes)
	}
	b := newMessageBuilder(codec, rows)
	defer b.close()
	b.body = getBytes(size/2 + 1024)[:0]
	for _, c := range rec.Columns() {
		b.encode(c)
	}
	return b.finish(), nil
}

// piece is one column of a message: an array to encode, or else a chunk.
type piece struct {
	array arrow.Array
	entry int
}

// plan decides what becomes of each column.
func (b *messageBuilder) plan(p *Payload, schemas Schemas, want []millrace.Column, extra []ExtraColumn) error {
	var schema *millrace.Schema
	if p.head.encoding == Columns {
		var err error
		if schema, err = p.schema(schemas); err != nil {
			return err
		}
	}
	var decode []millrace.Column // cannot go in as they lie
	size, at, k := 0, 0, 0
	for i := range len(want) + len(extra) {
		if len(extra) > 0 && extra[0].Position == i {
			a := extra[0].Array
			if a.Len() != p.head.rows {
				panic(fmt.Sprintf("segment: an extra column of %d values for %d rows", a.Len(), p.head.rows))
			}
			b.pieces = append(b.pieces, piece{array: a})
			size += windowBytes(a.Data(), a.Data().Offset(), a.Len())
			extra = extra[1:]
			continue
		}
		if k == len(want) {
			panic(fmt.Sprintf("segment: an extra column at position %d", extra[0].Position))
		}
		c := &want[k]
		k++
		if n := p.find(c.ID, at); n >= 0 {
			at = n + 1
			stored, err := p.column(schema, n)
			if err != nil {
				return err
			}
			if sameLayout(&stored.Type, &c.Type) {
				b.pieces = append(b.pieces, piece{entry: n})
				size += entryAt(p.meta, n).len
				continue
			}
		}
		b.pieces = append(b.pieces, piece{entry: -1})
		decode = append(decode, *c)
	}
	if len(decode) > 0 {
		rec, err := p.Record(memory.DefaultAllocator, schemas, decode)
		if err != nil {
			return err
		}
		b.decoded = rec
		size += recordBytes(rec, 0, p.head.rows)
		for i := range b.pieces {
			if q := &b.pieces[i]; q.array == nil && q.entry < 0 {
				q.array = rec.Column(int(rec.NumCols()) - len(decode))
				decode = decode[1:]
			}
		}
	}
	b.body = getBytes(size)[:0]
	return nil
}

// write fills the body.
func (b *messageBuilder) write(p *Payload) error {
	for i := 0; i < len(b.pieces); {
		if q := b.pieces[i]; q.array != nil {
			b.encode(q.array)
			i++
			continue
		}
		// Chunks that lie behind each other there and here are read at once.
		n := 1
		for i+n < len(b.pieces) && b.pieces[i+n].array == nil && b.pieces[i+n].entry == b.pieces[i].entry+n {
			n++
		}
		if err := b.chunks(p, b.pieces[i].entry, n); err != nil {
			return err
		}
		i += n
	}
	return nil
}

// chunks puts n chunks from the entry first on into the body.
func (b *messageBuilder) chunks(p *Payload, first, n int) error {
	from := entryAt(p.meta, first).pos
	last := entryAt(p.meta, first+n-1)
	size := last.pos + last.len - from
	if b.w.codec == p.head.codec {
		start := len(b.body)
		b.grow(size)
		b.body = b.body[:start+size]
		if err := p.readAt(b.body[start:], from); err != nil {
			return err
		}
		sound, err := p.run(b.body[start:], first, n)
		if err != nil {
			return err
		}
		move(b.body[start:], sound)
		for k := range n {
			e := entryAt(p.meta, first+k)
			at := start + e.pos - from
			b.refer(&e, p.meta, at)
		}
		return nil
	}
	var src []byte
	if p.whole != nil {
		src = p.view(from, size)
	} else {
		src = getBytes(size)
		defer putBytes(src)
		if err := p.readAt(src, from); err != nil {
			return err
		}
	}
	src, err := p.run(src, first, n)
	if err != nil {
		return err
	}
	for k := range n {
		e := entryAt(p.meta, first+k)
		chunk := src[e.pos-from:][:e.len]
		if err := b.transcode(&e, p.meta, chunk, p.head.codec); err != nil {
			return p.locate(err, e.pos)
		}
	}
	return nil
}
