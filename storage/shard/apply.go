package shard

import (
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
	// What the log took was the shard's to decide, whatever has become of the lease
	// since. A group without entries says what the state is.
	var refused error
	if len(g.entries) == 0 {
		refused = s.refusal()
	}
	for _, a := range g.answers {
		if refused != nil {
			a.to.answer(Result{}, refused)
			continue
		}
		a.to.answer(a.result, nil)
	}
	for _, pt := range g.parts {
		s.subs.notify(pt.b.id)
	}
	return nil
}

func (s *Shard) applyDurable(g *group, at appliedAt) error {
	if err := s.Err(); err != nil {
		return err
	}
	batch, tails, err := s.applyInto(g)
	if err != nil {
		return err
	}
	dropped, err := s.publish(g, batch, tails, at)
	if err != nil {
		return err
	}
	for i, e := range g.endings {
		s.closeDropped(e.of, dropped[i], at.lsn)
	}
	if s.tailBytes.Load() > s.o.TailBytes || s.anyLarge(g) || s.sinceBytes.Load() > s.o.CheckpointBytes {
		wake(s.unflushed)
	}
	return nil
}

// applyInto makes the batch of what a group changes in the state, and the batches
// it adds to the logs.
func (s *Shard) applyInto(g *group) (*kv.Batch, [][]bucket.TailBatch, error) {
	batch := s.kv.NewBatch()
	tails := make([][]bucket.TailBatch, len(g.parts))
	err := func() error {
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
		for _, e := range g.endings {
			if e.seal {
				continue
			}
			if err := batch.DropBuckets(e.of.table, e.of.partition); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		_ = batch.Discard() // the first error is what matters
		return nil, nil, err
	}
	return batch, tails, nil
}

// publish makes a group visible, all at once for those who hold applyMu, and returns
// the buckets that each of its endings dropped.
func (s *Shard) publish(g *group, batch *kv.Batch, tails [][]bucket.TailBatch, at appliedAt) ([][]*bucketState, error) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock() // also when Pebble ends this goroutine
	if err := batch.Commit(at.lsn); err != nil {
		return nil, err
	}
	s.bucketsMu.Lock()
	for _, o := range g.opens {
		for _, id := range o.Buckets {
			b := s.unborn[id]
			delete(s.unborn, id)
			s.listLocked(b)
		}
	}
	s.bucketsMu.Unlock()
	for _, l := range g.learned { // before a reader can see rows of the schema
		l.of.learn(l.table)
	}
	for i, pt := range g.parts {
		pt.b.log.Append(tails[i]...)
		for _, t := range tails[i] {
			s.tailBytes.Add(int64(len(t.Payload)))
		}
	}
	for _, t := range g.trims {
		s.o.Metrics.expiredRecords.Add(float64(s.trimAll(t)))
	}
	dropped := make([][]*bucketState, len(g.endings))
	for i, e := range g.endings {
		if e.seal {
			s.seal(e.of)
			continue
		}
		dropped[i] = s.unlist(e.of)
		s.dropped[e.of] = struct{}{}
	}
	s.applied.Store(&at)
	return dropped, nil
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
		return batch.DeleteRow(p.storeKey)
	}
	return batch.PutRow(p.storeKey, p.row)
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
