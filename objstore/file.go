package objstore

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/errs"
)

// tempFolder holds what is being written. Its name is no segment of a key, so no key
// reaches it and List does not show it.
const tempFolder = "~tmp"

// fileStore keeps each object in a file of its own, at the path that its key is.
type fileStore struct {
	fs   vfs.FS
	root string

	mu struct {
		sync.Mutex
		// durable are folders whose names are known to be on disk, up to the root.
		durable map[string]struct{}
		// swept is when leftovers were last looked for, by the file system's clock.
		swept time.Time
	}
}

var _ Store = (*fileStore)(nil)

func newFileStore(fs vfs.FS, root string) *fileStore {
	s := &fileStore{fs: fs, root: root}
	s.mu.durable = map[string]struct{}{}
	return s
}

// URI is part of Reader.
func (s *fileStore) URI() string { return "file://" + s.root }

func (s *fileStore) path(key string) string { return s.root + "/" + key }

// begin is what every call with a key does first.
func (s *fileStore) begin(ctx context.Context, op, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return s.fail(op, key, context.Cause(ctx))
	}
	return nil
}

// fail makes what callers get of an error of a read.
func (s *fileStore) fail(op, key string, err error) error {
	if oserror.IsNotExist(err) || errors.Is(err, syscall.ENOTDIR) {
		return missing(s.URI(), key)
	}
	return s.failWrite(op, key, err)
}

// failWrite is fail for calls whose object need not be there: what is missing then is
// something else.
func (s *fileStore) failWrite(op, key string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return failed(errs.StorageFull, op, s.URI(), key, err)
	}
	return failed(errs.Unavailable, op, s.URI(), key, err)
}

// open opens an object's file; a folder is none.
func (s *fileStore) open(key string) (vfs.File, vfs.FileInfo, error) {
	// Looked at before it is opened, since opening a named pipe would wait.
	info, err := s.fs.Stat(s.path(key))
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, os.ErrNotExist
	}
	f, err := s.fs.Open(s.path(key))
	if err != nil {
		return nil, nil, err
	}
	// Another file may have taken its place meanwhile.
	if info, err = f.Stat(); err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Get is part of Reader.
func (s *fileStore) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.begin(ctx, opGet, key); err != nil {
		return nil, err
	}
	f, info, err := s.open(key)
	if err != nil {
		return nil, s.fail(opGet, key, err)
	}
	defer f.Close()
	if info.Size() > MaxGetBytes {
		return nil, tooLarge(s.URI(), key, info.Size())
	}
	body := make([]byte, info.Size())
	if err := s.readAt(ctx, f, body, 0); err != nil {
		return nil, s.fail(opGet, key, err)
	}
	return body, nil
}

// ReadAt is part of Reader.
func (s *fileStore) ReadAt(ctx context.Context, key string, p []byte, off int64) error {
	if err := s.begin(ctx, opReadAt, key); err != nil {
		return err
	}
	if off < 0 {
		return negative(key, off)
	}
	f, info, err := s.open(key)
	if err != nil {
		return s.fail(opReadAt, key, err)
	}
	defer f.Close()
	if off > info.Size()-int64(len(p)) {
		return short(s.URI(), key, len(p), off)
	}
	if err := s.readAt(ctx, f, p, off); err != nil {
		return s.fail(opReadAt, key, err)
	}
	return nil
}

// stepBytes is read or written between two looks at whether the caller gave up.
const stepBytes = 1 << 20

func (s *fileStore) readAt(ctx context.Context, f vfs.File, p []byte, off int64) error {
	for len(p) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := f.ReadAt(p[:min(len(p), stepBytes)], off)
		p, off = p[n:], off+int64(n)
		if err != nil && len(p) > 0 {
			// An object's file never changes, so one that ends early was damaged.
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// Stat is part of Reader.
func (s *fileStore) Stat(ctx context.Context, key string) (Info, error) {
	if err := s.begin(ctx, opStat, key); err != nil {
		return Info{}, err
	}
	info, err := s.fs.Stat(s.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = os.ErrNotExist
	}
	if err != nil {
		return Info{}, s.fail(opStat, key, err)
	}
	return Info{Key: key, Bytes: info.Size(), Modified: info.ModTime()}, nil
}

// List is part of Reader. It holds the names of one folder at each level.
func (s *fileStore) List(ctx context.Context, prefix string, give func(Info) error) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	return s.list(ctx, prefix[:strings.LastIndexByte(prefix, '/')+1], prefix, give)
}

// list gives what lies in a folder, "" or a path with "/" at its end. Names that are no
// segments of keys are not objects.
func (s *fileStore) list(ctx context.Context, folder, prefix string, give func(Info) error) error {
	if ctx.Err() != nil {
		return s.fail(opList, prefix, context.Cause(ctx))
	}
	names, err := s.fs.List(s.path(folder))
	if err != nil {
		switch {
		case oserror.IsNotExist(err), errors.Is(err, syscall.ENOTDIR) && s.isFolder():
			return nil
		case errors.Is(err, syscall.ENOTDIR):
			return errs.New(errs.Unavailable, "%s is no folder", s.URI())
		}
		return s.fail(opList, folder, err)
	}
	// Folders take part with their "/", so that "a-b" comes before "a/b".
	infos := make(map[string]Info, len(names))
	order := names[:0]
	for _, name := range names {
		key := folder + name
		if !validSegment(name) || len(key) > maxKeyBytes || !strings.HasPrefix(key, prefix) {
			continue
		}
		info, err := s.fs.Stat(s.path(key))
		switch {
		case oserror.IsNotExist(err):
		case err != nil:
			return s.fail(opList, key, err)
		case info.IsDir():
			order = append(order, name+"/")
		case info.Mode().IsRegular():
			order = append(order, name)
			infos[name] = Info{Key: key, Bytes: info.Size(), Modified: info.ModTime()}
		}
	}
	slices.Sort(order)
	for _, name := range order {
		if strings.HasSuffix(name, "/") {
			err = s.list(ctx, folder+name, prefix, give)
		} else {
			err = give(infos[name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isFolder says whether the store's own place is a folder: what stands there else is no
// store without objects.
func (s *fileStore) isFolder() bool {
	info, err := s.fs.Stat(s.path(""))
	return err == nil && info.IsDir()
}

// Remove is part of Store. Folders stay: they are few, and a writer may be about to use one.
func (s *fileStore) Remove(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	folders := map[string]string{} // with a key of each
	for _, key := range keys {
		if err := s.begin(ctx, opRemove, key); err != nil {
			return err
		}
		info, err := s.fs.Stat(s.path(key))
		if err == nil && info.IsDir() {
			continue // no object
		}
		if err == nil {
			err = s.fs.Remove(s.path(key))
		}
		switch {
		case err == nil:
			folders[path.Dir(s.path(key))] = key
		case oserror.IsNotExist(err), errors.Is(err, syscall.ENOTDIR):
		default:
			return s.fail(opRemove, key, err)
		}
	}
	for folder, key := range folders {
		if err := s.syncFolder(folder); err != nil {
			return s.fail(opRemove, key, err)
		}
	}
	return nil
}
