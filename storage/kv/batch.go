package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	millrace "github.com/millrace/millrace"
)

// Batch gathers what one record of the log changes.
type Batch struct {
	s *Store
	b *pebble.Batch
	k []byte
}

// NewBatch begins a batch.
func (s *Store) NewBatch() *Batch { return &Batch{s: s, b: s.db.NewBatch()} }

// PutRow sets the row of a store key made by AppendRowKey.
func (b *Batch) PutRow(storeKey string, row []byte) error {
	d := b.b.SetDeferred(len(storeKey), len(row))
	copy(d.Key, storeKey)
	copy(d.Value, row)
	return d.Finish()
}

// DeleteRow removes the row of a store key.
func (b *Batch) DeleteRow(storeKey string) error {
	d := b.b.DeleteDeferred(len(storeKey))
	copy(d.Key, storeKey)
	return d.Finish()
}

// SetMeta records what is known of a bucket.
func (b *Batch) SetMeta(id millrace.BucketID, m Meta) error {
	b.k = appendPrefix(b.k[:0], id, kindMeta)
	return b.b.Set(b.k, m.encode(), nil)
}

// SetWriter records what a bucket knows of a writer.
func (b *Batch) SetWriter(id millrace.BucketID, scope string, w *Writer) error {
	b.k = append(appendPrefix(b.k[:0], id, kindWriter), scope...)
	return b.b.Set(b.k, w.encode(), nil)
}

// DropBuckets removes everything of the buckets of a partition; of all buckets of the
// table when the partition is 0.
func (b *Batch) DropBuckets(t millrace.TableID, p millrace.PartitionID) error {
	lower := binary.BigEndian.AppendUint32(nil, uint32(t))
	if p != 0 {
		lower = binary.BigEndian.AppendUint32(lower, uint32(p))
	}
	return b.b.DeleteRange(lower, after(lower), nil)
}

// Commit applies the batch as of a record of the log. It does not sync: see Flush.
func (b *Batch) Commit(lsn millrace.LSN) error {
	if err := b.b.Set(appliedKey, binary.LittleEndian.AppendUint64(nil, uint64(lsn)), nil); err != nil {
		return fmt.Errorf("kv.Commit: %w", err)
	}
	size := b.b.Len()
	if err := b.commit(); err != nil {
		return fmt.Errorf("kv.Commit: %w", err)
	}
	b.s.committed.Add(uint64(size))
	b.s.commits.Add(1)
	return b.b.Close()
}

// commit hands the batch to Pebble, and to the cache. When it fails, whether Pebble
// has it is not known: the cache takes in nothing more.
func (b *Batch) commit() error {
	c := b.s.cache
	if c == nil {
		return b.b.Commit(pebble.NoSync)
	}
	writes := b.b.Repr() // Pebble may keep it, and the batch loses it then
	c.begin()
	if err := b.b.Commit(pebble.NoSync); err != nil {
		return err
	}
	return c.end(writes)
}

// Discard drops the batch.
func (b *Batch) Discard() error { return b.b.Close() }

// Len is the batch's size in bytes.
func (b *Batch) Len() int { return b.b.Len() }

// ForgetIdle adds to the batch the removal of the writers of a bucket that idle says
// are so, by their scope and when they were last seen. It looks at writers above the
// scope after, at most most of them, and says how many it looked at, how many it
// removes, and where to go on: "" when it looked at all.
func (b *Batch) ForgetIdle(ctx context.Context, id millrace.BucketID, after string, most int, idle func(scope string, seenMicros int64) bool) (looked, removed int, next string, err error) {
	lower, upper := appendPrefix(nil, id, kindWriter), appendPrefix(nil, id, kindWriter+1)
	if after != "" {
		lower = append(append(lower, after...), 0)
	}
	it, err := b.s.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return 0, 0, "", b.s.readError("kv.ForgetIdle", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if looked == most {
			return looked, removed, next, b.s.readError("kv.ForgetIdle", it.Close())
		}
		looked++
		next = string(it.Key()[prefixLen+1:])
		w, err := decodeWriter(it.Value())
		if err != nil {
			return looked, removed, "", errors.Join(b.s.corrupt("%v", err), it.Close())
		}
		if idle(next, w.SeenMicros) {
			if err := b.b.Delete(it.Key(), nil); err != nil {
				return looked, removed, "", errors.Join(err, it.Close())
			}
			removed++
		}
	}
	return looked, removed, "", b.s.readError("kv.ForgetIdle", it.Close())
}
