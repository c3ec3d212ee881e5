package segment

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Source is where the bytes of a file lie: vfs.File is one, an object in an object
// store behind a cache another.
type Source interface {
	ReaderAt
	Close() error
}

// Rereader is a Source that may keep what it read: ReadAgain reads from where the
// bytes come from, when those that ReadAt gave are not what was stored.
type Rereader interface {
	ReadAgain(p []byte, off int64) (int, error)
}

// Outline is what is known of a sealed file without reading it.
type Outline struct {
	Bytes   int64
	End     millrace.Offset
	MaxTime int64 // of the last row, µs
}

// OpenLater gives a sealed file whose header and index are read, from src, when
// [File.Load] is called first. path names it in errors.
func OpenLater(src Source, path string, id FileID, o Outline) *File {
	f := newFile(path, id, src)
	f.mu.size, f.mu.sealed, f.mu.unread = o.Bytes, true, &o
	return f
}

// Load reads the index, unless that was done. Batches, Find and FindTime see nothing of
// a file before.
func (f *File) Load() error {
	u := f.outline()
	if u == nil {
		return nil
	}
	if u.Bytes < fileHeader+fileTrailer {
		return f.corrupt(u.Bytes, "a segment file of %d bytes", u.Bytes)
	}
	if err := f.checkHeader(); err != nil {
		return err
	}
	batches, err := f.readIndex(u.Bytes)
	if err != nil {
		return err
	}
	if n := len(batches); n == 0 || batches[n-1].End() != u.End || batches[n-1].MaxTime != u.MaxTime {
		return f.corrupt(u.Bytes, "%d batches that do not end at offset %d, as the manifest says", n, u.End)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.batches, f.mu.unread = batches, nil // twice the same, when two load it
	return nil
}

// Outline is what OpenLater needs of a sealed file.
func (f *File) Outline() Outline {
	if u := f.outline(); u != nil {
		return *u
	}
	return Outline{Bytes: f.Size(), End: f.End(), MaxTime: f.MaxTime()}
}

func (f *File) outline() *Outline {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.mu.unread
}

// MaxTime is the time of the last row, µs; 0 when there is none.
func (f *File) MaxTime() int64 {
	if u := f.outline(); u != nil {
		return u.MaxTime
	}
	if b := f.Batches(); len(b) > 0 {
		return b[len(b)-1].MaxTime
	}
	return 0
}

// secondCopy is another copy of a file.
type secondCopy struct{ Source }

// SetSecond names another copy of the whole file, to be read where this one is damaged.
// The File closes it. A second call is ignored, and its copy closed.
func (f *File) SetSecond(s Source) error {
	if f.second.CompareAndSwap(nil, &secondCopy{Source: s}) {
		return nil
	}
	return s.Close()
}

// Damaged says whether a read found this copy damaged, and the second one sound.
func (f *File) Damaged() bool { return f.damaged.Load() }

// ReadAt reads bytes of the file as they are stored.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	if c := f.second.Load(); c != nil && f.damaged.Load() {
		return c.ReadAt(b, off)
	}
	return f.f.ReadAt(b, off)
}

// again reads bytes anew that are not what was stored, as cause says: from another
// copy, or past what a cache holds. Without either it returns cause.
func (f *File) again(b []byte, off int64, cause error) error {
	if !errs.Is(cause, errs.CorruptData) {
		return cause
	}
	var n int
	var err error
	c := f.second.Load()
	r, ok := f.f.(Rereader)
	switch {
	case c != nil:
		if rr, ok := c.Source.(Rereader); ok && f.damaged.Load() {
			n, err = rr.ReadAgain(b, off)
		} else {
			n, err = c.ReadAt(b, off)
		}
	case ok:
		n, err = r.ReadAgain(b, off)
	default:
		return cause
	}
	if n < len(b) {
		return fileError("segment.Read", f.path, errors.Join(err, fmt.Errorf("the other copy was asked because of this: %w", cause)))
	}
	if c != nil {
		f.damaged.Store(true)
	}
	return nil
}

// readChecked reads bytes that check finds sound, where there is another copy also from
// there.
func (f *File) readChecked(b []byte, pos int64, check func([]byte) error) error {
	if err := f.readAt(b, pos); err != nil {
		if !errs.Is(err, errs.CorruptData) { // cut short
			return err
		}
		if err := f.again(b, pos, err); err != nil {
			return err
		}
		return check(b)
	}
	err := check(b)
	if err == nil {
		return nil
	}
	// What check took from b before is not used any more.
	if err := f.again(b, pos, err); err != nil {
		return err
	}
	return check(b)
}

// Local says whether the file is one of the file system.
func (f *File) Local() bool {
	_, ok := f.f.(vfs.File)
	return ok
}
