package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Options says how to open a store.
type Options struct {
	FS            vfs.FS
	Dir           string
	Cache         *pebble.Cache // shared by the shards of a process
	MemTableBytes uint64        // default 8 MiB
	Logger        *slog.Logger
}

// Store is the state of one shard.
type Store struct {
	db *pebble.DB
}

// Open opens or creates the store in a directory.
func Open(o Options) (*Store, error) {
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 8 << 20
	}
	po := &pebble.Options{
		FS:                          o.FS,
		Cache:                       o.Cache,
		DisableWAL:                  true,
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		FormatMajorVersion:          pebble.FormatNewest,
		Logger:                      pebbleLogger{o.Logger},
	}
	for i := range po.Levels {
		// Lookups are mostly point reads: a filter spares the levels that lack the key.
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		po.Levels[i].FilterType = pebble.TableFilter
	}
	db, err := pebble.Open(o.Dir, po)
	if err != nil {
		return nil, readError("kv.Open", fmt.Errorf("%s: %w", o.Dir, err))
	}
	return &Store{db: db}, nil
}

// Close closes the store. REQUIRES: its snapshots are closed.
func (s *Store) Close() error { return s.db.Close() }

// Flush makes all that was applied durable.
func (s *Store) Flush() error {
	if err := s.db.Flush(); err != nil {
		return fmt.Errorf("kv.Flush: %w", err)
	}
	return nil
}

// Applied is the LSN of the last record applied, 0 at first.
func (s *Store) Applied() (millrace.LSN, error) {
	b, err := get(s.db, appliedKey)
	if err != nil || b == nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, errs.New(errs.CorruptData, "kv: the applied LSN has %d bytes", len(b))
	}
	return millrace.LSN(binary.LittleEndian.Uint64(b)), nil
}

// Row is the current row with a primary key; nil when there is none. The buffer
// scratch is used for the key and returned.
func (s *Store) Row(b millrace.BucketID, key, scratch []byte) (row, scratch2 []byte, err error) {
	scratch = AppendRowKey(scratch[:0], b, key)
	row, err = get(s.db, scratch)
	return row, scratch, err
}

// RowByStoreKey is the current row at a key made by AppendRowKey; nil when there is none.
func (s *Store) RowByStoreKey(key []byte) ([]byte, error) { return get(s.db, key) }

// Meta is what the store knows of a bucket; the zero Meta when nothing.
func (s *Store) Meta(b millrace.BucketID) (Meta, error) { return meta(s.db, b) }

// Writer is what a bucket knows of a writer; nil when nothing.
func (s *Store) Writer(b millrace.BucketID, scope string) (*Writer, error) {
	v, err := get(s.db, writerKey(b, scope))
	if err != nil || v == nil {
		return nil, err
	}
	w, err := decodeWriter(v)
	return w, errs.Wrap(errs.CorruptData, "kv.Writer", err)
}

// NewSnapshot pins the present state. The caller closes it.
func (s *Store) NewSnapshot() *Snapshot { return &Snapshot{sn: s.db.NewSnapshot()} }

// DiskBytes is about how much the store takes on disk.
func (s *Store) DiskBytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

func get[R interface {
	Get(key []byte) ([]byte, C, error)
}, C interface{ Close() error }](r R, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, readError("kv.Get", err)
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, closer.Close()
}

// wrapCorrupt names an error as damage.
func wrapCorrupt(err error) error { return errs.Wrap(errs.CorruptData, "kv", err) }

// readError names damage as such.
func readError(op string, err error) error {
	if err == nil {
		return nil
	}
	if pebble.IsCorruptionError(err) {
		return errs.Wrap(errs.CorruptData, op, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// Batch gathers what one record of the log changes.
type Batch struct {
	b *pebble.Batch
	k []byte
}

// NewBatch begins a batch.
func (s *Store) NewBatch() *Batch { return &Batch{b: s.db.NewBatch()} }

// PutRow sets the row of a store key made by AppendRowKey.
func (b *Batch) PutRow(storeKey, row []byte) error { return b.b.Set(storeKey, row, nil) }

// DeleteRow removes the row of a store key.
func (b *Batch) DeleteRow(storeKey []byte) error { return b.b.Delete(storeKey, nil) }

// SetMeta records what is known of a bucket.
func (b *Batch) SetMeta(id millrace.BucketID, m Meta) error {
	b.k = appendPrefix(b.k[:0], id, kindMeta)
	return b.b.Set(b.k, m.encode(), nil)
}

// SetWriter records what a bucket knows of a writer.
func (b *Batch) SetWriter(id millrace.BucketID, scope string, w *Writer) error {
	return b.b.Set(writerKey(id, scope), w.encode(), nil)
}

// DropWriter forgets a writer.
func (b *Batch) DropWriter(id millrace.BucketID, scope string) error {
	return b.b.Delete(writerKey(id, scope), nil)
}

// DropBucket removes everything of a bucket.
func (b *Batch) DropBucket(id millrace.BucketID) error {
	lower, upper := bucketRange(id)
	return b.b.DeleteRange(lower, upper, nil)
}

// Commit applies the batch as of a record of the log. It does not sync: see Flush.
func (b *Batch) Commit(lsn millrace.LSN) error {
	if err := b.b.Set(appliedKey, binary.LittleEndian.AppendUint64(nil, uint64(lsn)), nil); err != nil {
		return fmt.Errorf("kv.Commit: %w", err)
	}
	if err := b.b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("kv.Commit: %w", err)
	}
	return b.b.Close()
}

// Discard drops the batch.
func (b *Batch) Discard() error { return b.b.Close() }

// Len is the batch's size in bytes.
func (b *Batch) Len() int { return b.b.Len() }

// ForgetIdleWriters drops the writers of the given bucket last seen before a time
// and says how many.
func (s *Store) ForgetIdleWriters(ctx context.Context, id millrace.BucketID, beforeMicros int64, into *Batch) (int, error) {
	lower, upper := appendPrefix(nil, id, kindWriter), appendPrefix(nil, id, kindWriter+1)
	it, err := s.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return 0, readError("kv.ForgetIdleWriters", err)
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		w, err := decodeWriter(it.Value())
		if err != nil {
			return n, errors.Join(errs.Wrap(errs.CorruptData, "kv.ForgetIdleWriters", err), it.Close())
		}
		if w.SeenMicros < beforeMicros {
			if err := into.b.Delete(it.Key(), nil); err != nil {
				return n, errors.Join(err, it.Close())
			}
			n++
		}
	}
	return n, readError("kv.ForgetIdleWriters", it.Close())
}

// pebbleLogger hands Pebble's messages on. Pebble says little that an operator
// needs; what is fatal to it must not end the process silently.
type pebbleLogger struct{ l *slog.Logger }

func (p pebbleLogger) Infof(format string, args ...any) {
	p.l.Debug("pebble", slog.String("event", fmt.Sprintf(format, args...)))
}

func (p pebbleLogger) Errorf(format string, args ...any) {
	p.l.Error("pebble", slog.String("event", fmt.Sprintf(format, args...)))
}

func (p pebbleLogger) Fatalf(format string, args ...any) {
	p.l.Error("pebble cannot go on", slog.String("event", fmt.Sprintf(format, args...)))
	panic(fmt.Sprintf("pebble: "+format, args...))
}
