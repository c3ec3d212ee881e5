package objstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// leftoverAge is when a file that is being written counts as left by a crash. A writer
// that takes longer finds its file gone, and fails.
const leftoverAge = time.Hour

// maxDurable bounds the folders that are remembered.
const maxDurable = 4096

// Put is part of Store.
func (s *fileStore) Put(ctx context.Context, key string, body []byte) error {
	return s.write(ctx, opPut, key, body, false)
}

// Create is part of Store.
func (s *fileStore) Create(ctx context.Context, key string, body []byte) error {
	if err := s.begin(ctx, opCreate, key); err != nil {
		return err
	}
	// Most that lose a race have lost it already; link decides about the others.
	if info, err := s.fs.Stat(s.path(key)); err == nil && !info.IsDir() {
		return exists(s.URI(), key)
	}
	return s.write(ctx, opCreate, key, body, true)
}

func (s *fileStore) write(ctx context.Context, op, key string, body []byte, exclusive bool) error {
	w, err := s.newWriter(ctx, op, key)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(body); err != nil {
		return err
	}
	return w.publish(exclusive)
}

// Writer is part of Store.
func (s *fileStore) Writer(ctx context.Context, key string) (Writer, error) {
	return s.newWriter(ctx, opWrite, key)
}

// fileWriter writes an object's file beside the others, under a name of its own, and
// puts it in its place when all of it is on disk (O1).
type fileWriter struct {
	s       *fileStore
	ctx     context.Context
	op, key string
	f       vfs.File // nil when it has ended
	temp    string
	step    []byte
	err     error // the first one; the object does not appear
}

func (s *fileStore) newWriter(ctx context.Context, op, key string) (*fileWriter, error) {
	if err := s.begin(ctx, op, key); err != nil {
		return nil, err
	}
	folder := s.path(tempFolder)
	temp := folder + "/" + rand.Text()
	f, err := s.fs.Create(temp, vfs.WriteCategoryUnspecified)
	if oserror.IsNotExist(err) {
		s.forget(s.root)
		if err = s.makeDurable(s.root); err == nil {
			err = s.fs.MkdirAll(folder, 0o755)
		}
		if err == nil {
			f, err = s.fs.Create(temp, vfs.WriteCategoryUnspecified)
		}
	}
	if err != nil {
		return nil, s.failWrite(op, key, err)
	}
	s.sweep(f)
	return &fileWriter{s: s, ctx: ctx, op: op, key: key, f: f, temp: temp}, nil
}

// Write is part of Writer.
func (w *fileWriter) Write(p []byte) (int, error) {
	if w.f == nil && w.err == nil {
		w.err = w.s.failWrite(w.op, w.key, errors.New("it was written to after its end"))
	}
	written := 0
	for written < len(p) && w.err == nil {
		if w.ctx.Err() != nil {
			w.err = w.s.failWrite(w.op, w.key, context.Cause(w.ctx))
			break
		}
		// A copy, since vfs lets a file change what it is given.
		w.step = append(w.step[:0], p[written:min(len(p), written+stepBytes)]...)
		n, err := w.f.Write(w.step)
		written += n
		if err != nil {
			w.err = w.s.failWrite(w.op, w.key, err)
		}
	}
	return written, w.err
}

// Close is part of Writer.
func (w *fileWriter) Close() error {
	defer w.Abort()
	return w.publish(false)
}

// Abort is part of Writer.
func (w *fileWriter) Abort() {
	if w.f == nil {
		return
	}
	_ = w.f.Close()
	w.f = nil
	// What cannot be removed now is a leftover.
	_ = w.s.fs.Remove(w.temp)
}

// publish puts the file in its place. Exclusive, it is linked there, which is refused
// when there is one, whoever made it (O2); else it takes the other's place.
func (w *fileWriter) publish(exclusive bool) error {
	if w.f == nil && w.err == nil {
		w.err = w.s.failWrite(w.op, w.key, errors.New("it has ended before"))
	}
	if w.err == nil && w.ctx.Err() != nil {
		w.err = w.s.failWrite(w.op, w.key, context.Cause(w.ctx))
	}
	if w.err != nil {
		return w.err
	}
	target := w.s.path(w.key)
	folder := path.Dir(target)
	err := w.f.Sync()
	if err == nil {
		err = w.s.makeDurable(folder)
	}
	if err == nil {
		err = w.move(target, exclusive)
	}
	if oserror.IsNotExist(err) {
		// Somebody has removed the folder since it was made.
		w.s.forget(folder)
		if err = w.s.makeDurable(folder); err == nil {
			err = w.move(target, exclusive)
		}
	}
	if exclusive && oserror.IsExist(err) {
		info, statErr := w.s.fs.Stat(target)
		if statErr != nil || !info.IsDir() {
			w.err = exists(w.s.URI(), w.key)
			return w.err
		}
		err = fmt.Errorf("it is a folder of objects: %w", err)
	}
	if err == nil {
		err = w.s.syncFolder(folder)
	}
	if err != nil {
		w.err = w.s.failWrite(w.op, w.key, err)
	}
	return w.err
}

func (w *fileWriter) move(target string, exclusive bool) error {
	if exclusive {
		return w.s.fs.Link(w.temp, target)
	}
	return w.s.fs.Rename(w.temp, target)
}

// makeDurable makes a folder, so that its name and those of the folders above survive a
// crash. Those are synced even when they are there: whoever made them may not have
// come to it.
func (s *fileStore) makeDurable(folder string) error {
	if s.isDurable(folder) {
		return nil
	}
	if err := s.fs.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for at := folder; at != "/" && !s.isDurable(at); at = path.Dir(at) {
		err := s.syncFolder(path.Dir(at))
		if oserror.IsPermission(err) && len(at) <= len(s.root) {
			err = nil // A folder above ours that we may not read, we have not made.
		}
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.durable) >= maxDurable {
		clear(s.mu.durable)
	}
	s.mu.durable[folder] = struct{}{}
	s.mu.durable[s.root] = struct{}{}
	return nil
}

func (s *fileStore) isDurable(folder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.mu.durable[folder]
	return ok
}

// forget takes a folder, and those below and above it, for not durable.
func (s *fileStore) forget(folder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for known := range s.mu.durable {
		if strings.HasPrefix(known+"/", folder+"/") || strings.HasPrefix(folder+"/", known+"/") {
			delete(s.mu.durable, known)
		}
	}
}

func (s *fileStore) syncFolder(folder string) error {
	d, err := s.fs.OpenDir(folder)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

// sweep removes what crashes have left, when it is time to. f was made just now, so its
// time is that of the file system, which is what the others' ages go by.
func (s *fileStore) sweep(f vfs.File) {
	info, err := f.Stat()
	if err != nil {
		return
	}
	now := info.ModTime()
	s.mu.Lock()
	due := now.Sub(s.mu.swept) >= leftoverAge
	if due {
		s.mu.swept = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	// What cannot be looked at or removed stays for the next time.
	folder := s.path(tempFolder)
	names, err := s.fs.List(folder)
	if err != nil {
		return
	}
	for _, name := range names {
		if info, err := s.fs.Stat(folder + "/" + name); err == nil && !info.IsDir() && now.Sub(info.ModTime()) >= leftoverAge {
			_ = s.fs.Remove(folder + "/" + name)
		}
	}
}
