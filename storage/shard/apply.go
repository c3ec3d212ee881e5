package shard

import (
	"fmt"
	"path"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/segment"
)

// apply makes a durable group visible and answers it.
func (s *Shard) apply(g *group, at appliedAt) error {
	s.o.Hook("apply:begin")
	if len(g.entries) > 0 {
		if err := s.applyDurable(g, at); err != nil {
			return err
		}
	}
	s.o.Hook("apply:done")
	for _, a := range g.answers {
		a.to.answer(a.result, nil)
	}
	for _, pt := range g.parts {
		s.subs.notify(pt.b.id)
	}
	return nil
}

func (s *Shard) applyDurable(g *group, at appliedAt) error {
	batch := s.kv.NewBatch()
	tails := make([][]bucket.TailBatch, len(g.parts))
	for i, pt := range g.parts {
		var err error
		if tails[i], err = stamp(pt.b.id, &pt.entry); err != nil {
			return err
		}
		for _, p := range pt.puts {
			if err := putRow(batch, p); err != nil {
				return err
			}
		}
		m := pt.b.done
		m.Next, m.TimeMicros, m.Rows = m.Next+millrace.Offset(pt.entry.records()), pt.entry.time, m.Rows+pt.rowsDelta
		pt.b.done = m
		if err := batch.SetMeta(pt.b.id, m); err != nil {
			return err
		}
	}
	for ref, w := range g.writers {
		if err := batch.SetWriter(ref.bucket, ref.scope, w); err != nil {
			return err
		}
	}
	dropped, err := s.dropInto(batch, g.drops)
	if err != nil {
		return err
	}

	s.applyMu.Lock()
	if err := batch.Commit(at.lsn); err != nil {
		s.applyMu.Unlock()
		return err
	}
	for _, o := range g.opens {
		s.publish(o)
	}
	for i, pt := range g.parts {
		pt.b.log.Append(tails[i]...)
		for _, t := range tails[i] {
			s.tailBytes.Add(int64(len(t.Payload)))
		}
	}
	s.applied.Store(&at)
	s.applyMu.Unlock()

	s.removeDropped(dropped)
	if s.tailBytes.Load() > s.o.TailBytes || s.anyLarge(g) || s.sinceBytes.Load() > s.o.CheckpointBytes {
		wake(s.unflushed)
	}
	return nil
}

func (s *Shard) anyLarge(g *group) bool {
	for _, pt := range g.parts {
		if pt.b.log.View().TailBytes() > s.o.BucketTailBytes {
			return true
		}
	}
	return false
}

func putRow(batch *kv.Batch, p put) error {
	if p.row == nil {
		return batch.DeleteRow([]byte(p.storeKey))
	}
	return batch.PutRow([]byte(p.storeKey), p.row)
}

// stamp makes the tail's batches of an entry.
func stamp(id millrace.BucketID, e *dataEntry) ([]bucket.TailBatch, error) {
	out := make([]bucket.TailBatch, len(e.payloads))
	base := e.base
	for i, ep := range e.payloads {
		var err error
		out[i], err = bucket.Stamp(id, base, ep.bytes, segment.TimeRun{Rows: int(ep.records), Micros: e.time})
		if err != nil {
			return nil, err
		}
		if out[i].Header.Rows != int(ep.records) || ep.records == 0 {
			return nil, errs.New(errs.CorruptData, "a payload of bucket %s has %d records where its entry says %d", id, out[i].Header.Rows, ep.records)
		}
		base += millrace.Offset(ep.records)
	}
	return out, nil
}

// bucketFor finds the op's bucket, or opens it within the group.
func (s *Shard) bucketFor(g *group, op *Op) (*bucketState, error) {
	for _, t := range g.drops {
		if t == op.Bucket.Table {
			return nil, gone(t)
		}
	}
	if s.inFlight != nil {
		for _, t := range s.inFlight.drops {
			if t == op.Bucket.Table {
				return nil, gone(t)
			}
		}
	}
	b := s.bucket(op.Bucket)
	if b == nil {
		b = s.unborn[op.Bucket]
	}
	if b == nil {
		b = s.openBucket(g, op)
	}
	if b.table.Schema.ID != op.Table.Schema.ID {
		return nil, errs.New(errs.SchemaChanged, "the rows were encoded with schema %d of table %s, the bucket has %d", op.Table.Schema.ID, op.Table.Path, b.table.Schema.ID)
	}
	return b, nil
}

// openBucket opens a bucket and, when the shard does not know it yet, the table.
func (s *Shard) openBucket(g *group, op *Op) *bucketState {
	o := &openEntry{Buckets: []millrace.BucketID{op.Bucket}}
	t := s.knownTable(op.Table.ID)
	for _, u := range s.unborn {
		if u.id.Table == op.Table.ID {
			t = u.of
		}
	}
	if t == nil {
		t = &tableState{schemas: map[millrace.SchemaID]*millrace.Schema{}}
		t.learn(op.Table)
		o.Table = op.Table
	}
	b := s.newBucketState(op.Bucket, t, bucket.New(op.Bucket, 0, s.bucketOptions(op.Bucket)))
	s.unborn[op.Bucket] = b
	g.opens = append(g.opens, o)
	return b
}

func (s *Shard) knownTable(id millrace.TableID) *tableState {
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	return s.tables[id]
}

// publish makes opened buckets known to readers.
func (s *Shard) publish(o *openEntry) {
	s.bucketsMu.Lock()
	defer s.bucketsMu.Unlock()
	for _, id := range o.Buckets {
		b := s.unborn[id]
		delete(s.unborn, id)
		s.buckets[id] = b
		s.tables[id.Table] = b.of
	}
}

func (s *Shard) bucketOptions(id millrace.BucketID) bucket.Options {
	root := path.Join(s.o.Dir, "segments")
	return bucket.Options{
		FS:        s.o.FS,
		Root:      root,
		Dir:       path.Join(root, fmt.Sprintf("%010d", id.Table), fmt.Sprintf("%010d", id.Partition), fmt.Sprintf("%05d", id.Bucket)),
		Cluster:   s.o.Cluster,
		SealBytes: s.o.SealBytes,
		Codec:     s.o.Codec,
		Logger:    s.o.Logger,
	}
}

// dropInto adds the removal of all buckets of the tables to a batch.
func (s *Shard) dropInto(batch *kv.Batch, tables []millrace.TableID) ([]*bucketState, error) {
	var dropped []*bucketState
	all := append(s.allBuckets(), values(s.unborn)...)
	for _, b := range all {
		if slices.Contains(tables, b.id.Table) {
			dropped = append(dropped, b)
		}
	}
	for _, b := range dropped {
		if err := batch.DropBucket(b.id); err != nil {
			return nil, err
		}
	}
	return dropped, nil
}

// removeDropped forgets dropped buckets and removes their files. A file that
// cannot be removed is left: the next start removes what no manifest names.
func (s *Shard) removeDropped(dropped []*bucketState) {
	if len(dropped) == 0 {
		return
	}
	s.bucketsMu.Lock()
	for _, b := range dropped {
		delete(s.buckets, b.id)
		delete(s.tables, b.id.Table)
	}
	s.bucketsMu.Unlock()
	for _, b := range dropped {
		if err := b.log.Drop(); err != nil {
			s.o.Logger.Warn("files of a dropped bucket stay", slogBucket(b.id), slogErr(err))
		}
		s.tailBytes.Add(-b.log.View().TailBytes())
		s.subs.notify(b.id)
	}
}
