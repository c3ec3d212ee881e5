package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"

	"golang.org/x/sync/semaphore"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/trace"
)

// open opens a shard of the files that are here, and begins an epoch.
func open(ctx context.Context, o Options) (*Shard, error) {
	s, err := load(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.lead(ctx, o.MinEpoch); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	s.start(ctx)
	return s, nil
}

// load opens what there is in the shard's directory, as of its newest manifest.
func load(ctx context.Context, o Options) (_ *Shard, err error) {
	o.ensureDefaults()
	s := &Shard{
		o: o, log: o.Log,
		queue:       make(chan *pending, 4096),
		queueRoom:   semaphore.NewWeighted(o.QueueBytes),
		unborn:      map[millrace.BucketID]*bucketState{},
		dropped:     map[partitionRef]struct{}{},
		buckets:     map[millrace.BucketID]*bucketState{},
		tables:      map[millrace.TableID]*tableState{},
		byPartition: map[partitionRef][]*bucketState{},
		sealed:      map[partitionRef]struct{}{},
		unflushed:   make(chan struct{}, 1),
		flushed:     make(chan struct{}, 1),
		checkNow:    make(chan chan error),
		sweep:       make(chan struct{}, 1),
		stopped:     make(chan struct{}),
		closed:      make(chan struct{}),
		loopDone:    make(chan struct{}),
		flushDone:   make(chan struct{}),
	}
	s.snapshots.init(o.MaxSnapshots, o.Clock)
	s.subs.init()
	s.expiry.init()
	s.uploads.init(o.Clock.Now())
	if err := o.FS.MkdirAll(path.Join(o.Dir, segmentsDir), 0o755); err != nil {
		return nil, fmt.Errorf("shard.Open: %w", err)
	}
	for _, d := range []string{o.Dir, path.Dir(o.Dir)} {
		if err := bucket.SyncDir(o.FS, d); err != nil {
			return nil, fmt.Errorf("shard.Open: %w", err)
		}
	}
	s.kv, err = kv.Open(kv.Options{
		FS: o.FS, Dir: path.Join(o.Dir, StateDir), Cache: o.Cache, RowCacheBytes: o.RowCacheBytes, MemTableBytes: o.MemTableBytes, Logger: o.Logger,
		OnDeath: func(cause error) { s.fail(cause) }, Counted: o.Metrics.lookedUp,
	})
	if err != nil {
		return nil, err
	}
	if err := s.restore(ctx); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	return s, nil
}

// restore makes the shard what its newest manifest says, if that is of the log.
func (s *Shard) restore(ctx context.Context) error {
	m, err := readManifest(s.o.FS, s.o.Dir)
	if err != nil {
		return err
	}
	if m == nil {
		m = &Manifest{Cluster: s.o.Cluster[:], Shard: s.o.ID}
	}
	if string(m.Cluster) != string(s.o.Cluster[:]) || m.Shard != s.o.ID {
		return errs.New(errs.CorruptData, "%s: the manifest is of another cluster or shard", s.o.Dir)
	}
	applied, err := s.kv.Applied()
	if err != nil {
		return err
	}
	tail, err := s.log.Refresh(ctx)
	if err != nil {
		return fmt.Errorf("shard %d: the end of the log: %w", s.o.ID, err)
	}
	if err := s.checkLog(ctx, m, applied, tail); err != nil {
		if s.mismatch = err; !s.o.repairing || !errors.Is(err, ErrForeign) && !errors.Is(err, errAhead) {
			return err
		}
	}
	s.manifest = manifestInfo{number: m.Number, lsn: m.LSN, tail: m.Tail}
	s.uploads.part = m.Remote
	s.checkpointed.Store(uint64(m.LSN))
	if err := s.restoreBuckets(m); err != nil {
		return err
	}
	s.replayer = newReplayer(s, wal.Tail{LogID: tail.LogID, LSN: m.LSN, Hash: m.Tail.Hash, Epoch: m.Tail.Epoch}, applied)
	return s.removeOrphans(m)
}

// epochTries is how often a new owner tries to begin its epoch, when the one before
// goes on writing.
const epochTries = 5

// lead applies what is left of the log and begins an epoch: what comes into the log
// from then on is this owner's.
func (s *Shard) lead(ctx context.Context, least millrace.Epoch) error {
	for try := 1; ; try++ {
		err := s.begin(ctx, least)
		if !errs.Is(err, errs.NotOwner) || errors.Is(err, wal.ErrStopped) || try == epochTries {
			return err
		}
	}
}

func (s *Shard) begin(ctx context.Context, least millrace.Epoch) error {
	if err := s.catchUp(ctx, 0); err != nil {
		return err
	}
	for _, b := range s.buckets {
		if end := b.log.View().End; b.done.Next != end {
			return errs.New(errs.CorruptData, "%s: bucket %s has records up to offset %d and state up to %d", s.o.Dir, b.id, end, b.done.Next)
		}
		b.prep = b.done
	}
	epoch := max(s.replayer.at.Epoch, s.manifest.tail.Epoch, least) + 1
	s.o.Hook("epoch:before")
	if _, err := s.log.Append(ctx, []wal.Entry{wal.EpochEntry(epoch)}); err != nil {
		return fmt.Errorf("shard %d: the record of epoch %d: %w", s.o.ID, epoch, err)
	}
	s.o.Hook("epoch:after")
	tail := s.log.Tail()
	if err := s.kv.NewBatch().Commit(tail.LSN); err != nil {
		return err
	}
	s.applied.Store(&appliedAt{lsn: tail.LSN, tail: tail})
	s.o.Logger.InfoContext(ctx, "shard open", slog.Int("shard", int(s.o.ID)), slog.Uint64("epoch", uint64(epoch)),
		slog.Uint64("manifest_lsn", uint64(s.manifest.lsn)), slog.Uint64("lsn", uint64(tail.LSN)), slog.Int("buckets", len(s.buckets)))
	return nil
}

// start begins to serve.
func (s *Shard) start(ctx context.Context) {
	s.replayer, s.following = nil, false
	ctx = trace.Apart(context.WithoutCancel(ctx))
	loop, endLoop := context.WithCancel(ctx)
	flush, endFlush := context.WithCancel(ctx)
	s.endLoop, s.endFlush = endLoop, endFlush
	s.wg.Go(func() { s.loop(loop) })
	s.wg.Go(func() { s.flushLoop(flush) })
	if s.o.Remote != nil {
		s.wg.Go(func() { s.uploadLoop(flush) })
	}
}

// ErrForeign is wrapped by the error of files that are of another log than the shard's:
// of an earlier incarnation, or of one that another history was written to since.
// Whoever has another copy of what they hold removes them (Discard) and begins anew.
var ErrForeign = errors.New("they are of another log")

// errAhead is wrapped by the error of files that hold more than the log has.
var errAhead = errors.New("it is not the log this shard wrote last, or it has lost its end; bring the log back, or accept the loss (millrace wal repair)")

// checkLog sees that manifest, state and log belong together.
func (s *Shard) checkLog(ctx context.Context, m *Manifest, applied millrace.LSN, tail wal.Tail) error {
	foreign := func(what string) error {
		return errs.Wrap(errs.CorruptData, "shard.Open", fmt.Errorf("the files in %s: %w: %s", s.o.Dir, ErrForeign, what))
	}
	if applied < m.LSN {
		return errs.New(errs.CorruptData, "%s: the state stands at record %d and the manifest of the shard says %d: files of the state are missing", path.Join(s.o.Dir, "state"), applied, m.LSN)
	}
	// A log that was begun anew by a repair goes on at a higher LSN, so that this comes
	// first.
	if known := max(m.LSN, applied); tail.LSN < known {
		return errs.Wrap(errs.CorruptData, "shard.Open", fmt.Errorf("the log of shard %d ends at record %d and was at %d before: %w", s.o.ID, tail.LSN, known, errAhead))
	}
	if m.LSN > 0 && tail.LogID != m.Tail.LogID {
		return foreign(fmt.Sprintf("the log of shard %d is %x and ends at record %d, the manifest is of log %x at record %d", s.o.ID, tail.LogID, tail.LSN, m.Tail.LogID, m.LSN))
	}
	if m.LSN == 0 {
		return nil
	}
	hash, ok, err := s.log.HashAt(ctx, m.LSN)
	if err != nil {
		return fmt.Errorf("shard %d: the hash of record %d: %w", s.o.ID, m.LSN, err)
	}
	if ok && hash != m.Tail.Hash {
		return foreign(fmt.Sprintf("record %d of the log of shard %d is another one than the manifest's, so that the log was set back and went on from there", m.LSN, s.o.ID))
	}
	return nil
}

func (s *Shard) restoreBuckets(m *Manifest) error {
	for _, t := range m.Tables {
		s.tables[t.ID] = newTableState(t)
	}
	for _, sc := range m.Schemas {
		for _, v := range sc.Schemas {
			if ts := s.tables[sc.Table]; ts != nil && v != nil {
				ts.schemas[v.ID] = v
			}
		}
	}
	for _, p := range m.Sealed {
		s.sealed[partitionRef{p.Table, p.Partition}] = struct{}{}
	}
	tails, err := readTails(s.o.FS, s.o.Dir, m.Tails)
	if err != nil {
		return err
	}
	for _, bm := range m.Buckets {
		st := bucket.State{
			Start: bm.Start, Kept: bm.kept(), End: bm.End, Files: bm.Files, Tail: tails[bm.ID],
			Passed: bm.Passed, PassedMicros: bm.PassedMicros,
		}
		log, err := bucket.Restore(bm.ID, st, s.bucketOptions(bm.ID))
		if err != nil {
			return err
		}
		if end := log.View().End; end != bm.End {
			return errors.Join(errs.New(errs.CorruptData, "%s: bucket %s ends at offset %d and its manifest says %d", s.o.Dir, bm.ID, end, bm.End), log.Close(err))
		}
		if err := s.addRecovered(bm.ID, log); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shard) addRecovered(id millrace.BucketID, log *bucket.Log) error {
	b := newBucketState(id, s.tables[id.Table], log)
	s.listLocked(b)
	s.tailBytes.Add(log.View().TailBytes())
	var err error
	b.done, err = s.kv.Meta(id)
	return err
}

// removeOrphans removes what the manifest does not name: files that were not
// published, and segments that were written after it (the log has them still).
func (s *Shard) removeOrphans(m *Manifest) error {
	names, err := s.o.FS.List(s.o.Dir)
	if err != nil {
		return fmt.Errorf("shard.Open: %w", err)
	}
	for _, name := range names {
		if _, n, ok := parseNumbered(name); ok && (n > m.Number || path.Ext(name) == ".tmp") {
			if err := s.o.FS.Remove(path.Join(s.o.Dir, name)); err != nil {
				return fmt.Errorf("shard.Open: %w", err)
			}
		}
	}
	keep := map[string]bool{}
	for _, b := range m.Buckets {
		dir := s.bucketOptions(b.ID).Dir
		for d := dir; d != s.o.Dir && d != "."; d = path.Dir(d) {
			keep[d] = true
		}
		for _, f := range b.Files {
			keep[path.Join(dir, segment.FileName(f.Base))] = true
		}
	}
	return s.removeUnkept(path.Join(s.o.Dir, segmentsDir), keep, 4)
}

// removeUnkept removes what is not kept, down to depth levels below dir.
func (s *Shard) removeUnkept(dir string, keep map[string]bool, depth int) error {
	names, err := s.o.FS.List(dir)
	if err != nil {
		return fmt.Errorf("shard.Open: %w", err)
	}
	for _, name := range names {
		p := path.Join(dir, name)
		switch {
		case !keep[p]:
			err = s.o.FS.RemoveAll(p)
		case depth > 1:
			err = s.removeUnkept(p, keep, depth-1)
		}
		if err != nil {
			return fmt.Errorf("shard.Open: %w", err)
		}
	}
	return nil
}
