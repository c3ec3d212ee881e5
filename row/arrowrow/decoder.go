package arrowrow

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/errs"
)

// Limits bound what one message may cost. Zero values are the defaults.
type Limits struct {
	// MaxMessageBytes bounds a message's body, the same once decompressed, the sum of
	// a stream's dictionaries, and what a Plan's casts of one batch allocate. 64 MiB.
	MaxMessageBytes int
	// MaxMetadataBytes bounds a message's header. 4 MiB.
	MaxMetadataBytes int
	// MaxRows bounds the rows of a batch, since rows of null columns take no bytes.
	// 16 Mi.
	MaxRows int
}

func (l Limits) withDefaults() Limits {
	if l.MaxMessageBytes == 0 {
		l.MaxMessageBytes = 64 << 20
	}
	if l.MaxMetadataBytes == 0 {
		l.MaxMetadataBytes = 4 << 20
	}
	if l.MaxRows == 0 {
		l.MaxRows = 16 << 20
	}
	return l
}

// maxValues bounds the values of an array of any depth, which may be more than
// the rows: as many as a body has bits.
func (l Limits) maxValues() int { return 8 * l.MaxMessageBytes }

// Decoder decodes the messages of one stream.
type Decoder struct {
	limits    Limits
	schema    *arrow.Schema
	nodes     []*node
	dicts     map[int64]*dictionary
	dictBytes int // of all dictionaries
	deltaWork int // bytes copied because of deltas
	zstd      *zstd.Decoder
}

// NewDecoder returns a decoder of the stream that begins with this header, which
// must be that of a schema.
func NewDecoder(header []byte, limits Limits) (d *Decoder, err error) {
	defer guard(&err)
	d = &Decoder{limits: limits.withDefaults(), dicts: map[int64]*dictionary{}}
	m, err := d.open(header)
	if err != nil {
		return nil, err
	}
	if m.kind != messageSchema {
		return nil, brokenf("it begins with a message of type %d, not with a schema", m.kind)
	}
	s := &schemaReader{dicts: d.dicts}
	if d.nodes, err = s.read(m.header); err != nil {
		return nil, broken(err)
	}
	fields := make([]arrow.Field, len(d.nodes))
	for i, n := range d.nodes {
		fields[i] = n.field
	}
	d.schema = arrow.NewSchema(fields, nil)
	return d, nil
}

// Schema is the stream's schema, without metadata: nothing in it is used.
func (d *Decoder) Schema() *arrow.Schema { return d.schema }

// Decode decodes the next message. A dictionary gives nil: it is kept for the
// batches that follow. A batch is the caller's to release; it shares memory with
// body, which must not change any more.
func (d *Decoder) Decode(header, body []byte) (rec arrow.RecordBatch, err error) {
	defer guard(&err)
	m, err := d.open(header)
	if err != nil {
		return nil, err
	}
	if m.bodyLength != int64(len(body)) {
		return nil, brokenf("a message has a body of %d bytes and says %d", len(body), m.bodyLength)
	}
	return d.decode(m, body)
}

func (d *Decoder) decode(m message, body []byte) (rec arrow.RecordBatch, err error) {
	switch m.kind {
	case messageBatch:
		rec, err = d.batch(m.header, body)
	case messageDictionary:
		err = d.takeDictionary(m.header, body)
	case messageSchema:
		err = brokenf("it has a second schema")
	default:
		err = brokenf("it has a message of type %d", m.kind)
	}
	return rec, broken(err)
}

// message is the outermost table of a message's metadata.
type message struct {
	kind       int
	header     table
	bodyLength int64
}

// open checks what all messages have in common.
func (d *Decoder) open(header []byte) (message, error) {
	if len(header) > d.limits.MaxMetadataBytes {
		return message{}, errs.New(errs.TooLarge, "an Arrow message has %d bytes of metadata; at most %d are allowed", len(header), d.limits.MaxMetadataBytes)
	}
	f := &fbuf{b: header}
	t := f.root()
	m := message{kind: t.u8(1), bodyLength: t.i64(3)}
	version := t.enum(0)
	h, ok := t.table(2)
	if f.err == nil && !ok {
		f.fail("it has a message without a header")
	}
	// V4 is Arrow 0.8 and V5 is 1.0; they differ in unions only.
	if f.err == nil && version != 3 && version != 4 {
		f.fail("it is of metadata version V%d, not V4 or V5", version+1)
	}
	if f.err == nil && m.bodyLength < 0 {
		f.fail("it has a body of %d bytes", m.bodyLength)
	}
	if f.err != nil {
		return message{}, broken(f.err)
	}
	if m.bodyLength > int64(d.limits.MaxMessageBytes) {
		return message{}, errs.New(errs.TooLarge, "an Arrow message has %d bytes; at most %d are allowed", m.bodyLength, d.limits.MaxMessageBytes)
	}
	m.header = h
	return m, nil
}

// broken makes an error about the bytes one that says so; errors that have a code
// stay as they are.
func broken(err error) error {
	if err == nil || errs.CodeOf(err) != errs.Internal {
		return err
	}
	return errs.New(errs.InvalidRequest, "broken Arrow stream: %v", err)
}

func brokenf(format string, args ...any) error { return broken(fmt.Errorf(format, args...)) }

// guard turns a panic into an error. All lengths were checked before, so there
// should be none; but arrow-go's arrays panic about what they do not like, and a
// stranger's message must not end the process.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = brokenf("%v", p)
	}
}
