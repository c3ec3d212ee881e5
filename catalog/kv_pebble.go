package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/errs"
)

// keyRevision holds the revision of the last commit. It sorts before every
// other key and is not an Entry.
const keyRevision = "!revision"

// pebbleKV is a KV in a Pebble store whose every commit is synced.
type pebbleKV struct {
	db  *pebble.DB
	dir string

	mu struct {
		sync.Mutex
		revision uint64 // of the last commit
		broken   error  // the first failed commit; none follows
		closed   bool
	}
}

var _ KV = (*pebbleKV)(nil)

// openPebble opens or creates the store in dir. An error names dir, and the file
// where Pebble tells it.
func openPebble(fs vfs.FS, dir string, logger *slog.Logger) (kv *pebbleKV, err error) {
	if err := makeDir(fs, dir); err != nil {
		return nil, err
	}
	damage := &damageListener{}
	var db *pebble.DB
	err = catchFatal(func() error {
		var err error
		db, err = pebble.Open(dir, &pebble.Options{
			FS:     fs,
			Logger: pebbleLogger{logger},
			EventListener: &pebble.EventListener{
				DataCorruption:  damage.note,
				BackgroundError: func(err error) { logger.Error("catalog store background error", slog.Any("err", err)) },
			},
			// The whole catalog is a few megabytes at most, and is read once.
			CacheSize:          1 << 20,
			MemTableSize:       1 << 20,
			MaxOpenFiles:       64,
			FormatMajorVersion: pebble.FormatWALSyncChunks,
		})
		return err
	})
	if err != nil {
		return nil, unreadable(dir, damage, err)
	}
	kv = &pebbleKV{db: db, dir: dir}
	if err := kv.open(); err != nil {
		return nil, errors.Join(unreadable(dir, damage, err), db.Close())
	}
	return kv, nil
}

// makeDir makes dir, for the owner only since signing keys are in it, and syncs
// the directory that lists it.
func makeDir(fs vfs.FS, dir string) error {
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("catalog.Open: %w", err)
	}
	parent, err := fs.OpenDir(fs.PathDir(dir))
	if err != nil {
		return fmt.Errorf("catalog.Open: %w", err)
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// open reads every block once, so that damage shows now, and the last revision.
func (kv *pebbleKV) open() error {
	entries, err := kv.Load(context.Background())
	if err != nil {
		return err
	}
	if kv.mu.revision, err = kv.revisionOf(keyRevision); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Revision > kv.mu.revision {
			return corrupt("key %q has revision %d, above the last commit's %d", e.Key, e.Revision, kv.mu.revision)
		}
	}
	return nil
}

// revisionOf is the revision of a key, 0 when it is absent.
func (kv *pebbleKV) revisionOf(key string) (uint64, error) {
	v, closer, err := kv.db.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	revision, _, err := parseValue(key, v)
	return revision, errors.Join(err, closer.Close())
}

// Load reads and checks everything.
func (kv *pebbleKV) Load(ctx context.Context) ([]Entry, error) {
	it, err := kv.db.NewIterWithContext(ctx, nil)
	if err != nil {
		return nil, err
	}
	entries, err := readAll(it)
	return entries, errors.Join(err, it.Close())
}

func readAll(it *pebble.Iterator) ([]Entry, error) {
	var entries []Entry
	for ok := it.First(); ok; ok = it.Next() {
		key := string(it.Key())
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		revision, payload, err := parseValue(key, v)
		if err != nil {
			return nil, err
		}
		if key != keyRevision {
			entries = append(entries, Entry{Key: key, Value: append([]byte{}, payload...), Revision: revision})
		}
	}
	return entries, it.Error()
}

// Commit checks the guard and writes one synced batch.
func (kv *pebbleKV) Commit(ctx context.Context, expect uint64, writes ...Write) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, errs.Wrap(errs.Unavailable, "catalog.Commit", err)
	}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.mu.closed {
		return 0, errs.New(errs.Draining, "the catalog is closed")
	}
	if kv.mu.broken != nil {
		return 0, &errs.Error{
			Code: errs.Unavailable, Op: "catalog.Commit", Err: kv.mu.broken,
			Message: "the catalog takes no changes since a write to " + kv.dir + " failed; see to the disk and restart the server",
		}
	}
	switch got, err := kv.revisionOf(writes[0].Key); {
	case err != nil:
		return 0, errs.Wrap(errs.CorruptData, "catalog.Commit", err)
	case got != expect:
		return 0, &ConflictError{Key: writes[0].Key, Want: expect, Got: got}
	}
	revision := kv.mu.revision + 1
	if err := kv.write(writes, revision); err != nil {
		kv.mu.broken = err
		return 0, &errs.Error{
			Code: errs.UnknownOutcome, Op: "catalog.Commit", Err: err,
			Message: "a write to " + kv.dir + " failed; whether the change took effect shows after a restart",
		}
	}
	kv.mu.revision = revision
	return revision, nil
}

func (kv *pebbleKV) write(writes []Write, revision uint64) error {
	b := kv.db.NewBatch()
	set := func(key string, payload []byte) error {
		return b.Set([]byte(key), appendValue(nil, key, revision, payload), nil)
	}
	err := set(keyRevision, nil)
	for _, w := range writes {
		switch {
		case err != nil:
		case w.Value == nil:
			err = b.Delete([]byte(w.Key), nil)
		default:
			err = set(w.Key, w.Value)
		}
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	// Pebble calls Fatalf when the commit fails, and would go on as if it had not.
	return catchFatal(func() error { return b.Commit(pebble.Sync) })
}

// Err is the error of the commit that failed.
func (kv *pebbleKV) Err() error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	return kv.mu.broken
}

// Close closes the store; further calls do nothing.
func (kv *pebbleKV) Close() error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.mu.closed {
		return nil
	}
	kv.mu.closed = true
	err := catchFatal(kv.db.Close)
	if kv.mu.broken != nil {
		// Closing the log of a store whose disk failed repeats that failure, which
		// has been reported.
		return nil
	}
	return err
}

// unreadable says which catalog cannot be opened, and why.
func unreadable(dir string, damage *damageListener, err error) error {
	code := errs.Unavailable
	if coded, ok := errors.AsType[*errs.Error](err); ok {
		code = coded.Code
	} else if pebble.IsCorruptionError(err) {
		code = errs.CorruptData
	}
	msg := "the catalog in " + dir + " cannot be opened"
	if file := damage.file(); file != "" {
		msg += ": damaged file " + file
	}
	return &errs.Error{Code: code, Op: "catalog.Open", Message: msg, Err: err}
}

// damageListener remembers the first file that Pebble found damaged.
type damageListener struct {
	mu   sync.Mutex
	path string
}

func (d *damageListener) note(info pebble.DataCorruptionInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path == "" {
		d.path = info.Path
	}
}

func (d *damageListener) file() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.path
}

// fatalError is what pebbleLogger.Fatalf panics with.
type fatalError struct{ msg string }

func (e *fatalError) Error() string { return e.msg }

// catchFatal runs f and returns what Pebble found fatal in it as an error. In
// Pebble's own goroutines a fatal error still ends the process, as it must.
func catchFatal(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *fatalError:
			err = r
		default:
			panic(r)
		}
	}()
	return f()
}

// pebbleLogger sends Pebble's messages to slog.
type pebbleLogger struct{ log *slog.Logger }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.log.Debug("catalog store", slog.String("event", fmt.Sprintf(format, args...)))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("catalog store", slog.String("event", fmt.Sprintf(format, args...)))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	e := &fatalError{msg: fmt.Sprintf(format, args...)}
	l.log.Error("catalog store failed", slog.String("event", e.msg))
	panic(e)
}
