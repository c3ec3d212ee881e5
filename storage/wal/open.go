package wal

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// OpenFiles opens the log in dir, or begins one. It reads the newest file and the
// headers of the others, begins the next file, and carries over what of the newest
// was not proven to be synced. Damage to single shards does not keep it from
// opening: their Replay and Append say so.
//
// Errors: errs.CorruptData when no shard can be read, errs.NotImplemented when a
// newer release wrote the log, errs.InvalidRequest when it is of another cluster,
// errs.StorageFull, errs.Unavailable.
func OpenFiles(fs vfs.FS, dir string, opts Options) (*Files, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	f := &Files{fs: fs, dir: dir, opts: opts, met: newMetrics(opts.Registerer), wake: make(chan struct{}, 1), done: make(chan struct{})}
	if err := makeDir(fs, dir); err != nil {
		return nil, f.fileError("making the directory", dir, err)
	}
	if err := f.load(); err != nil {
		return nil, err
	}
	f.mu.purged = make([]millrace.LSN, len(f.mu.heads))
	f.logs = make([]*shardLog, len(f.mu.heads))
	for s := range f.logs {
		id := millrace.ShardID(s)
		f.logs[s] = &shardLog{f: f, shard: id, enc: encoder{cluster: opts.ClusterID, shard: id}, req: request{shard: id, done: make(chan error, 1)}}
	}
	go f.commitLoop()
	return f, nil
}

// makeDir makes a directory and syncs the entries of what it made, from the top, one
// by one. The entry of what was there already is synced too: a start before this one
// may have stopped between making and syncing it.
func makeDir(fs vfs.FS, dir string) error {
	var missing []string
	there := dir
	for ; ; there = fs.PathDir(there) {
		_, err := fs.Stat(there)
		if err == nil || there == fs.PathDir(there) {
			break
		}
		if !oserror.IsNotExist(err) {
			return err
		}
		missing = append(missing, there)
	}
	if err := syncDir(fs, fs.PathDir(there)); err != nil && !oserror.IsPermission(err) { // then it is not ours
		return err
	}
	for _, d := range slices.Backward(missing) {
		if err := fs.MkdirAll(d, 0o755); err != nil {
			return err
		}
		if err := syncDir(fs, fs.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// load finds what is on disk and begins the next file.
func (f *Files) load() error {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return f.fileError("listing", f.dir, err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := parseName(name, fileSuffix); ok {
			numbers = append(numbers, n)
		}
		if n, ok := parseName(name, tmpSuffix); ok {
			f.remove(f.path(n, tmpSuffix))
		}
	}
	slices.Sort(numbers)
	if len(numbers) == 0 {
		heads, err := f.grow(nil)
		if err != nil {
			return err
		}
		for id, tail := range f.opts.Begin {
			heads[id] = head{Tail: tail}
		}
		f.mu.heads = heads
		return f.firstFile(1, heads, nil)
	}
	return f.continueFrom(numbers)
}

// continueFrom opens a log that exists.
func (f *Files) continueFrom(numbers []uint64) error {
	newest := numbers[len(numbers)-1]
	h, err := f.readHeader(newest)
	if err != nil {
		return err
	}
	live := map[uint64]int64{}
	for _, fe := range h.files {
		live[fe.number] = fe.end
	}
	for _, n := range numbers[:len(numbers)-1] {
		end, ok := live[n]
		if !ok { // its removal did not reach the disk, or it held nothing
			f.remove(f.path(n, fileSuffix))
			continue
		}
		old, err := f.readHeader(n)
		if err != nil {
			return err
		}
		f.mu.spans = append(f.mu.spans, span{n, old.heads, old.dataStart(), end})
	}
	return f.takeOver(h)
}

// grow returns heads with those of new shards.
func (f *Files) grow(heads []head) ([]head, error) {
	heads = slices.Clone(heads)
	for len(heads) < f.opts.Shards {
		var b [8]byte
		if _, err := io.ReadFull(f.opts.Random, b[:]); err != nil {
			return nil, errs.Wrap(errs.Internal, "wal.OpenFiles", err)
		}
		heads = append(heads, head{Tail: Tail{LogID: binary.LittleEndian.Uint64(b[:])}})
	}
	return heads, nil
}
