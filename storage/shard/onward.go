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

// Next is where the log of a bucket goes on that lost what the lake still has: no offset
// is given to another record. The rows of a log table are all in the lake up to there.
// What a keyed table's state lost is not in it again; its log goes on one further, so that
// the lake is seen to lack a record, and the next round writes the bucket anew from the
// state.
func (l *InLake) Next() millrace.Offset {
	if l.Table.Keyed() {
		return l.End + 1
	}
	return l.End
}

// behindLake are the buckets of which the lake has more than their log and state.
func (s *Shard) behindLake() []InLake {
	var out []InLake
	for _, l := range s.o.InLake {
		end := millrace.Offset(0)
		if b := s.buckets[l.Bucket]; b != nil {
			end = max(b.done.Next, b.log.View().End)
		}
		if l.End > end {
			out = append(out, l)
		}
	}
	return out
}

// goOn makes logs of buckets begin anew where the lake lets them, and returns what is to
// change in the state with that.
func (s *Shard) goOn(behind []InLake) ([]func(*kv.Batch) error, error) {
	reason := errs.New(errs.OffsetOutOfRange, "the log begins anew")
	var changes []func(*kv.Batch) error
	for _, l := range behind {
		log := bucket.New(l.Bucket, l.Next(), s.bucketOptions(l.Bucket))
		if b := s.buckets[l.Bucket]; b != nil {
			s.tailBytes.Add(-b.log.View().TailBytes())
			if err := b.log.Close(reason); err != nil {
				return nil, err
			}
			b.log = log
		} else {
			if s.tables[l.Bucket.Table] == nil {
				s.tables[l.Bucket.Table] = newTableState(l.Table)
			}
			if err := s.addRecovered(l.Bucket, log); err != nil {
				return nil, err
			}
		}
		b := s.buckets[l.Bucket]
		changes = append(changes, func(batch *kv.Batch) error {
			b.done.Next = l.Next()
			return batch.SetMeta(b.id, b.done)
		})
	}
	return changes, nil
}

// rebuildBehind does so in a directory that Rebuild made, for a log without records that
// begins above an epoch.
func rebuildBehind(ctx context.Context, o Options, epoch millrace.Epoch) (_ []InLake, err error) {
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
