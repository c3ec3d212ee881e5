package wal

import (
	"errors"
	"log/slog"
	"slices"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/errs"
)

const writeCategory vfs.DiskWriteCategory = "millrace-wal"

// isFull says whether an error means that there is no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// fileError is what a failed operation on a file is to the caller.
func (f *Files) fileError(what, name string, err error) error {
	if isFull(err) {
		f.met.full.Inc()
		return errs.New(errs.StorageFull, "%s %s: %v: make room on the disk", what, name, err)
	}
	return errs.New(errs.Unavailable, "%s %s: %v", what, name, err)
}

// firstFile begins the first file of this process, with the records carried over.
func (f *Files) firstFile(number uint64, heads []head, carried []byte) error {
	f.cur.number = number - 1
	w := &writing{frames: framesOf(carried)}
	if len(carried) > 0 {
		w.pieces = append(w.pieces, carried)
	}
	if err := f.begin(heads, w); err != nil {
		if f.mu.dead != nil {
			return f.mu.dead
		}
		return err
	}
	last := &f.mu.spans[len(f.mu.spans)-1]
	last.end = f.cur.next.off
	var size int64
	for _, s := range f.mu.spans {
		size += s.end
	}
	f.met.files.Set(float64(len(f.mu.spans)))
	f.met.size.Set(float64(size))
	return nil
}

// rotate begins the next file with a group as its first content.
func (f *Files) rotate(w *writing) error {
	f.mu.Lock()
	heads := slices.Clone(f.mu.heads)
	f.mu.Unlock()
	return f.begin(heads, w)
}

// begin makes the next file: header and first records are synced before the file
// gets its name, so that a file with a name is whole, and what came before is
// disowned beyond its end only when what follows is there (W3). On an error nothing
// has changed, but for a log that is dead.
func (f *Files) begin(heads []head, w *writing) error {
	h := fileHeader{cluster: f.opts.ClusterID, number: f.cur.number + 1, heads: heads}
	f.mu.Lock()
	for _, s := range f.mu.spans {
		h.files = append(h.files, fileEnd{s.number, s.end})
	}
	f.mu.Unlock()
	start := h.dataStart()
	next := stamper{file: h.number, off: start, group: start, prevShard: noShard}
	for _, b := range w.frames {
		next.stamp(b)
	}
	h.born = next.off
	tmp, name := f.path(h.number, tmpSuffix), f.path(h.number, fileSuffix)
	file, err := f.fs.Create(tmp, writeCategory)
	if err != nil {
		return f.fileError("creating", tmp, err)
	}
	if err := f.publish(file, tmp, name, h.encode(), w.pieces); err != nil {
		_ = file.Close() // it is removed, or the log is dead
		f.remove(tmp)
		return err
	}
	if err := f.retire(); err != nil {
		f.opts.Logger.Warn("log file was not closed", slog.Any("err", err))
	}
	f.cur = appendFile{f: file, number: h.number, start: start, next: next}
	f.mu.Lock()
	f.mu.spans = append(f.mu.spans, span{number: h.number, start: slices.Clone(heads), data: start})
	f.mu.Unlock()
	f.met.files.Inc()
	return nil
}

func (f *Files) publish(file vfs.File, tmp, name string, header []byte, pieces [][]byte) error {
	if _, err := file.Write(header); err != nil {
		return f.fileError("writing", tmp, err)
	}
	if err := f.write(file, pieces); err != nil {
		return f.fileError("writing", tmp, err)
	}
	if err := f.sync(file); err != nil {
		return f.die("fsync of the file after", err)
	}
	if err := f.fs.Rename(tmp, name); err != nil {
		if isFull(err) {
			return f.fileError("naming", tmp, err)
		}
		return f.die("naming the file after", err)
	}
	if err := syncDir(f.fs, f.dir); err != nil {
		return f.die("fsync of the directory for the file after", err)
	}
	return nil
}

// disown sees to it that nothing of a group that could not be written is ever read,
// and says what the group is told. The next write begins another file, whose header
// says where this one ends; but that takes room. Until then the bytes that did get
// written are zeroed where they lie, which takes none (except where files are copied
// on write: then the outcome is unknown until the next file is begun).
func (f *Files) disown(cause error) error {
	name := f.path(f.cur.number, fileSuffix)
	if !isFull(cause) {
		return f.die("writing", cause)
	}
	if err := f.retire(); err != nil {
		f.opts.Logger.Warn("log file was not closed", slog.Any("err", err))
	}
	full := f.fileError("writing", name, cause)
	f.opts.Logger.Error("no room for the log", slog.String("file", name), slog.Any("err", cause))
	file, err := f.fs.OpenReadWrite(name, writeCategory)
	if err != nil {
		return errs.New(errs.UnknownOutcome, "%v; and then opening it: %v", full, err)
	}
	defer func() { _ = file.Close() }() // synced before
	wrote, err := zeroFrom(file, f.cur.next.off)
	if err != nil {
		return errs.New(errs.UnknownOutcome, "%v; and then zeroing it: %v", full, err)
	}
	if wrote {
		if err := f.sync(file); err != nil {
			return f.die("fsync of", err)
		}
	}
	return full
}

// zeroFrom overwrites a file with zeros from off to its end.
func zeroFrom(file vfs.File, off int64) (wrote bool, err error) {
	st, err := file.Stat()
	if err != nil {
		return false, err
	}
	for off < st.Size() {
		// A fresh slice each time: Write may change what it is given.
		n, err := file.WriteAt(make([]byte, min(st.Size()-off, 1<<20)), off)
		if err != nil {
			return true, err
		}
		off, wrote = off+int64(n), true
	}
	return wrote, nil
}
