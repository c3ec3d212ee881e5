package kv

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fence is the file system as Pebble sees it. Once Pebble is dead, nothing is
// written: what a goroutine left behind did to the manifest must not be followed by
// what others add to it.
type fence struct {
	vfs.FS
	bg *background
}

// Unwrap is the file system behind the fence.
func (f fence) Unwrap() vfs.FS { return f.FS }

// Lock locks the directory.
func (f fence) Lock(name string) (io.Closer, error) {
	lock, err := f.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	return f.bg.locked(lock), nil
}

// Create makes a file. Flushes and compactions begin with it, without holding a
// lock, so this is where they wait when the one before failed.
func (f fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if _, _, failing := f.bg.state(); failing != nil {
		f.bg.pause(retryDelay)
	}
	if err := f.bg.death(); err != nil {
		return nil, err
	}
	return f.wrap(f.FS.Create(name, c))
}

// OpenReadWrite opens a file that may be written to.
func (f fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.wrap(f.FS.OpenReadWrite(name, c, opts...))
}

// OpenDir opens a directory to sync it.
func (f fence) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return fencedDir{dir, f.bg, name}, nil
}

// ReuseForWrite makes a file of another.
func (f fence) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.bg.death(); err != nil {
		return nil, err
	}
	return f.wrap(f.FS.ReuseForWrite(from, to, c))
}

// Rename renames a file.
func (f fence) Rename(from, to string) error {
	if err := f.bg.death(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// Remove removes a file.
func (f fence) Remove(name string) error {
	if err := f.bg.death(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f fence) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return fencedFile{file, f.bg}, nil
}

type fencedFile struct {
	vfs.File
	bg *background
}

func (f fencedFile) Write(p []byte) (int, error) {
	if err := f.bg.death(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f fencedFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.bg.death(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f fencedFile) Sync() error {
	if err := f.bg.death(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f fencedFile) SyncData() error {
	if err := f.bg.death(); err != nil {
		return err
	}
	return f.File.SyncData()
}

// fencedDir is a directory that Pebble syncs. Where Pebble moves a marker it panics
// when that fails, and it is right that nothing can be known then.
type fencedDir struct {
	vfs.File
	bg   *background
	name string
}

func (f fencedDir) Sync() error {
	if err := f.bg.death(); err != nil {
		return err
	}
	if err := f.File.Sync(); err != nil {
		f.bg.Fatalf("sync of directory %s failed: %v", f.name, err)
	}
	return nil
}
