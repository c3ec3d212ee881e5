package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/internal/markerfs"
)

const (
	// keyTotal holds the revision of the last commit and, as its payload, the total of
	// what is stored after it. It is not an Entry.
	keyTotal = "!total"
	// markerRevision is the file system marker that holds the revision of the last
	// acknowledged commit.
	markerRevision = "revision"
)

// pebbleKV is a KV in a Pebble store whose every commit is synced.
//
// A store can lose commits without an error: Pebble takes a damaged record at the
// end of its log or manifest for one that was being written at a crash, and goes on
// without what came after. So the total tells when a part is missing, and a marker
// beside the store when its newest part is.
type pebbleKV struct {
	db     *pebble.DB
	dir    string
	marker *atomicfs.Marker

	mu struct {
		sync.Mutex
		revision uint64            // of the last commit
		sums     map[string]uint32 // of the stored value of every key
		total    total             // of sums
		broken   error             // the first failed commit; none follows
		closed   bool
	}

	feed *Feed
}

var _ KV = (*pebbleKV)(nil)

// OpenPebble opens or creates the store of a single node in dir; Open does, for a catalog.
func OpenPebble(fs vfs.FS, dir string, logger *slog.Logger) (KV, error) {
	kv, err := openPebble(fs, dir, logger)
	if err != nil {
		return nil, err
	}
	return kv, nil
}

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
			FS:     markerfs.Wrap(fs),
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
	kv = &pebbleKV{db: db, dir: dir, feed: NewFeed(0)}
	if err := catchFatal(func() error { return kv.check(fs) }); err != nil {
		return nil, errors.Join(unreadable(dir, damage, err), kv.Close())
	}
	kv.feed.Reset(kv.mu.revision)
	return kv, nil
}

// makeDir makes dir, for the owner only since signing keys are in it, and syncs
// the directory that lists it, which must exist.
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

// check reads every value once, so that damage shows now, and compares what is
// there with the total and with the marker.
func (kv *pebbleKV) check(fs vfs.FS) error {
	marker, marked, err := atomicfs.LocateMarker(fs, kv.dir, markerRevision)
	if err != nil {
		return err
	}
	kv.marker = marker
	kv.mu.sums = map[string]uint32{}
	var want total
	err = kv.scan(context.Background(), func(key string, revision uint64, payload []byte, sum uint32) error {
		if key == keyTotal {
			kv.mu.revision = revision
			want, err = parseTotal(payload)
			return err
		}
		kv.setSum(key, sum)
		return nil
	})
	if err != nil {
		return err
	}
	if found := kv.mu.total; found != want {
		return corrupt("%d keys with sum %d are there, and %d with sum %d were written", found.keys, found.sum, want.keys, want.sum)
	}
	if newest, err := strconv.ParseUint(marked, 10, 64); marked != "" && (err != nil || newest > kv.mu.revision) {
		return corrupt("commit %d is the newest there is, and commit %s was acknowledged", kv.mu.revision, marked)
	}
	return errors.Join(marker.RemoveObsolete(), kv.mark(kv.mu.revision))
}

func (kv *pebbleKV) mark(revision uint64) error {
	return kv.marker.Move(strconv.FormatUint(revision, 10))
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
func (kv *pebbleKV) Load(ctx context.Context) (entries []Entry, revision uint64, err error) {
	err = kv.scan(ctx, func(key string, r uint64, payload []byte, _ uint32) error {
		if key == keyTotal {
			revision = r
		} else {
			entries = append(entries, Entry{Key: key, Value: append([]byte{}, payload...), Revision: r})
		}
		return nil
	})
	return entries, revision, err
}

// scan calls f for every key in order; payload is valid during the call.
func (kv *pebbleKV) scan(ctx context.Context, f func(key string, revision uint64, payload []byte, sum uint32) error) error {
	it, err := kv.db.NewIterWithContext(ctx, nil)
	if err != nil {
		return err
	}
	each := func() error {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		key := string(it.Key())
		revision, payload, err := parseValue(key, v)
		if err != nil {
			return err
		}
		return f(key, revision, payload, storedSum(v))
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		err = each()
	}
	return errors.Join(err, it.Error(), it.Close())
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
	kv.feed.Add(Committed{Revision: revision, Writes: writes, Own: true})
	return revision, nil
}

// Follow follows the commits of this process; no other has the store open.
func (kv *pebbleKV) Follow(ctx context.Context, after uint64, fn func(Committed) error) error {
	return kv.feed.Follow(ctx, after, kv.Load, fn)
}

// Sync has nothing to wait for.
func (kv *pebbleKV) Sync(context.Context) (uint64, error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	return kv.mu.revision, nil
}

// Settle has nobody to wait for.
func (kv *pebbleKV) Settle(context.Context, uint64) error { return nil }

// Settled is every revision.
func (kv *pebbleKV) Settled() uint64 { return math.MaxUint64 }

// Lease lasts as long as the store is open.
func (kv *pebbleKV) Lease(context.Context) error { return nil }

// write makes the writes and the new total one synced batch, and then moves the
// marker. REQUIRES: kv.mu held.
func (kv *pebbleKV) write(writes []Write, revision uint64) error {
	b := kv.db.NewBatch()
	for _, w := range writes {
		var err error
		if w.Value == nil {
			kv.dropSum(w.Key)
			err = b.Delete([]byte(w.Key), nil)
		} else {
			v := makeValue(w.Key, revision, w.Value)
			kv.setSum(w.Key, storedSum(v))
			err = b.Set([]byte(w.Key), v, nil)
		}
		if err != nil {
			return errors.Join(err, b.Close())
		}
	}
	if err := b.Set([]byte(keyTotal), makeValue(keyTotal, revision, kv.mu.total.encode()), nil); err != nil {
		return errors.Join(err, b.Close())
	}
	// Pebble calls Fatalf when the commit fails, and would go on as if it had not.
	if err := catchFatal(func() error { return b.Commit(pebble.Sync) }); err != nil {
		return err
	}
	return catchFatal(func() error { return kv.mark(revision) })
}

// REQUIRES: kv.mu held.
func (kv *pebbleKV) setSum(key string, sum uint32) {
	kv.dropSum(key)
	kv.mu.sums[key] = sum
	kv.mu.total.keys++
	kv.mu.total.sum += uint64(sum)
}

// REQUIRES: kv.mu held.
func (kv *pebbleKV) dropSum(key string) {
	if sum, ok := kv.mu.sums[key]; ok {
		delete(kv.mu.sums, key)
		kv.mu.total.keys--
		kv.mu.total.sum -= uint64(sum)
	}
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
	kv.feed.Fail(errs.New(errs.Draining, "the catalog is closed"))
	err := catchFatal(kv.db.Close)
	if kv.marker != nil {
		err = errors.Join(err, kv.marker.Close())
	}
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

// catchFatal runs f and returns what Pebble found fatal in it as an error: what
// it told Fatalf, or the error of a failed directory sync, with which it panics
// itself. In Pebble's own goroutines both still end the process, as they must.
func catchFatal(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case runtime.Error:
			panic(r)
		case error:
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
