package iceberg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	iceio "github.com/apache/iceberg-go/io"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

// tailBytes is how much of a file's end is read at once, for whoever begins with its
// footer; aheadBytes how much a reader in order gets at once.
const (
	tailBytes  = 64 << 10
	aheadBytes = 256 << 10
)

// storeIO shows an object store to iceberg-go, whose names are URIs and whose calls
// have no context: a storeIO is made for each operation and ends with its context.
type storeIO struct {
	ctx   context.Context //nolint:containedctx // The interfaces of iceberg-go have none.
	store objstore.Store
	// own is told of each file before it is written, and may refuse; nil: nobody asks.
	own func(key string) error
}

var (
	_ iceio.WriteFileIO     = (*storeIO)(nil)
	_ iceio.ReadFileIO      = (*storeIO)(nil)
	_ iceio.ListableIO      = (*storeIO)(nil)
	_ iceio.BulkRemovableIO = (*storeIO)(nil)
)

// StoreIO shows a store to the catalog clients of iceberg-go, which write metadata
// themselves, for the life of a context.
func StoreIO(ctx context.Context, store objstore.Store) iceio.WriteFileIO {
	return &storeIO{ctx: ctx, store: store}
}

// keyOf is the key of a URI in a store.
func keyOf(s objstore.Reader, uri string) (string, error) {
	key, ok := strings.CutPrefix(uri, s.URI()+"/")
	if !ok || key == "" {
		return "", &fs.PathError{Op: "open", Path: uri, Err: fs.ErrInvalid}
	}
	return key, nil
}

// uriOf is the URI of a key.
func uriOf(s objstore.Reader, key string) string { return s.URI() + "/" + key }

// pathError is an error about a file as the standard library tells it.
func pathError(op, uri string, err error) error {
	if errors.Is(err, objstore.ErrNotExist) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return &fs.PathError{Op: op, Path: uri, Err: err}
}

// storeError is an error of the store as callers of this package see it: what is
// missing was lost, everything else may work later.
func storeError(err error, format string, args ...any) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e
	}
	what := fmt.Sprintf(format, args...)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, objstore.ErrNotExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, io.ErrUnexpectedEOF):
		return &errs.Error{Code: errs.CorruptData, Message: "cannot " + what + ": the file is missing or too short", Err: err}
	}
	return &errs.Error{Code: errs.Unavailable, Message: "cannot " + what, Err: err}
}

// metaError is an error of iceberg-go about a file that it read through a storeIO: one of
// the store, or else what was read makes no sense.
func metaError(err error, format string, args ...any) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return storeError(err, format, args...)
	}
	return &errs.Error{Code: errs.CorruptData, Message: "cannot " + fmt.Sprintf(format, args...) + ": the file is damaged", Err: err}
}

// Open implements io.IO.
func (s *storeIO) Open(name string) (iceio.File, error) {
	key, err := keyOf(s.store, name)
	if err != nil {
		return nil, err
	}
	info, err := s.store.Stat(s.ctx, key)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &storeFile{s: s, uri: name, info: info}, nil
}

// ReadFile implements io.ReadFileIO.
func (s *storeIO) ReadFile(name string) ([]byte, error) {
	key, err := keyOf(s.store, name)
	if err != nil {
		return nil, err
	}
	body, err := s.store.Get(s.ctx, key)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return body, nil
}

// Remove implements io.IO.
func (s *storeIO) Remove(name string) error {
	_, err := s.DeleteFiles(s.ctx, []string{name})
	return err
}

// DeleteFiles implements io.BulkRemovableIO.
func (s *storeIO) DeleteFiles(ctx context.Context, names []string) ([]string, error) {
	keys := make([]string, len(names))
	for i, n := range names {
		key, err := keyOf(s.store, n)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	if err := s.store.Remove(ctx, keys...); err != nil {
		return nil, err
	}
	return names, nil
}

// Create implements io.WriteFileIO. The file appears at Close.
func (s *storeIO) Create(name string) (iceio.FileWriter, error) {
	key, err := keyOf(s.store, name)
	if err != nil {
		return nil, err
	}
	if s.own != nil {
		if err := s.own(key); err != nil {
			return nil, err
		}
	}
	w, err := s.store.Writer(s.ctx, key)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	return &storeWriter{w: w}, nil
}

// WriteFile implements io.WriteFileIO.
func (s *storeIO) WriteFile(name string, p []byte) error {
	key, err := keyOf(s.store, name)
	if err != nil {
		return err
	}
	if s.own != nil {
		if err := s.own(key); err != nil {
			return err
		}
	}
	if err := s.store.Put(s.ctx, key, p); err != nil {
		return pathError("write", name, err)
	}
	return nil
}

// WalkDir implements io.ListableIO. A store has no folders: fn gets the files.
func (s *storeIO) WalkDir(root string, fn fs.WalkDirFunc) error {
	key, err := keyOf(s.store, strings.TrimSuffix(root, "/"))
	if err != nil {
		return err
	}
	err = s.store.List(s.ctx, key+"/", func(i objstore.Info) error {
		return fn(uriOf(s.store, i.Key), fs.FileInfoToDirEntry(fileInfo{i}), nil)
	})
	if errors.Is(err, fs.SkipAll) || errors.Is(err, fs.SkipDir) {
		return nil
	}
	return err
}

// fileInfo is an object as the standard library describes files.
type fileInfo struct{ objstore.Info }

func (f fileInfo) Name() string       { return path.Base(f.Key) }
func (f fileInfo) Size() int64        { return f.Bytes }
func (f fileInfo) Mode() fs.FileMode  { return 0o444 }
func (f fileInfo) ModTime() time.Time { return f.Modified }
func (f fileInfo) IsDir() bool        { return false }
func (f fileInfo) Sys() any           { return nil }

// storeFile reads an object by ranges. ReadAt may be called concurrently, Read and
// Seek not.
type storeFile struct {
	s    *storeIO
	uri  string
	info objstore.Info

	off   int64 // of Read
	ahead []byte

	mu   sync.Mutex
	tail []byte // the last tailBytes, once one of them was asked for
}

// Stat implements fs.File.
func (f *storeFile) Stat() (fs.FileInfo, error) { return fileInfo{f.info}, nil }

// Close implements fs.File.
func (f *storeFile) Close() error {
	f.ahead = nil
	return nil
}

// Read implements io.Reader, ahead of what is asked for.
func (f *storeFile) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(f.ahead) == 0 {
		n := min(aheadBytes, f.info.Bytes-f.off)
		if n <= 0 {
			return 0, io.EOF
		}
		buf := make([]byte, n)
		if _, err := f.ReadAt(buf, f.off); err != nil {
			return 0, err
		}
		f.ahead = buf
	}
	n := copy(p, f.ahead)
	f.ahead = f.ahead[n:]
	f.off += int64(n)
	return n, nil
}

// Seek implements io.Seeker.
func (f *storeFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.off
	case io.SeekEnd:
		offset += f.info.Bytes
	}
	if offset < 0 {
		return 0, &fs.PathError{Op: "seek", Path: f.uri, Err: fs.ErrInvalid}
	}
	if offset != f.off {
		f.off, f.ahead = offset, nil
	}
	return offset, nil
}

// ReadAt implements io.ReaderAt.
func (f *storeFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.uri, Err: fs.ErrInvalid}
	}
	want := p
	if rest := f.info.Bytes - off; int64(len(p)) > rest {
		if rest <= 0 {
			return 0, io.EOF
		}
		want = p[:rest]
	}
	if err := f.readExactly(want, off); err != nil {
		return 0, err
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// readExactly reads within the file; what lies in its tail comes with the whole tail.
func (f *storeFile) readExactly(p []byte, off int64) error {
	tailAt := max(0, f.info.Bytes-tailBytes)
	if off < tailAt {
		if err := f.s.store.ReadAt(f.s.ctx, f.info.Key, p, off); err != nil {
			return pathError("read", f.uri, err)
		}
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tail == nil {
		tail := make([]byte, f.info.Bytes-tailAt)
		if err := f.s.store.ReadAt(f.s.ctx, f.info.Key, tail, tailAt); err != nil {
			return pathError("read", f.uri, err)
		}
		f.tail = tail
	}
	copy(p, f.tail[off-tailAt:])
	return nil
}

// storeWriter writes an object; it appears at Close.
type storeWriter struct{ w objstore.Writer }

// Write implements io.Writer.
func (w *storeWriter) Write(p []byte) (int, error) { return w.w.Write(p) }

// Close implements io.Closer.
func (w *storeWriter) Close() error { return w.w.Close() }

// ReadFrom implements io.ReaderFrom.
func (w *storeWriter) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{w.w}, r)
}
