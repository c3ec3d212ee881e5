package shard

import (
	"context"
	"errors"
	"log/slog"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/wal"
)

// InLake is how far the lake has a bucket, as who restores or repairs its shard finds it
// there.
type InLake struct {
	Table  *millrace.Table
	Bucket millrace.BucketID
	End    millrace.Offset
}

// Onward is where the log of a bucket goes on that lost what the lake still has: no offset
// is given to another record. The rows of a log table are all in the lake up to there.
// What a keyed table's state lost is not in it again; its log goes on one further, so that
// the lake is seen to lack a record, and the next round writes the bucket anew from the
// state.
type Onward struct {
	InLake

	Next millrace.Offset
}

// onward is where the log goes on of a bucket whose state stands at an offset.
func (l *InLake) onward(state millrace.Offset) Onward {
	if l.Table.Keyed() {
		return Onward{*l, max(l.End+1, state)}
	}
	return Onward{*l, l.End}
}

// behindLake are the buckets of which the lake has more than their log and state.
func (s *Shard) behindLake() []Onward {
	var out []Onward
	for _, l := range s.o.InLake {
		var state, end millrace.Offset
		if b := s.buckets[l.Bucket]; b != nil {
			state = b.done.Next
			end = max(state, b.log.View().End)
		}
		if l.End > end {
			out = append(out, l.onward(state))
		}
	}
	return out
}

// goOn makes logs of buckets begin anew where the lake lets them, and returns what is to
// change in the state with that.
func (s *Shard) goOn(behind []Onward) ([]func(*kv.Batch) error, error) {
	var changes []func(*kv.Batch) error
	for _, l := range behind {
		if s.buckets[l.Bucket] == nil {
			if err := s.addUnknown(l.Table, l.Bucket); err != nil {
				return nil, err
			}
		}
		b := s.buckets[l.Bucket]
		if err := s.beginAnew(b, l.Next); err != nil {
			return nil, err
		}
		changes = append(changes, func(batch *kv.Batch) error {
			b.done.Next = l.Next
			return batch.SetMeta(b.id, b.done)
		})
	}
	return changes, nil
}

// addUnknown adds a bucket of which nothing here but its state may know.
func (s *Shard) addUnknown(t *millrace.Table, id millrace.BucketID) error {
	if s.tables[t.ID] == nil {
		s.tables[t.ID] = newTableState(t)
	}
	return s.addRecovered(id, bucket.New(id, 0, s.bucketOptions(id)))
}

// beginAnew makes the log of a bucket begin anew at an offset.
func (s *Shard) beginAnew(b *bucketState, at millrace.Offset) error {
	s.tailBytes.Add(-b.log.View().TailBytes())
	if err := b.log.Close(errs.New(errs.OffsetOutOfRange, "the log begins anew")); err != nil {
		return err
	}
	b.log = bucket.New(b.id, at, s.bucketOptions(b.id))
	return nil
}

// rebuildBehind does so in a directory that Rebuild made, for a log without records that
// begins above an epoch.
func rebuildBehind(ctx context.Context, o Options, epoch millrace.Epoch) (_ []Onward, err error) {
	if len(o.InLake) == 0 {
		return nil, nil
	}
	o.Log, o.repairing = ended{}, true
	s, err := load(ctx, o)
	if err != nil {
		return nil, err
	}
	s.following = true
	s.leave(errs.New(errs.Draining, "the shard is being restored"))
	defer func() { err = errors.Join(err, s.closeFiles()) }()
	behind := s.behindLake()
	if len(behind) == 0 {
		return nil, nil
	}
	changes, err := s.goOn(behind)
	if err != nil {
		return nil, err
	}
	if err := s.change(changes, wal.Tail{Epoch: epoch}); err != nil {
		return nil, err
	}
	o.Logger.InfoContext(ctx, "buckets go on where the lake ends", slog.Int("shard", int(o.ID)), slog.Int("buckets", len(behind)))
	return behind, s.writeCheckpoint(ctx, s.cut())
}

// change applies changes of the state as of a record of the log.
func (s *Shard) change(changes []func(*kv.Batch) error, at wal.Tail) error {
	batch := s.kv.NewBatch()
	for _, change := range changes {
		if err := change(batch); err != nil {
			return errors.Join(err, batch.Discard())
		}
	}
	if err := batch.Commit(at.LSN); err != nil {
		return err
	}
	s.applied.Store(&appliedAt{lsn: at.LSN, tail: at})
	return nil
}
