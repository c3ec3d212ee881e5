package arrowrow

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/millrace/millrace/errs"
)

// Reader reads an IPC stream, the media type application/vnd.apache.arrow.stream.
type Reader struct {
	r    io.Reader
	d    *Decoder
	err  error
	word [4]byte
}

const (
	continuation = 0xffffffff
	// firstRead is up to how many bytes memory is taken because a message says that
	// they follow; beyond that it grows with what has come.
	firstRead = 4 << 20
)

// NewReader reads the schema that the stream begins with.
func NewReader(r io.Reader, limits Limits) (*Reader, error) {
	limits = limits.withDefaults()
	out := &Reader{r: r, d: &Decoder{limits: limits}}
	header, err := out.header()
	if errors.Is(err, io.EOF) {
		err = brokenf("it is empty")
	}
	if err != nil {
		return nil, err
	}
	if out.d, err = NewDecoder(header, limits); err != nil {
		return nil, err
	}
	return out, nil
}

// Schema is the stream's schema, without metadata.
func (r *Reader) Schema() *arrow.Schema { return r.d.Schema() }

// Next is the next record batch, for the caller to release. The error is io.EOF
// at the end, an *errs.Error for a broken stream, else what the reader below
// returned. After an error there is nothing more.
func (r *Reader) Next() (arrow.RecordBatch, error) {
	for r.err == nil {
		rec, err := r.next()
		if err != nil {
			r.err = err
		} else if rec != nil {
			return rec, nil
		}
	}
	return nil, r.err
}

func (r *Reader) next() (rec arrow.RecordBatch, err error) {
	defer guard(&err)
	header, err := r.header()
	if err != nil {
		return nil, err
	}
	m, err := r.d.open(header)
	if err != nil {
		return nil, err
	}
	body, err := r.read(int(m.bodyLength))
	if err != nil {
		return nil, err
	}
	return r.d.decode(m, body)
}

// header reads the metadata of the next message; io.EOF is the end of the stream,
// with or without its end marker.
func (r *Reader) header() ([]byte, error) {
	if _, err := io.ReadFull(r.r, r.word[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, cut(err)
	}
	switch n := binary.LittleEndian.Uint32(r.word[:]); {
	case n == 0: // the end marker of old writers
		return nil, io.EOF
	case string(r.word[:]) == "ARRO":
		return nil, errs.New(errs.InvalidRequest, "this is an Arrow file; send it in the stream format")
	case n != continuation:
		return nil, errs.New(errs.InvalidRequest, "not an Arrow stream: it has bytes %x where a message begins", r.word[:])
	}
	if _, err := io.ReadFull(r.r, r.word[:]); err != nil {
		return nil, cut(err)
	}
	n := binary.LittleEndian.Uint32(r.word[:])
	if n == 0 {
		return nil, io.EOF
	}
	if n > uint32(r.d.limits.MaxMetadataBytes) {
		return nil, errs.New(errs.TooLarge, "an Arrow message has %d bytes of metadata; at most %d are allowed", n, r.d.limits.MaxMetadataBytes)
	}
	return r.read(int(n))
}

// read reads n bytes.
func (r *Reader) read(n int) ([]byte, error) {
	b := make([]byte, min(n, firstRead))
	for got := 0; ; {
		m, err := io.ReadFull(r.r, b[got:])
		if err != nil {
			return nil, cut(err)
		}
		if got += m; got == n {
			return b, nil
		}
		b = append(make([]byte, 0, min(n, 2*got)), b...)
		b = b[:cap(b)]
	}
}

// cut is the error of a read that ended too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return brokenf("it ends inside a message")
	}
	return err
}
