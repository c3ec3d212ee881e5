package wal

import (
	"io"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	maxTornBytes = 1 << 20
	maxTornFiles = 16
)

// keepTorn copies a torn tail aside, counts and logs it. It is evidence, not data:
// when it cannot be kept, the start goes on.
func (f *Files) keepTorn(file vfs.File, number uint64, off, end int64) {
	f.met.torn.Inc()
	name := f.path(number, tornSuffix)
	f.opts.Logger.Warn("log ends in a torn write, which is kept aside",
		slog.String("file", f.path(number, fileSuffix)), slog.Int64("offset", off), slog.Int64("bytes", end-off), slog.String("kept_as", name))
	if err := f.copyTorn(file, name, off, min(end-off, maxTornBytes)); err != nil {
		f.opts.Logger.Warn("torn write could not be kept", slog.String("file", name), slog.Any("err", err))
	}
	f.dropOldTorn()
}

func (f *Files) copyTorn(from vfs.File, name string, off, size int64) error {
	to, err := f.fs.Create(name, writeCategory)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(from, off, size))
	if err == nil {
		err = to.Sync()
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	return err
}

// dropOldTorn removes all but the newest copies.
func (f *Files) dropOldTorn() {
	names, err := f.fs.List(f.dir)
	if err != nil {
		f.opts.Logger.Warn("torn writes could not be listed", slog.String("dir", f.dir), slog.Any("err", err))
		return
	}
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := parseName(n, tornSuffix); return !ok })
	slices.Sort(names)
	for _, n := range names[:max(0, len(names)-maxTornFiles)] {
		f.remove(f.fs.PathJoin(f.dir, n))
	}
}
