package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/internal/markerfs"
)

// Options says how to open a store.
type Options struct {
	FS            vfs.FS
	Dir           string
	Cache         *pebble.Cache // of blocks, shared by the shards of a process
	RowCacheBytes int64         // of rows, about; none when it is too little
	MemTableBytes uint64        // default 8 MiB
	Logger        *slog.Logger
	// OnDeath is called, once and from any goroutine, when Pebble cannot go on
	// (K3); nil: nobody is told.
	OnDeath func(cause error)
	// Counted is told of rows that were looked up: so many were in the cache of rows, so
	// many were not; nil: nobody is told.
	Counted func(hits, misses int)
}

const (
	defaultMemTableBytes = 8 << 20
	// A commit must not wait for a flush while readers wait for the commit: Pebble
	// makes it wait at the first bound, [Store.Room] asks the writer to wait at half
	// of it.
	minStallBytes  = 32 << 20
	stallMemTables = 4
)

// Store is the state of one shard.
type Store struct {
	o  Options
	db *pebble.DB
	bg *background
	// cache is nil when there is none.
	cache *rowCache

	stallBytes uint64
	committed  atomic.Uint64 // bytes
	commits    atomic.Uint64
	mem        memGauge

	flushMu sync.Mutex
	flush   pendingFlush

	interrupted atomic.Pointer[error] // why walks over rows end
}

// Open opens or creates the store in a directory.
func Open(o Options) (*Store, error) {
	if o.MemTableBytes == 0 {
		o.MemTableBytes = defaultMemTableBytes
	}
	s := &Store{o: o, bg: newBackground(&o), cache: newRowCache(o.RowCacheBytes)}
	stall := max(stallMemTables, (minStallBytes+o.MemTableBytes-1)/o.MemTableBytes)
	s.stallBytes = stall * o.MemTableBytes
	po := &pebble.Options{
		FS:                          fence{FS: markerfs.Wrap(o.FS), bg: s.bg},
		Cache:                       o.Cache,
		DisableWAL:                  true,
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: int(stall),
		L0CompactionThreshold:       4,
		// Too many files in level 0 make reads slower; stopping writes, and with
		// them all that waits for a commit, would be worse.
		L0StopWritesThreshold: 1000,
		FormatMajorVersion:    pebble.FormatNewest,
		Logger:                s.bg,
		EventListener:         s.bg.events(),
	}
	for i := range po.Levels {
		// Lookups are mostly point reads: a filter spares the levels that lack the key.
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		po.Levels[i].FilterType = pebble.TableFilter
		// The index of a table is one block: one seek less for each that is read.
		po.Levels[i].IndexBlockSize = 256 << 10
	}
	if err := probe(o.FS, o.Dir); err != nil {
		return nil, diskError("kv.Open", fmt.Errorf("%s: %w", o.Dir, err))
	}
	var err error
	if s.db, err = s.bg.open(o.Dir, po); err != nil {
		return nil, s.openError(err)
	}
	return s, nil
}

// probeBytes is more than Pebble writes to open a directory.
const probeBytes = 64 << 10

// probe finds out whether a directory can be written to. Pebble dies of a full disk
// while it is being opened, and each dead one keeps its memory.
func probe(fs vfs.FS, dir string) error {
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := fs.PathJoin(dir, "probe.tmp")
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, f.Close(), fs.Remove(name))
}

// openError tells what the system says from what Pebble finds wrong with its files: it
// has many words for that, a missing file among them, since a manifest that is cut
// short names files that were removed since.
func (s *Store) openError(err error) error {
	if _, system := errors.AsType[syscall.Errno](err); system && !oserror.IsNotExist(err) {
		return diskError("kv.Open", fmt.Errorf("%s: %w", s.o.Dir, err))
	}
	return errs.Wrap(errs.CorruptData, "kv.Open", fmt.Errorf("%s: %w", s.o.Dir, err))
}

// Interrupt ends the walks over rows: their Close gives the reason.
func (s *Store) Interrupt(reason error) { s.interrupted.Store(&reason) }

// Close closes the store. A dead one is left as it is: Pebble would wait for ever.
// REQUIRES: its snapshots are closed, and nobody uses it any more.
func (s *Store) Close() error {
	if err := s.bg.death(); err != nil {
		s.bg.unlock()
		return err
	}
	closed := make(chan error, 1)
	go func() { closed <- s.db.Close() }()
	select {
	case err := <-closed:
		return err
	case <-s.bg.dead: // of a job that Close waits for, or of Close itself
		s.bg.unlock()
		return s.bg.death()
	}
}

// Err tells of damage that was met, and why Pebble cannot write at present or any
// more; nil when all is well.
func (s *Store) Err() error { return s.bg.err() }

// Dead is closed when Pebble cannot go on (K3).
func (s *Store) Dead() <-chan struct{} { return s.bg.dead }

// Applied is the LSN of the last record applied, 0 at first.
func (s *Store) Applied() (millrace.LSN, error) {
	b, err := get(s, s.db, appliedKey)
	if err != nil || b == nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, s.corrupt("the applied LSN has %d bytes", len(b))
	}
	return millrace.LSN(binary.LittleEndian.Uint64(b)), nil
}

// Meta is what the store knows of a bucket; the zero Meta when nothing.
func (s *Store) Meta(b millrace.BucketID) (Meta, error) { return meta(s, s.db, b) }

// Writer is what a bucket knows of a writer; nil when nothing.
func (s *Store) Writer(b millrace.BucketID, scope string) (*Writer, error) {
	v, err := get(s, s.db, writerKey(b, scope))
	if err != nil || v == nil {
		return nil, err
	}
	w, err := decodeWriter(v)
	if err != nil {
		return nil, s.corrupt("%v", err)
	}
	return w, nil
}

// NewSnapshot pins the present state. The caller closes it.
func (s *Store) NewSnapshot() *Snapshot { return &Snapshot{s: s, sn: s.db.NewSnapshot()} }

// DiskBytes is about how much the store takes on disk.
func (s *Store) DiskBytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

type getter interface {
	*pebble.DB | *pebble.Snapshot
}

func get[R getter](s *Store, r R, key []byte) ([]byte, error) {
	var v []byte
	var closer interface{ Close() error }
	var err error
	switch r := any(r).(type) {
	case *pebble.DB:
		v, closer, err = r.Get(key)
	case *pebble.Snapshot:
		v, closer, err = r.Get(key)
	}
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, s.readError("kv.Get", err)
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, closer.Close()
}

func meta[R getter](s *Store, r R, b millrace.BucketID) (Meta, error) {
	v, err := get(s, r, metaKey(b))
	if err != nil || v == nil {
		return Meta{}, err
	}
	m, err := decodeMeta(v)
	if err != nil {
		return Meta{}, s.corrupt("%v", err)
	}
	return m, nil
}

func (s *Store) corrupt(format string, args ...any) error {
	return errs.New(errs.CorruptData, "%s: %s", s.o.Dir, fmt.Sprintf(format, args...))
}

// readError names damage as such, and says which store it is in.
func (s *Store) readError(op string, err error) error {
	if err == nil {
		return nil
	}
	if pebble.IsCorruptionError(err) {
		return errs.Wrap(errs.CorruptData, op, fmt.Errorf("%s: %w", s.o.Dir, err))
	}
	return diskError(op, fmt.Errorf("%s: %w", s.o.Dir, err))
}
