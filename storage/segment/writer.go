package segment

import (
	"cmp"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/internal/sharedwrite"
)

// copyBelow is the size below which a payload is copied, to be written together with
// what stands around it.
const copyBelow = 64 << 10

// Writer writes one segment file, from its start to its end. It belongs to one
// goroutine; what it appended can be read at once through File.
//
// After an error of the file system the Writer takes no more: what a failed write
// left behind the last batch is not known. What was appended before stays readable,
// and Sync makes it durable, unless it was a sync that failed: then what is on disk
// is not known at all.
type Writer struct {
	fs     vfs.FS
	dir    string
	file   *File
	next   millrace.Offset
	pos    int64
	synced int64 // how much of pos is on stable storage
	buf    []byte
	err    error // the first failure
	lost   bool  // it was that of a sync
	done   bool
}

// Create makes the segment file of id in dir, which exists; a file of that name,
// left by a crash, is replaced. Nothing is durable before Sync or Seal.
func Create(fs vfs.FS, dir string, id FileID) (*Writer, error) {
	path := fs.PathJoin(dir, FileName(id.Base))
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fileError("segment.Create", path, err)
	}
	w := &Writer{fs: fs, dir: dir, file: newFile(path, id, f), next: id.Base}
	w.file.w = f
	w.file.Retain() // the Writer's own use
	w.buf = appendFileHeader(w.buf, id)
	if err := w.write("segment.Create", w.buf); err != nil {
		_ = w.file.Close() // the error that matters is the first
		_ = w.file.Close()
		return nil, err
	}
	return w, nil
}

// File reads what was appended so far. It is closed by its user, apart from the
// Writer.
func (w *Writer) File() *File { return w.file }

// Append writes a batch, without syncing.
// REQUIRES: h was stamped on the payload and h.Base is the offset after the last
// batch.
func (w *Writer) Append(h *BatchHeader, payload []byte) (BatchRef, error) {
	if h.Base != w.next || h.Bucket != w.file.id.Bucket || int64(len(payload)) != h.PayloadLen {
		panic(fmt.Sprintf("segment: a batch of bucket %v at offset %d, %d bytes, appended to bucket %v at offset %d", h.Bucket, h.Base, len(payload), w.file.id.Bucket, w.next))
	}
	if err := w.usable(); err != nil {
		return BatchRef{}, err
	}
	w.buf = AppendBatchHeader(w.buf[:0], h)
	ref := BatchRef{Base: h.Base, Rows: h.Rows, HeaderLen: len(w.buf), Position: w.pos, MaxTime: h.MaxTime()}
	w.buf = appendZeros(w.buf, 0, chunkAlign)
	pieces := [][]byte{w.buf, payload, zeros[:ceil(len(payload), chunkAlign)-len(payload)]}
	if len(payload) < copyBelow {
		w.buf = append(w.buf, payload...)
		w.buf = appendZeros(w.buf, 0, chunkAlign)
		pieces = [][]byte{w.buf}
	}
	if err := w.write("segment.Append", pieces...); err != nil {
		return BatchRef{}, err
	}
	ref.Length = w.pos - ref.Position
	w.next = h.End()
	w.file.add(ref)
	return ref, nil
}

// Sync makes all that was appended durable, the file's directory entry included,
// and returns the file's length.
func (w *Writer) Sync() (int64, error) {
	if err := w.usable(); w.lost {
		return 0, err
	}
	return w.pos, w.sync("segment.Sync")
}

// Seal writes the index, makes the file durable and ends writing.
func (w *Writer) Seal() error {
	if err := w.usable(); err != nil {
		return err
	}
	w.buf = appendIndex(w.buf[:0], w.pos, w.file.Batches(), w.next)
	if err := w.write("segment.Seal", w.buf); err != nil {
		return err
	}
	if err := w.sync("segment.Seal"); err != nil {
		return err
	}
	w.file.seal(w.pos)
	return w.Close()
}

// Close ends writing without sealing. It does not sync.
func (w *Writer) Close() error {
	if w.done {
		return nil
	}
	w.done, w.buf = true, nil
	return w.file.Close()
}

func (w *Writer) usable() error {
	if w.done {
		panic("segment: a Writer used after Seal or Close")
	}
	if w.err != nil {
		return errs.Wrap(errs.CodeOf(w.err), "segment.Writer", fmt.Errorf("an earlier write failed: %w", w.err))
	}
	return nil
}

// write writes at the end. What it wrote counts when all of it is there.
func (w *Writer) write(op string, pieces ...[]byte) error {
	var n int64
	for _, p := range pieces {
		if len(p) == 0 {
			continue
		}
		if err := sharedwrite.Write(w.file.w, p); err != nil {
			w.err = fileError(op, w.file.path, err)
			return w.err
		}
		n += int64(len(p))
	}
	w.pos += n
	return nil
}

func (w *Writer) sync(op string) error {
	if w.synced == w.pos {
		return nil
	}
	err := w.file.w.Sync()
	if err == nil && w.synced == 0 {
		err = syncDir(w.fs, w.dir)
	}
	if err != nil {
		err = fileError(op, w.file.path, err)
		w.err, w.lost = cmp.Or(w.err, err), true
		return err
	}
	w.synced = w.pos
	return nil
}

// syncDir makes a directory's entries durable.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close() // the sync's error is what matters
		return err
	}
	return d.Close()
}
