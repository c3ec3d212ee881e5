package segment

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// walkBuffer is how much of an unsealed file is read at a time to find batches.
const walkBuffer = 64 << 10

// File reads a segment file. It may be used by many goroutines, also while a
// Writer appends.
type File struct {
	path string
	id   FileID
	f    Source
	w    vfs.File // f, when a Writer may append
	uses atomic.Int32
	// second is another copy of a local file; nil while there is none.
	second  atomic.Pointer[secondCopy]
	damaged atomic.Bool // the local copy, as a read found

	mu struct {
		sync.RWMutex
		batches []BatchRef
		size    int64
		sealed  bool
		// Of a file whose index was not read yet: what its owner knows of it.
		unread *Outline
	}
}

func newFile(path string, id FileID, f Source) *File {
	file := &File{path: path, id: id, f: f}
	file.uses.Store(1)
	file.mu.size = fileHeader
	return file
}

// OpenSealed opens a sealed file through its index.
func OpenSealed(fs vfs.FS, dir string, id FileID) (*File, error) {
	return open(fs, dir, id, func(f *File, h vfs.File) error {
		info, err := h.Stat()
		if err != nil {
			return fileError("segment.Open", f.path, err)
		}
		size := info.Size()
		if size < fileHeader+fileTrailer {
			return f.corrupt(size, "a segment file of %d bytes", size)
		}
		return f.loadIndex(size)
	})
}

// OpenUnsealed opens the first length bytes (as Writer.Sync returned them) of a
// file that was not sealed, by walking its batch headers. What follows is the
// rest of a write that was cut off, and ignored.
func OpenUnsealed(fs vfs.FS, dir string, id FileID, length int64) (*File, error) {
	return open(fs, dir, id, func(f *File, _ vfs.File) error { return f.walk(length) })
}

func open(fs vfs.FS, dir string, id FileID, load func(*File, vfs.File) error) (*File, error) {
	path := fs.PathJoin(dir, FileName(id.Base))
	h, err := fs.Open(path)
	if err != nil {
		return nil, fileError("segment.Open", path, err)
	}
	f := newFile(path, id, h)
	if err = f.checkHeader(); err == nil {
		err = load(f, h)
	}
	if err != nil {
		_ = f.Close() // opened for reading: nothing to lose
		return nil, err
	}
	return f, nil
}

func (f *File) checkHeader() error {
	var head [fileHeader]byte
	return f.readChecked(head[:], 0, func(b []byte) error { return f.locate(checkFileHeader(b, f.id), 0) })
}

func (f *File) loadIndex(size int64) error {
	batches, err := f.readIndex(size)
	if err != nil {
		return err
	}
	f.mu.batches, f.mu.size, f.mu.sealed = batches, size, true
	return nil
}

// readIndex reads the index at the end of a sealed file.
func (f *File) readIndex(size int64) ([]BatchRef, error) {
	b := make([]byte, min(size-fileHeader, metaGuess))
	n := int64(fileTrailer)
	var batches []BatchRef
	parse := func(b []byte) (err error) {
		if n, err = indexLen(b[len(b)-fileTrailer:], size); err != nil {
			return f.locate(err, size-fileTrailer)
		}
		if n > int64(len(b)) {
			return nil // longer than the guess
		}
		batches, err = parseIndex(b[int64(len(b))-n:], f.id.Base)
		return f.locate(err, size-n)
	}
	if err := f.readChecked(b, size-int64(len(b)), parse); err != nil {
		return nil, err
	}
	if n > int64(len(b)) {
		b = make([]byte, n)
		if err := f.readChecked(b, size-n, parse); err != nil {
			return nil, err
		}
	}
	return batches, nil
}

// walk finds the batches of the first length bytes.
func (f *File) walk(length int64) error {
	if length < fileHeader {
		return f.corrupt(length, "a segment file of %d bytes", length)
	}
	buf := make([]byte, 0, walkBuffer)
	var at int64 // where buf begins
	pos, next := int64(fileHeader), f.id.Base
	// fill makes the n bytes at pos part of buf.
	fill := func(n int) ([]byte, error) {
		if pos < at || pos+int64(n) > at+int64(len(buf)) {
			buf = slices.Grow(buf[:0], n)
			buf, at = buf[:min(int64(cap(buf)), length-pos)], pos
			if err := f.readAt(buf, pos); err != nil {
				return nil, err
			}
		}
		return buf[pos-at:][:n], nil
	}
	for pos < length {
		b, err := fill(int(min(batchFixed, length-pos)))
		if err != nil {
			return err
		}
		n, err := batchHeaderLen(b)
		if err == nil && int64(n) > length-pos {
			err = errs.New(errs.CorruptData, "a batch header of %d bytes that the file does not hold", n)
		}
		if err != nil {
			return f.locate(err, pos)
		}
		if b, err = fill(n); err != nil {
			return err
		}
		h, _, err := ParseBatchHeader(b)
		if err != nil {
			return f.locate(err, pos)
		}
		ref := BatchRef{
			Base: h.Base, Rows: h.Rows, HeaderLen: n, Position: pos,
			Length: int64(ceil(n, chunkAlign) + ceil(int(h.PayloadLen), chunkAlign)), MaxTime: h.MaxTime(),
		}
		if h.Bucket != f.id.Bucket || h.Base != next || ref.Length > length-pos {
			return f.corrupt(pos, "a batch of bucket %v at offset %d, %d bytes, where bucket %v goes on at offset %d with %d bytes left", h.Bucket, h.Base, ref.Length, f.id.Bucket, next, length-pos)
		}
		f.mu.batches = append(f.mu.batches, ref)
		pos, next = pos+ref.Length, ref.End()
	}
	f.mu.size = length
	return nil
}

// Path is the file's path.
func (f *File) Path() string { return f.path }

// ID is whose file it is.
func (f *File) ID() FileID { return f.id }

// Sealed says whether the file has its index.
func (f *File) Sealed() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.mu.sealed
}

// Size is the file's length, as far as it is read.
func (f *File) Size() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.mu.size
}

// End is the offset after the last batch; the base when there is none.
func (f *File) End() millrace.Offset {
	if u := f.outline(); u != nil {
		return u.End
	}
	if b := f.Batches(); len(b) > 0 {
		return b[len(b)-1].End()
	}
	return f.id.Base
}

// Batches lists the batches there are now. The slice must not be changed.
func (f *File) Batches() []BatchRef {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Clip(f.mu.batches)
}

// Find is the index in Batches of the batch that holds the offset: 0 when it lies
// before all, the number of batches when it lies behind. Indexes stay right while
// a Writer appends.
func (f *File) Find(off millrace.Offset) int {
	b := f.Batches()
	return sort.Search(len(b), func(i int) bool { return b[i].End() > off })
}

// FindTime is the index in Batches of the first batch with a row at or after
// micros; the number of batches when there is none.
func (f *File) FindTime(micros int64) int {
	b := f.Batches()
	return sort.Search(len(b), func(i int) bool { return b[i].MaxTime >= micros })
}

// Payload opens a batch, with one read of its header and the payload's meta part.
// The Payload may be used until the File is closed.
func (f *File) Payload(ref BatchRef) (*Payload, *BatchHeader, error) {
	start := ceil(ref.HeaderLen, chunkAlign)
	b := make([]byte, min(ref.Length, int64(start+metaGuess)))
	var h BatchHeader
	var p *Payload
	err := f.readChecked(b, ref.Position, func(b []byte) (err error) {
		h, p, err = f.parseBatch(ref, b)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return p, &h, nil
}

// parseBatch opens a batch whose first bytes are b.
func (f *File) parseBatch(ref BatchRef, b []byte) (BatchHeader, *Payload, error) {
	start := ceil(ref.HeaderLen, chunkAlign)
	h, n, err := ParseBatchHeader(b[:start])
	if err != nil {
		return h, nil, f.locate(err, ref.Position)
	}
	if n != ref.HeaderLen || h.Bucket != f.id.Bucket || h.Base != ref.Base || h.Rows != ref.Rows ||
		ref.Length != int64(start+ceil(int(h.PayloadLen), chunkAlign)) {
		return h, nil, f.corrupt(ref.Position, "a batch of bucket %v with %d rows at offset %d where one of bucket %v with %d rows at offset %d belongs", h.Bucket, h.Rows, h.Base, f.id.Bucket, ref.Rows, ref.Base)
	}
	p := &Payload{src: f, off: ref.Position + int64(start), where: f.path}
	b = b[start:]
	b = b[:min(int64(len(b)), h.PayloadLen)]
	p.read.Store(int64(len(b)))
	if err := p.init(b, h.PayloadLen); err != nil {
		return h, nil, err
	}
	return h, p, h.Owns(p)
}

// Retain adds a use; each use ends with one Close.
// REQUIRES: the caller has a use, or keeps the last one from ending.
func (f *File) Retain() { f.uses.Add(1) }

// Close ends a use; the last one closes the file.
func (f *File) Close() error {
	switch n := f.uses.Add(-1); {
	case n > 0:
		return nil
	case n < 0:
		panic("segment: a File closed more often than it was used")
	}
	var err error
	if c := f.second.Load(); c != nil {
		err = c.Close()
	}
	if err = errors.Join(err, f.f.Close()); err != nil {
		return fileError("segment.Close", f.path, err)
	}
	return nil
}

// add makes a batch that was written known to readers.
func (f *File) add(ref BatchRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.batches = append(f.mu.batches, ref)
	f.mu.size = ref.Position + ref.Length
}

func (f *File) seal(size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.size, f.mu.sealed = size, true
}

func (f *File) readAt(b []byte, pos int64) error {
	n, err := f.ReadAt(b, pos)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return f.corrupt(pos+int64(n), "the file ends here")
	}
	return fileError("segment.Read", f.path, err)
}

func (f *File) corrupt(pos int64, format string, args ...any) error {
	return f.locate(errs.New(errs.CorruptData, format, args...), pos)
}

// locate says where in the file an error was found; nil stays nil.
func (f *File) locate(err error, pos int64) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		e.Message = fmt.Sprintf("%s, byte %d: %s", f.path, pos, e.Message)
	}
	return err
}
