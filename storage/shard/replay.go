package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/trace"
)

// replayer applies the log after a manifest.
type replayer struct {
	s       *Shard
	applied millrace.LSN // what the state holds already
	batch   *kv.Batch
	key     []byte
	// lastKeys is what the last row's key was made with: neighbours mostly have one
	// schema.
	lastKeys keyColumns
	writers  map[writerRef]*kv.Writer // as of batch

	at wal.Tail // everything up to here is applied; the replay goes on from here
	// Beyond that, seen entries that end in record lsn are applied, and all before them.
	lsn   millrace.LSN
	epoch millrace.Epoch
	seen  int

	// Of the replay at hand.
	until  millrace.LSN // entries that end behind it are left for the next
	pause  int64        // ends it when so many bytes wait for a checkpoint; 0: never
	passed int          // entries that end in record lsn, so far
	broken bool         // an entry was applied in part
}

func newReplayer(s *Shard, at wal.Tail, applied millrace.LSN) *replayer {
	return &replayer{s: s, at: at, applied: applied, lsn: at.LSN, epoch: at.Epoch, writers: map[writerRef]*kv.Writer{}}
}

// errEnough ends a replay before the log does.
var errEnough = errors.New("enough for now")

// catchUp applies the log up to where it ends now. With pause, it returns errEnough
// when so many bytes wait for a checkpoint that was not taken. After any other error
// it can be tried again, unless the replayer is broken.
func (s *Shard) catchUp(ctx context.Context, pause int64) error {
	tail, err := s.log.Refresh(ctx)
	if err != nil {
		return fmt.Errorf("shard %d: the end of the log: %w", s.o.ID, err)
	}
	r := s.replayer
	if tail.LogID != r.at.LogID || tail.LSN < r.at.LSN {
		return errs.New(errs.CorruptData, "the log of shard %d is %x and ends at record %d; it was %x at record %d before: it was replaced, or has lost its end", s.o.ID, tail.LogID, tail.LSN, r.at.LogID, r.at.LSN)
	}
	if s.following && tail == r.at && r.lsn == tail.LSN && s.applied.Load() != nil {
		return nil
	}
	r.until, r.pause, r.passed = tail.LSN, pause, 0
	err = s.log.Replay(ctx, r.at.LSN, r.entry)
	switch {
	case errors.Is(err, errEnough) && r.pause == 0: // the entry behind was left
		err = nil
	case errors.Is(err, errEnough):
		hash, ok, herr := s.log.HashAt(ctx, r.lsn)
		switch {
		case herr != nil:
			return fmt.Errorf("shard %d: the hash of record %d: %w", s.o.ID, r.lsn, herr)
		case !ok:
			return s.catchUp(ctx, 0)
		}
		tail = wal.Tail{LogID: tail.LogID, LSN: r.lsn, Hash: hash, Epoch: r.epoch}
	case err != nil:
		return fmt.Errorf("shard %d: replay: %w", s.o.ID, err)
	}
	r.at, r.lsn, r.seen = tail, tail.LSN, 0
	r.broken = true
	if r.lsn > r.applied {
		r.state()
	}
	if err := r.commit(); err != nil {
		return err
	}
	r.broken = false
	s.applied.Store(&appliedAt{lsn: tail.LSN, tail: tail})
	return err
}

const replayBatchBytes = 4 << 20

// entry applies an entry, unless it was before, or is for the next replay.
func (r *replayer) entry(lsn millrace.LSN, epoch millrace.Epoch, e wal.Entry) error {
	switch {
	case lsn > r.until:
		r.pause = 0
		return errEnough
	case lsn < r.lsn:
		return nil
	case lsn == r.lsn:
		if r.passed++; r.passed <= r.seen {
			return nil
		}
	case r.pause > 0 && r.s.sinceBytes.Load() >= r.pause && r.lsn > r.at.LSN:
		return errEnough
	}
	r.broken = true
	if lsn != r.lsn && r.batch != nil && r.batch.Len() > replayBatchBytes {
		if err := r.commit(); err != nil {
			return err
		}
	}
	if lsn != r.lsn {
		r.lsn, r.seen, r.passed = lsn, 0, 1
	}
	r.epoch = epoch
	r.seen++
	r.s.sinceBytes.Add(int64(len(e.Data)))
	if err := r.apply(e); err != nil {
		return err
	}
	r.broken = false
	return nil
}

func (r *replayer) apply(e wal.Entry) error {
	switch e.Kind {
	case wal.Data:
		return r.data(e.Data)
	case wal.BucketOpen:
		return r.open(e.Data)
	case wal.BucketDrop:
		return r.drop(e.Data)
	case wal.BucketSeal:
		return r.seal(e.Data)
	case wal.BucketTrim:
		return r.trim(e.Data)
	default:
		return nil // epochs and no-ops change nothing here
	}
}

func (r *replayer) commit() error {
	if r.batch == nil {
		return nil
	}
	b := r.batch
	r.batch = nil
	clear(r.writers)
	return b.Commit(r.lsn)
}

// state is the batch for changes of state by the record at hand; nil when the
// state has them already.
func (r *replayer) state() *kv.Batch {
	if r.lsn <= r.applied {
		return nil
	}
	if r.batch == nil {
		r.batch = r.s.kv.NewBatch()
	}
	return r.batch
}

func (r *replayer) open(data []byte) error {
	var o openEntry
	if err := json.Unmarshal(data, &o); err != nil {
		return errs.Wrap(errs.CorruptData, "bucket-open entry", err)
	}
	if o.Table != nil {
		if o.Table.Schema == nil {
			return errs.New(errs.CorruptData, "the entry that opens table %d has no schema", o.Table.ID)
		}
		if t := r.s.tables[o.Table.ID]; t == nil {
			r.s.tables[o.Table.ID] = newTableState(o.Table)
		} else {
			t.learn(o.Table)
			t.version = newTableVersion(t.table)
		}
	}
	for _, id := range o.Buckets {
		if r.s.buckets[id] != nil {
			continue
		}
		if r.s.tables[id.Table] == nil {
			return errs.New(errs.CorruptData, "bucket %s opens in a table that no entry describes", id)
		}
		if err := r.s.addRecovered(id, bucket.New(id, 0, r.s.bucketOptions(id))); err != nil {
			return err
		}
	}
	return nil
}

func (r *replayer) drop(data []byte) error {
	var d endEntry
	if err := json.Unmarshal(data, &d); err != nil {
		return errs.Wrap(errs.CorruptData, "bucket-drop entry", err)
	}
	if batch := r.state(); batch != nil {
		if err := batch.DropBuckets(d.Table, d.Partition); err != nil {
			return err
		}
	}
	ref := partitionRef{d.Table, d.Partition}
	r.s.closeDropped(ref, r.s.unlist(ref), r.lsn)
	r.s.dropped[ref] = struct{}{} // another owner's clients may be late
	return nil
}

func (r *replayer) seal(data []byte) error {
	var d endEntry
	if err := json.Unmarshal(data, &d); err != nil {
		return errs.Wrap(errs.CorruptData, "bucket-seal entry", err)
	}
	if d.Table == 0 || d.Partition == 0 {
		return errs.New(errs.CorruptData, "an entry seals no partition: %s", data)
	}
	r.s.seal(partitionRef{d.Table, d.Partition})
	return nil
}

func (r *replayer) data(data []byte) error {
	e, err := decodeData(data)
	if err != nil {
		return errs.Wrap(errs.CorruptData, "data entry", err)
	}
	b := r.s.buckets[e.bucket]
	if b == nil {
		return errs.New(errs.CorruptData, "record %d writes to bucket %s, which no entry opened", r.lsn, e.bucket)
	}
	tails, err := stamp(e.bucket, e)
	if err != nil {
		return err
	}
	for _, t := range tails {
		end := b.log.View().End
		if t.Header.End() <= end {
			continue // a segment file has it
		}
		if t.Header.Base != end {
			return errs.New(errs.CorruptData, "record %d continues bucket %s at offset %d, and the log of the bucket ends at %d", r.lsn, e.bucket, t.Header.Base, end)
		}
		t.Payload = bytes.Clone(t.Payload) // an entry's bytes are the log's
		b.log.Append(t)
		r.s.tailBytes.Add(int64(len(t.Payload)))
	}
	if err := r.stateOf(b, e); err != nil {
		return err
	}
	if r.s.tailBytes.Load() > r.s.o.TailBytes || b.log.View().TailBytes() > r.s.o.BucketTailBytes {
		return r.s.flushTails(func() trace.Span { return trace.Span{} })
	}
	return nil
}

// stateOf applies a data entry to the state, unless the state has it already.
func (r *replayer) stateOf(b *bucketState, e *dataEntry) error {
	batch := r.state()
	if batch == nil {
		return nil
	}
	if b.done.Next != e.base {
		return errs.New(errs.CorruptData, "record %d continues bucket %s at offset %d, and its state stands at %d", r.lsn, e.bucket, e.base, b.done.Next)
	}
	if b.table.Keyed() {
		for _, p := range e.payloads {
			if err := r.rows(batch, b, p.bytes); err != nil {
				return err
			}
		}
	}
	b.done.Next += millrace.Offset(e.records())
	b.done.TimeMicros = e.time
	if err := batch.SetMeta(b.id, b.done); err != nil {
		return err
	}
	for _, w := range e.writers {
		if err := r.writer(batch, b, e, w); err != nil {
			return err
		}
	}
	return nil
}

// rows applies the changes of a keyed payload to the state.
func (r *replayer) rows(batch *kv.Batch, b *bucketState, payload []byte) error {
	p, err := segment.OpenBytes(payload)
	if err != nil {
		return err
	}
	rows, err := p.CompactRows()
	if err != nil {
		return err
	}
	changes, err := p.Changes()
	if err != nil {
		return err
	}
	for i, enc := range rows {
		c := millrace.Insert
		if changes != nil {
			c = changes[i]
		}
		if c == millrace.UpdateBefore {
			continue
		}
		k, err := r.keysOf(b, enc)
		if err != nil {
			return err
		}
		key, err := k.codec.AppendKeyOfRow(r.key[:0], enc, k.pk)
		if err != nil {
			return err
		}
		r.key = key
		storeKey := string(kv.AppendRowKey(nil, b.id, key))
		switch c {
		case millrace.Delete:
			b.done.Rows--
			err = batch.DeleteRow(storeKey)
		case millrace.Insert:
			b.done.Rows++
			err = batch.PutRow(storeKey, enc)
		default:
			err = batch.PutRow(storeKey, enc)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keyColumns says how the primary keys of a table's rows of one schema are found.
type keyColumns struct {
	table  millrace.TableID
	schema millrace.SchemaID
	codec  *row.Codec
	pk     []int
}

// keysOf is how the key of a row is found.
func (r *replayer) keysOf(b *bucketState, enc []byte) (*keyColumns, error) {
	id := row.SchemaIDOf(enc)
	if k := &r.lastKeys; k.table == b.id.Table && k.schema == id {
		return k, nil
	}
	s := b.of.schema(id)
	if s == nil {
		return nil, errs.New(errs.CorruptData, "record %d writes a row of schema %d to bucket %s, which no entry describes", r.lsn, id, b.id)
	}
	k := keyColumns{table: b.id.Table, schema: id, codec: row.NewCodec(s)}
	for _, c := range b.table.PrimaryKey {
		i := s.IndexID(c)
		if i < 0 {
			return nil, errs.New(errs.CorruptData, "schema %d of table %d has no key column %d", id, b.id.Table, c)
		}
		k.pk = append(k.pk, i)
	}
	r.lastKeys = k
	return &r.lastKeys, nil
}

// writer brings a writer's window up to an entry. The batch at hand is not
// readable, so windows that it changed are kept until it is committed.
func (r *replayer) writer(batch *kv.Batch, b *bucketState, e *dataEntry, w entryWriter) error {
	ref := writerRef{b.id, w.scope}
	known, ok := r.writers[ref]
	if !ok {
		var err error
		if known, err = r.s.kv.Writer(b.id, w.scope); err != nil {
			return err
		}
	}
	switch {
	case w.flags&writerFresh != 0:
		known = nil // also when the crash undid its forgetting
	case known == nil:
		known = &kv.Writer{} // forgotten when the entry was on its way
	}
	if w.flags&writerRaised != 0 {
		known = raised(known, w.epoch, e.time)
	} else {
		start := e.base + millrace.Offset(w.first)
		known = taken(known, &Sequence{Scope: w.scope, Epoch: w.epoch, Seq: w.seq, Hash: w.hash}, start, start+millrace.Offset(w.records), e.time)
	}
	r.writers[ref] = known
	return batch.SetWriter(b.id, w.scope, known)
}
