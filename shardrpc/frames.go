package shardrpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/segment"
)

// A stream of rows is messages: a word, the length of what follows (little endian), and
// then a byte that says what it is. A frame's Arrow message comes behind its own length.
const (
	streamFrame = 1
	streamError = 2 // of a part; the last
	streamBeat  = 3 // the owner is there, and has nothing
)

// Bounds of what is read (P3).
const (
	maxFrameMeta   = 128 << 20 // keys of rows, mostly
	maxFrameHeader = 4 << 20
	maxFrameBody   = segment.MaxPayloadBytes + 8<<20
)

// appendFrame is a frame without its Arrow message.
func appendFrame(b []byte, f *router.Frame) []byte {
	b = append(b, streamFrame)
	b = binary.AppendUvarint(b, uint64(f.Part))
	b = append(b, byte(f.Kind))
	b = appendBool(b, f.End)
	b = appendBool(b, f.More)
	b = appendBool(b, f.Idle)
	p := &f.Place
	b = appendBool(b, p.Lake)
	b = appendBool(b, p.Overlay)
	b = appendBool(b, p.State)
	b = binary.AppendUvarint(b, uint64(p.File))
	b = binary.AppendVarint(b, p.Row)
	b = appendOffset(b, p.Tail)
	b = appendOptional(b, p.After)
	b = appendOffset(b, p.Start)
	for _, v := range []int64{f.Stats.RowsRead, f.Stats.RowsSkipped, f.Stats.BytesRead, f.Stats.BytesSkipped, int64(f.Stats.LakeFiles)} {
		b = binary.AppendVarint(b, v)
	}
	if f.Kind == router.NoRows {
		return b
	}
	b = binary.AppendUvarint(b, uint64(f.Rows))
	for _, v := range []int64{int64(f.Base), int64(f.Next), int64(f.High), f.Micros} {
		b = binary.AppendVarint(b, v)
	}
	b = appendRuns(b, f.At)
	b = appendRuns(b, f.Times)
	b = binary.AppendUvarint(b, uint64(len(f.Changes)))
	for _, c := range f.Changes {
		b = append(b, byte(c))
	}
	b = appendBytes(b, f.Keys)
	b = binary.AppendUvarint(b, uint64(len(f.Ends)))
	last := 0
	for _, e := range f.Ends {
		b = binary.AppendUvarint(b, uint64(e-last))
		last = e
	}
	m := f.Message
	b = append(b, byte(m.Codec))
	b = binary.AppendUvarint(b, uint64(m.Rows))
	b = binary.AppendUvarint(b, uint64(len(m.Header)))
	return binary.AppendUvarint(b, uint64(len(m.Body)))
}

func appendRuns(b []byte, runs []router.Run) []byte {
	b = binary.AppendUvarint(b, uint64(len(runs)))
	last := int64(0)
	for _, r := range runs {
		b = binary.AppendVarint(b, r.First-last)
		b = binary.AppendUvarint(b, uint64(r.Rows))
		last = r.First
	}
	return b
}

func (d *decoder) runs() []router.Run {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	out := make([]router.Run, n)
	last := int64(0)
	for i := range out {
		last += d.int()
		out[i] = router.Run{First: last, Rows: int(d.within(1 << 31))}
	}
	return out
}

// frame reads a frame, and says how long header and body of its message are.
func (d *decoder) frame() (f *router.Frame, header, body int) {
	f = &router.Frame{Part: int(d.within(1 << 31)), Kind: router.FrameKind(d.within(uint64(router.TailRows))), End: d.bool(), More: d.bool(), Idle: d.bool()}
	p := &f.Place
	p.Lake, p.Overlay, p.State = d.bool(), d.bool(), d.bool()
	p.File, p.Row, p.Tail = int(d.within(1<<31)), d.int(), d.offset()
	p.After, p.Start = d.optional(), d.offset()
	f.Stats = router.Stats{RowsRead: d.int(), RowsSkipped: d.int(), BytesRead: d.int(), BytesSkipped: d.int(), LakeFiles: int(d.int())}
	if d.bad || f.Kind == router.NoRows {
		return f, 0, 0
	}
	f.Rows = int(d.within(1 << 31))
	f.Base, f.Next, f.High, f.Micros = d.offset(), d.offset(), d.offset(), d.int()
	f.At, f.Times = d.runs(), d.runs()
	if n := d.count(1); n > 0 {
		f.Changes = make([]millrace.ChangeType, n)
		for i := range f.Changes {
			f.Changes[i] = millrace.ChangeType(d.within(uint64(millrace.Delete)))
		}
	}
	f.Keys = d.bytes()
	if n := d.count(1); n > 0 {
		f.Ends = make([]int, n)
		last := uint64(0)
		for i := range f.Ends {
			last += d.within(uint64(len(f.Keys)) - last)
			f.Ends[i] = int(last)
		}
	}
	f.Message = &segment.Message{Codec: segment.Codec(d.within(255)), Rows: int(d.within(1 << 31))}
	return f, int(d.within(maxFrameHeader)), int(d.within(maxFrameBody))
}

// frameWriter writes a stream of frames.
type frameWriter struct {
	w   io.Writer
	buf []byte
}

func (w *frameWriter) write(meta []byte, m *segment.Message) error {
	var word [4]byte
	binary.LittleEndian.PutUint32(word[:], uint32(len(meta)))
	if _, err := w.w.Write(word[:]); err != nil {
		return err
	}
	if _, err := w.w.Write(meta); err != nil || m == nil {
		return err
	}
	if _, err := w.w.Write(m.Header); err != nil {
		return err
	}
	_, err := w.w.Write(m.Body)
	return err
}

// frame writes a frame; its message is let go of.
func (w *frameWriter) frame(f *router.Frame) error {
	w.buf = appendFrame(w.buf[:0], f)
	err := w.write(w.buf, f.Message)
	if f.Message != nil {
		f.Message.Release()
	}
	return err
}

func (w *frameWriter) beat() error { return w.write([]byte{streamBeat}, nil) }

// failure ends the stream with an error, of a part.
func (w *frameWriter) failure(part int, err error) error {
	return w.write(appendFailure(binary.AppendUvarint([]byte{streamError}, uint64(part)), err), nil)
}

// frameReader reads a stream of frames.
type frameReader struct {
	r     io.Reader
	close func() error
	// alive is told of each message.
	alive func()
}

var _ router.Frames = (*frameReader)(nil)

// Close implements router.Frames.
func (r *frameReader) Close() error { return r.close() }

// Next implements router.Frames.
func (r *frameReader) Next() (*router.Frame, error) {
	for {
		meta, err := r.next()
		if err != nil {
			return nil, broke(err)
		}
		r.alive()
		d := &decoder{b: meta[1:]}
		switch meta[0] {
		case streamBeat:
			continue
		case streamError:
			part := int(d.within(1 << 31))
			err := d.failure()
			if end := d.end(); end != nil {
				return nil, end
			}
			return nil, router.FarError(part, err)
		case streamFrame:
			f, header, body := d.frame()
			if err := d.end(); err != nil {
				return nil, err
			}
			if f.Message == nil {
				return f, nil
			}
			if f.Message.Header, err = r.read(header); err == nil {
				f.Message.Body, err = r.read(body)
			}
			if err != nil {
				return nil, broke(err)
			}
			return f, nil
		default:
			return nil, errBroken
		}
	}
}

// broke is the error of a stream that ended before its end: it can be asked for again.
func broke(err error) error {
	if _, coded := errors.AsType[*errs.Error](err); coded {
		return err
	}
	return errs.New(errs.NotOwner, "the stream of rows broke: %v", err)
}

// next reads a message up to its Arrow part.
func (r *frameReader) next() ([]byte, error) {
	var word [4]byte
	if _, err := io.ReadFull(r.r, word[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(word[:])
	if n == 0 || n > maxFrameMeta {
		return nil, errBroken
	}
	return r.read(int(n))
}

// firstRead bounds what is allocated before anything has come.
const firstRead = 1 << 20

// read reads n bytes, and allocates no more than twice of what came (P3).
func (r *frameReader) read(n int) ([]byte, error) {
	b := make([]byte, min(n, firstRead))
	for got := 0; ; {
		m, err := io.ReadFull(r.r, b[got:])
		if err != nil {
			return nil, fmt.Errorf("in a message: %w", err)
		}
		if got += m; got == n {
			return b, nil
		}
		b = append(make([]byte, 0, min(n, 2*got)), b...)
		b = b[:cap(b)]
	}
}
