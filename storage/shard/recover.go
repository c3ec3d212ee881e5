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
)

// Open opens a shard: the newest manifest, the files it names, the state, and the
// log from where the lower of them stands; then a new epoch begins.
//
// Damage is errs.CorruptData and names the file.
func Open(ctx context.Context, o Options) (_ *Shard, err error) {
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
		loopDone:    make(chan struct{}),
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
		FS: o.FS, Dir: path.Join(o.Dir, "state"), Cache: o.Cache, RowCacheBytes: o.RowCacheBytes, MemTableBytes: o.MemTableBytes, Logger: o.Logger,
		OnDeath: func(cause error) { s.fail(cause) },
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, b := range s.buckets {
				err = errors.Join(err, b.log.Close(err))
			}
			err = errors.Join(err, s.kv.Close())
		}
	}()
	if err := s.recover(ctx); err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.wg.Go(func() { s.loop(run) })
	s.wg.Go(func() { s.flushLoop(run) })
	if o.Remote != nil {
		s.wg.Go(func() { s.uploadLoop(run) })
	}
	return s, nil
}

func (s *Shard) recover(ctx context.Context) error {
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
	tail := s.log.Tail()
	if err := s.checkLog(m, applied, tail); err != nil {
		return err
	}
	s.manifest = manifestInfo{number: m.Number, lsn: m.LSN}
	s.uploads.part = m.Remote
	s.checkpointed.Store(uint64(m.LSN))
	if err := s.restoreBuckets(m); err != nil {
		return err
	}
	if err := s.removeOrphans(m); err != nil {
		return err
	}
	if err := s.replay(ctx, m.LSN, applied); err != nil {
		return err
	}
	for _, b := range s.buckets {
		if end := b.log.View().End; b.done.Next != end {
			return errs.New(errs.CorruptData, "%s: bucket %s has records up to offset %d and state up to %d", s.o.Dir, b.id, end, b.done.Next)
		}
		b.prep = b.done
	}
	epoch := max(tail.Epoch, m.Tail.Epoch) + 1
	s.o.Hook("epoch:before")
	if _, err := s.log.Append(ctx, []wal.Entry{wal.EpochEntry(epoch)}); err != nil {
		return fmt.Errorf("shard %d: the record of epoch %d: %w", s.o.ID, epoch, err)
	}
	s.o.Hook("epoch:after")
	tail = s.log.Tail()
	if err := s.kv.NewBatch().Commit(tail.LSN); err != nil {
		return err
	}
	s.applied.Store(&appliedAt{lsn: tail.LSN, tail: tail})
	s.o.Logger.InfoContext(ctx, "shard open", slog.Int("shard", int(s.o.ID)), slog.Uint64("epoch", uint64(epoch)),
		slog.Uint64("manifest_lsn", uint64(m.LSN)), slog.Uint64("lsn", uint64(tail.LSN)), slog.Int("buckets", len(s.buckets)))
	return nil
}

// checkLog sees that manifest, state and log belong together.
func (s *Shard) checkLog(m *Manifest, applied millrace.LSN, tail wal.Tail) error {
	switch {
	case applied < m.LSN:
		return errs.New(errs.CorruptData, "%s: the state stands at record %d and the manifest of the shard says %d: files of the state are missing", path.Join(s.o.Dir, "state"), applied, m.LSN)
	case tail.LSN < m.LSN || tail.LSN < applied:
		return errs.New(errs.CorruptData, "the log of shard %d ends at record %d and was at %d before: it is not the log this shard wrote last", s.o.ID, tail.LSN, max(m.LSN, applied))
	case m.LSN > 0 && (tail.LogID != m.Tail.LogID || tail.LSN == m.LSN && tail.Hash != m.Tail.Hash):
		return errs.New(errs.CorruptData, "the log of shard %d is another one than that of its manifest in %s", s.o.ID, s.o.Dir)
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
