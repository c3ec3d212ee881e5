package markerfs

import (
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markerPrefix begins the names of marker files (package vfs/atomicfs).
const markerPrefix = "marker."

// Wrap is fs with ordered markers. It is for stores that Pebble opens.
func Wrap(fs vfs.FS) vfs.FS { return orderedFS{fs} }

type orderedFS struct{ vfs.FS }

// Create makes a file; before a marker, what the directory lists is made durable.
func (o orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(o.PathBase(name), markerPrefix) {
		dir, err := o.OpenDir(o.PathDir(name))
		if err != nil {
			return nil, err
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return nil, err
		}
	}
	return o.FS.Create(name, category)
}

// Unwrap is the file system below.
func (o orderedFS) Unwrap() vfs.FS { return o.FS }
