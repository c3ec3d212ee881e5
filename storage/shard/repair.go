package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/wal"
)

// Loss is what is wrong with the log of a shard, and what is lost when it is accepted.
type Loss struct {
	Shard millrace.ShardID
	Cause error
	// Records From to To of the log cannot be read, and there may have been more after
	// To; there are none between when From is above To.
	From, To millrace.LSN
	Buckets  []BucketLoss
	// Checkpoint is when the checkpoint in the object store was published that the shard
	// goes on from (µs); 0 when it goes on from files that are here, or from nothing.
	Checkpoint int64
	// Applied is the record that the shard goes on from, and Ahead says that its files
	// here know of later ones than the log has.
	Applied millrace.LSN
	Ahead   bool
	// Behind says that the log is sound, and only the lake has more than it.
	Behind bool
}

// BucketLoss is how a bucket stands without the lost records.
type BucketLoss struct {
	ID    millrace.BucketID
	Table millrace.TablePath
	// End is where the bucket's log goes on. Rows beyond it are lost, of which Lost is how
	// many are known of.
	End  millrace.Offset
	Lost int64
	// Begins is set of a keyed table whose rows are newer than what is left of its log:
	// nothing of the rows is lost, and the log begins anew there.
	Begins bool
	// InLake is set when the lake has more of the bucket, behind which its log goes on.
	InLake *Onward
}

// Repair says what is wrong with the log of a shard that is not served, also that the lake
// has more than it (Options.InLake); nil when nothing is. When the loss is accepted, what can be read of the log is applied, the
// files of the shard are made whole as of that, and they belong to a new incarnation of
// the log from then on, which begins behind the returned tail. Whoever has the log
// begins it there (wal.Options.Begin) before the shard is opened. With Options.Remote,
// that is published as a checkpoint there, too, and the log begins as by Renew.
//
// copies is a directory for what is changed: manifests, and logs of buckets that begin
// anew. Damage to other files than the log's is errs.CorruptData.
func Repair(ctx context.Context, o Options, accept bool, copies string) (_ *Loss, begin wal.Tail, err error) {
	o.repairing = true
	s, err := load(ctx, o)
	if err != nil {
		return nil, wal.Tail{}, err
	}
	s.following = true
	s.leave(errs.New(errs.Draining, "the shard is being repaired"))
	defer func() { err = errors.Join(err, s.closeFiles()) }()
	rp := &repair{s: s, applied: s.replayer.applied}
	if err := rp.examine(ctx); err != nil {
		return nil, wal.Tail{}, err
	}
	if rp.loss == nil {
		if len(s.behindLake()) == 0 {
			return nil, wal.Tail{}, nil
		}
		rp.loss = rp.behindAlone()
	}
	if err := rp.settle(ctx); err != nil {
		return nil, wal.Tail{}, err
	}
	if !accept {
		return rp.loss, wal.Tail{}, nil
	}
	if err := rp.keep(copies); err != nil {
		return nil, wal.Tail{}, err
	}
	begin, err = rp.publish(ctx)
	return rp.loss, begin, err
}

// repair is one on its way.
type repair struct {
	s       *Shard
	applied millrace.LSN // by the state
	tail    wal.Tail     // of the log, as far as it says
	loss    *Loss
	batch   []func(*kv.Batch) error
	anew    []*bucketState // whose logs begin anew
	behind  []Onward       // of which the lake has more
}

// examine applies the log as far as it can be read, as every start does.
func (rp *repair) examine(ctx context.Context) error {
	s := rp.s
	var err error
	if rp.tail, err = s.log.Refresh(ctx); err != nil {
		return err
	}
	cause := s.mismatch
	ours, err := rp.continues(ctx)
	if err != nil {
		return err
	}
	if ours {
		r := s.replayer
		r.until = math.MaxUint64 // a log that is damaged may have more than it says
		err := s.log.Replay(ctx, r.at.LSN, r.entry)
		if err != nil && (r.broken || !errs.Is(err, errs.CorruptData)) {
			return err // it is not the log that is damaged
		}
		cause = cmp.Or(cause, err)
		if err := r.commit(); err != nil {
			return err
		}
	}
	if cause == nil {
		return nil
	}
	rp.loss = &Loss{
		Shard: s.o.ID, Cause: cause, From: s.replayer.lsn + 1, To: max(rp.tail.LSN, rp.applied, s.manifest.lsn, s.replayer.lsn),
		Applied: max(s.replayer.lsn, rp.applied), Ahead: errors.Is(cause, errAhead),
	}
	return nil
}

// continues says whether the log, as far as it goes, is the one that the manifest is of.
func (rp *repair) continues(ctx context.Context) (bool, error) {
	m := &rp.s.manifest
	if m.lsn == 0 {
		return true, nil
	}
	if rp.tail.LogID != m.tail.LogID {
		return false, nil
	}
	hash, ok, err := rp.s.log.HashAt(ctx, m.lsn)
	return !ok || hash == m.tail.Hash, err
}

// settle makes state and logs of buckets agree. The state may be ahead: it had applied
// records that cannot be read any more.
func (rp *repair) settle(ctx context.Context) error {
	s := rp.s
	known, err := s.kv.Buckets(ctx)
	if err != nil {
		return err
	}
	inLake := make(map[millrace.BucketID]InLake, len(s.o.InLake))
	for _, l := range s.o.InLake {
		inLake[l.Bucket] = l
	}
	for _, id := range known {
		if s.buckets[id] != nil {
			continue
		}
		// What opened it is lost, and its table's descriptor with it, unless the lake has that.
		if l, ok := inLake[id]; ok {
			if err := s.addUnknown(l.Table, id); err != nil {
				return err
			}
			continue
		}
		rp.loss.Buckets = append(rp.loss.Buckets, BucketLoss{ID: id})
		rp.batch = append(rp.batch, func(b *kv.Batch) error { return b.DropBucket(id) })
	}
	for _, b := range s.allBuckets() {
		l, err := rp.settleBucket(ctx, b, inLake[b.id])
		if err != nil {
			return err
		}
		delete(inLake, b.id)
		rp.loss.Buckets = append(rp.loss.Buckets, l)
	}
	for _, l := range inLake { // which nobody here knows of
		if l.End > 0 {
			rp.loss.Buckets = append(rp.loss.Buckets, rp.goesBehind(l.onward(0)))
		}
	}
	slices.SortFunc(rp.loss.Buckets, func(a, b BucketLoss) int { return a.ID.Compare(b.ID) })
	return nil
}

// errBehind is the cause when the log is sound, and yet not all that there was.
var errBehind = errs.New(errs.CorruptData, "the lake has records that the log does not have: it was set back, as by a copy of the data directory that was put back")

// behindAlone is what is said when only the lake has more.
func (rp *repair) behindAlone() *Loss {
	at := rp.s.replayer.lsn
	return &Loss{Shard: rp.s.o.ID, Cause: errBehind, Behind: true, From: at + 1, To: at, Applied: at}
}

// settleBucket says how a bucket goes on of which the lake has l, if it has any.
func (rp *repair) settleBucket(ctx context.Context, b *bucketState, l InLake) (BucketLoss, error) {
	end, state := b.log.View().End, b.done.Next
	out := BucketLoss{ID: b.id, Table: b.of.newest().Path, End: end}
	if b.of.newest().Keyed() {
		switch {
		case l.End > max(end, state):
			out = rp.goesBehind(l.onward(state))
		case state > end:
			out.End, out.Begins = state, true
			rp.anew = append(rp.anew, b)
		}
		return out, nil
	}
	if l.End > end {
		out = rp.goesBehind(l.onward(state))
	}
	if state <= out.End {
		return out, nil
	}
	out.Lost = int64(state - out.End)
	return out, rp.setBack(ctx, b, out.End)
}

// goesBehind makes a bucket go on where the lake lets it.
func (rp *repair) goesBehind(l Onward) BucketLoss {
	rp.behind = append(rp.behind, l)
	return BucketLoss{ID: l.Bucket, Table: l.Table.Path, End: l.Next, InLake: &l}
}

// changes are those of the state, and make logs begin anew.
func (rp *repair) changes() ([]func(*kv.Batch) error, error) {
	for _, b := range rp.anew {
		if err := rp.s.beginAnew(b, b.done.Next); err != nil {
			return nil, err
		}
	}
	more, err := rp.s.goOn(rp.behind)
	return append(rp.batch, more...), err
}

// setBack makes the state of a log table's bucket what its log is, and its writers
// forget the batches that are lost, so that they can be sent again.
func (rp *repair) setBack(ctx context.Context, b *bucketState, end millrace.Offset) error {
	m := b.done
	m.Next = end
	rp.batch = append(rp.batch, func(batch *kv.Batch) error {
		b.done = m
		return batch.SetMeta(b.id, m)
	})
	writers, err := rp.s.kv.Writers(ctx, b.id)
	if err != nil {
		return err
	}
	for scope, w := range writers {
		n := len(w.Taken)
		w.Taken = slices.DeleteFunc(w.Taken, func(t kv.Taken) bool { return t.End > end })
		if len(w.Taken) < n {
			rp.batch = append(rp.batch, func(batch *kv.Batch) error { return batch.SetWriter(b.id, scope, w) })
		}
	}
	return nil
}

// keep copies what will be changed.
func (rp *repair) keep(copies string) error {
	fs, s := rp.s.o.FS, rp.s
	if err := fs.MkdirAll(copies, 0o755); err != nil {
		return fmt.Errorf("shard.Repair: %w", err)
	}
	names, err := fs.List(s.o.Dir)
	if err != nil {
		return fmt.Errorf("shard.Repair: %w", err)
	}
	for _, name := range names {
		if _, _, ok := parseNumbered(name); !ok {
			continue
		}
		if err := vfs.Copy(fs, path.Join(s.o.Dir, name), path.Join(copies, name)); err != nil {
			return fmt.Errorf("shard.Repair: %w", err)
		}
	}
	copied := make([]millrace.BucketID, 0, len(rp.anew)+len(rp.behind))
	for _, b := range rp.anew {
		copied = append(copied, b.id)
	}
	for _, l := range rp.behind {
		if s.buckets[l.Bucket] != nil && !slices.Contains(copied, l.Bucket) {
			copied = append(copied, l.Bucket)
		}
	}
	for _, id := range copied {
		dir := s.bucketOptions(id).Dir
		to := path.Join(copies, segmentsDir, id.String())
		if err := fs.MkdirAll(path.Dir(to), 0o755); err != nil {
			return fmt.Errorf("shard.Repair: %w", err)
		}
		if _, err := vfs.Clone(fs, fs, dir, to, vfs.CloneSync); err != nil {
			return fmt.Errorf("shard.Repair: %w", err)
		}
	}
	if err := SyncTree(fs, copies); err != nil {
		return err
	}
	return bucket.SyncDir(fs, path.Dir(path.Dir(copies))) // the directory of all shards' may be new
}

// SyncTree makes the entries of a directory, of all below it, and its own durable.
func SyncTree(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("shard.SyncTree: %w", err)
	}
	for _, name := range names {
		p := path.Join(dir, name)
		st, err := fs.Stat(p)
		if err == nil && st.IsDir() {
			err = SyncTree(fs, p)
		}
		if err != nil {
			return fmt.Errorf("shard.SyncTree: %w", err)
		}
	}
	for _, d := range []string{dir, path.Dir(dir)} {
		if err := bucket.SyncDir(fs, d); err != nil {
			return fmt.Errorf("shard.SyncTree: %w", err)
		}
	}
	return nil
}

// publish changes the state and publishes a manifest of the log's next incarnation.
func (rp *repair) publish(ctx context.Context) (wal.Tail, error) {
	s := rp.s
	id, err := drawLogID()
	if err != nil {
		return wal.Tail{}, err
	}
	begin := wal.Tail{LogID: id, LSN: rp.loss.To, Epoch: max(rp.tail.Epoch, s.manifest.tail.Epoch)}
	if s.o.Remote != nil { // others may have files of the shard
		if begin, err = beginBehind(rp.last()); err != nil {
			return wal.Tail{}, err
		}
	}
	changes, err := rp.changes()
	if err == nil {
		err = s.change(changes, begin)
	}
	if err != nil {
		return wal.Tail{}, err
	}
	s.manifest.lsn = 0 // one is due, wherever that stood
	if s.o.Remote == nil {
		s.uploads.part = nil
	}
	if err := s.checkpoint(ctx); err != nil || s.o.Remote == nil {
		return begin, err
	}
	return begin, s.publishRenewed(ctx, s.o.Clock.Now().UnixMicro())
}
