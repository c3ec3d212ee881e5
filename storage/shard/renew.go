package shard

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/wal"
)

// A log that begins anew begins so far behind what is known of the one before: more
// than that can have had without anybody knowing. So files that a worker still has of
// it, and owners that were cut off and are of it, are not taken for later ones.
const (
	renewRecords = 1 << 32
	renewEpochs  = 1 << 10
)

// Renewal is a shard that goes on in a log that begins anew.
type Renewal struct {
	// From is the checkpoint that it goes on from; nil: there was none, and it is empty.
	From *Manifest
	// Begin is where whoever has the log begins it, before the shard is opened.
	Begin wal.Tail
	// Behind are the buckets that go on where the lake ends, since it has more of them.
	Behind []Onward
}

// Renew makes the newest checkpoint in the object store one of a log that begins anew,
// when the one before is lost, and publishes that there. Segments stay where they are.
// It can be called again, whatever became of the time before.
//
// Of the options it takes those of Rebuild; Dir is a place to work in, whose contents go.
func Renew(ctx context.Context, o Options) (*Renewal, error) {
	o.ensureDefaults()
	m, err := fetchStanding(ctx, &o, nil)
	if err != nil {
		return nil, err
	}
	r := &Renewal{From: m}
	last := wal.Tail{}
	if m != nil {
		last = wal.Tail{LSN: m.Remote.StateLSN, Epoch: m.Tail.Epoch}
	}
	if r.Begin, err = beginBehind(last); err != nil {
		return nil, err
	}
	o.Log, o.repairing = ended{r.Begin}, true
	s, err := load(ctx, o)
	if err != nil {
		return nil, err
	}
	s.following = true
	s.leave(errs.New(errs.Draining, "the shard is being restored"))
	r.Behind = s.behindLake()
	changes, err := s.goOn(r.Behind)
	if err == nil {
		err = s.renew(ctx, r.Begin, m, changes)
	}
	return r, errors.Join(err, s.closeFiles(), o.FS.RemoveAll(o.Dir))
}

// beginBehind draws a log that begins behind all that the one before can have had.
func beginBehind(last wal.Tail) (wal.Tail, error) {
	id, err := drawLogID()
	return wal.Tail{LogID: id, LSN: last.LSN + renewRecords, Epoch: last.Epoch + renewEpochs}, err
}

func drawLogID() (uint64, error) {
	for {
		var id [8]byte
		if _, err := rand.Read(id[:]); err != nil {
			return 0, fmt.Errorf("shard: drawing the id of a log: %w", err)
		}
		if n := binary.LittleEndian.Uint64(id[:]); n != 0 {
			return n, nil
		}
	}
}

// fetchStanding makes the directory anew of the newest checkpoint in the object store,
// cut where its state stands, so that state and logs are of one record; nil when there
// is none, and the directory is empty. With log, the local manifest says which record of
// it that is.
func fetchStanding(ctx context.Context, o *Options, log wal.Log) (*Manifest, error) {
	if err := errors.Join(o.FS.RemoveAll(o.Dir), o.FS.MkdirAll(o.Dir, 0o755)); err != nil {
		return nil, fmt.Errorf("shard.Renew: %w", err)
	}
	m, err := fetch(ctx, o, func(m *Manifest) error { return isOf(o, m) })
	if err != nil || m == nil {
		return nil, err
	}
	next, err := standing(ctx, o, m, false)
	if err != nil {
		return nil, err
	}
	at := *m
	at.LSN, at.Tail.LSN = m.Remote.StateLSN, m.Remote.StateLSN
	if log != nil && at.LSN != m.LSN {
		if at.Tail.Hash, _, err = log.HashAt(ctx, at.LSN); err != nil {
			return nil, err
		}
	}
	return m, settle(o, &at, func(b *BucketManifest, tail []bucket.TailBatch) ([]bucket.TailBatch, error) {
		return cutAt(b, tail, next[b.ID])
	}, nil)
}

// renew puts the shard as it is into the object store, as a checkpoint of the log that
// begins behind a tail. from is the one that it goes on from.
func (s *Shard) renew(ctx context.Context, begin wal.Tail, from *Manifest, changes []func(*kv.Batch) error) error {
	if err := s.change(changes, begin); err != nil {
		return err
	}
	renewed := from.Published()
	if renewed == 0 {
		renewed = -1
	}
	return s.publishRenewed(ctx, renewed)
}

// publishRenewed publishes the shard as it is.
func (s *Shard) publishRenewed(ctx context.Context, renewed int64) error {
	job, err := s.makeUpload(ctx, s.cut())
	if err != nil {
		return err
	}
	defer job.Release()
	job.Manifest.Remote.Renewed = renewed
	if err := s.o.Remote.Publish(ctx, job); err != nil {
		return fmt.Errorf("shard %d: a checkpoint of its log that begins anew: %w", s.o.ID, err)
	}
	return nil
}

// Reclaim says what is wrong with the log of a shard in a cluster, as one finds who
// opens it from the object store, also that the lake has more than it (Options.InLake);
// nil when nothing is. When the loss is accepted, the
// newest checkpoint there, and what can be read of the log behind it, become a checkpoint
// of a log that begins anew, as by Renew.
//
// Log is nil when there is none. Nobody serves the shard or writes its log meanwhile.
func Reclaim(ctx context.Context, o Options, accept bool) (_ *Loss, _ *Renewal, err error) {
	o.ensureDefaults()
	cause, err := unsound(ctx, &o)
	if err != nil || cause == nil && (len(o.InLake) == 0 || o.Log == nil) {
		return nil, nil, err
	}
	if o.Log == nil {
		o.Log = ended{}
	}
	o.Log = lenient{o.Log}
	m, err := fetchStanding(ctx, &o, o.Log)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, o.FS.RemoveAll(o.Dir)) }()
	o.repairing = true
	s, err := load(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	s.following = true
	s.leave(errs.New(errs.Draining, "the shard is being repaired"))
	defer func() { err = errors.Join(err, s.closeFiles()) }()
	rp := &repair{s: s, applied: s.replayer.applied}
	if err := rp.examine(ctx); err != nil {
		return nil, nil, err
	}
	if cause == nil && rp.loss == nil {
		if len(s.behindLake()) == 0 {
			return nil, nil, nil
		}
		rp.loss = rp.behindAlone()
	} else {
		if rp.loss == nil { // what cannot be read is in the checkpoint
			rp.loss = &Loss{Shard: o.ID, From: s.replayer.lsn + 1, To: s.replayer.lsn}
		}
		rp.loss.Cause, rp.loss.Applied = cmp.Or(cause, rp.loss.Cause), s.replayer.lsn
	}
	if m != nil {
		rp.loss.Checkpoint = m.Published()
	}
	if err := rp.settle(ctx); err != nil || !accept {
		return rp.loss, nil, err
	}
	r := &Renewal{From: m, Behind: rp.behind}
	if r.Begin, err = beginBehind(rp.last()); err != nil {
		return nil, nil, err
	}
	changes, err := rp.changes()
	if err != nil {
		return nil, nil, err
	}
	return rp.loss, r, s.renew(ctx, r.Begin, m, changes)
}

// unsound says why a shard cannot be opened from the object store and its log; nil when
// it can.
func unsound(ctx context.Context, o *Options) (cause, err error) {
	m, err := o.Remote.Newest(ctx)
	switch {
	case err != nil:
		return nil, err
	case o.Log == nil && m == nil:
		return nil, nil // it was never opened
	case o.Log == nil:
		return errs.New(errs.CorruptData, "shard %d has no log, and a checkpoint of record %d", o.ID, m.LSN), nil
	}
	var from millrace.LSN
	if m != nil {
		from, err = m.LSN, goesOn(ctx, o, m)
	}
	if err == nil {
		err = o.Log.Replay(ctx, from, func(millrace.LSN, millrace.Epoch, wal.Entry) error { return nil })
	}
	if errs.Is(err, errs.CorruptData) {
		return err, nil
	}
	return nil, err
}

// last is the end of all that is known of the log.
func (rp *repair) last() wal.Tail {
	return wal.Tail{LSN: max(rp.loss.To, rp.s.replayer.lsn), Epoch: max(rp.tail.Epoch, rp.s.replayer.epoch, rp.s.manifest.tail.Epoch)}
}

// NoLog is the log of a shard that has none.
func NoLog() wal.Log { return ended{} }

// ended is a log that has no records behind its tail.
type ended struct{ tail wal.Tail }

var _ wal.Log = ended{}

func (l ended) Append(context.Context, []wal.Entry) (millrace.LSN, error) {
	return 0, errs.New(errs.Internal, "the log was not begun yet")
}

func (l ended) Replay(ctx context.Context, _ millrace.LSN, _ func(millrace.LSN, millrace.Epoch, wal.Entry) error) error {
	return ctx.Err()
}

func (l ended) Purge(ctx context.Context, _ millrace.LSN) error { return ctx.Err() }

func (l ended) Refresh(ctx context.Context) (wal.Tail, error) { return l.tail, ctx.Err() }

func (l ended) Tail() wal.Tail { return l.tail }

func (l ended) HashAt(ctx context.Context, lsn millrace.LSN) (uint64, bool, error) {
	return l.tail.Hash, lsn == l.tail.LSN, ctx.Err()
}

// lenient is a log of which a record that does not read has no hash.
type lenient struct{ wal.Log }

func (l lenient) HashAt(ctx context.Context, lsn millrace.LSN) (uint64, bool, error) {
	hash, ok, err := l.Log.HashAt(ctx, lsn)
	if errs.Is(err, errs.CorruptData) {
		return 0, false, nil
	}
	return hash, ok, err
}
