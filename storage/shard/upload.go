package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
)

const (
	uploadDir = "upload"
	// After a checkpoint could not be published, the next one is tried so much later,
	// twice as long each time.
	uploadRetryFirst = 500 * time.Millisecond
	uploadRetryLast  = 30 * time.Second
	// lastUploadTime is how long the last checkpoint of a shard that closes may take to
	// get there.
	lastUploadTime = 10 * time.Second
)

// uploads is where a shard stands with putting checkpoints into the object store. One
// is under way at a time, in a goroutine of its own: the flush loop goes on, and makes
// local checkpoints, however slow or far away the store is.
type uploads struct {
	jobs chan uploadJob // capacity 1
	busy atomic.Bool
	idle chan struct{} // wakes the flush loop; capacity 1

	lsn     atomic.Uint64 // that the newest checkpoint published since the start covers
	current atomic.Bool   // one was published since the start: what is known of files there is so

	mu      sync.Mutex
	part    *RemotePart   // of the checkpoint that this directory published last, or came from
	since   time.Time     // when the newest one was published, or the shard opened
	err     error         // why the last one failed; nil when it did not
	changed chan struct{} // closed and replaced when one ended
}

// uploadJob is a checkpoint, or why none could be made.
type uploadJob struct {
	c   *RemoteCheckpoint
	err error
}

func (u *uploads) init(now time.Time) {
	u.jobs, u.idle, u.changed, u.since = make(chan uploadJob, 1), make(chan struct{}, 1), make(chan struct{}), now
}

func (u *uploads) known() *RemotePart {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.part
}

// uploadBehind says whether there is a checkpoint that is not in the object store.
func (s *Shard) uploadBehind() bool {
	return s.o.Remote != nil && uint64(s.manifest.lsn) > s.uploads.lsn.Load()
}

// offer hands what there is now to the uploader, unless that is at work; then the
// flush loop is woken when it has ended.
// REQUIRES: a local checkpoint covers the cut.
func (s *Shard) offer(ctx context.Context, c cut) {
	if s.o.Remote == nil || s.following || c.at == nil || !s.uploads.busy.CompareAndSwap(false, true) {
		return
	}
	job, err := s.makeUpload(ctx, c)
	s.uploads.jobs <- uploadJob{job, err}
}

// makeUpload takes a checkpoint of the state, and what the logs hold beyond it.
func (s *Shard) makeUpload(ctx context.Context, c cut) (_ *RemoteCheckpoint, err error) {
	root := path.Join(s.o.Dir, uploadDir)
	if err := s.o.FS.RemoveAll(root); err != nil {
		return nil, fmt.Errorf("shard.upload: %w", err)
	}
	job := &RemoteCheckpoint{FS: s.o.FS, StateDir: path.Join(root, "state")}
	defer func() {
		if err != nil {
			job.Release()
			err = errors.Join(err, s.o.FS.RemoveAll(root))
		}
	}()
	m := &Manifest{Cluster: s.o.Cluster[:], Shard: s.o.ID, LSN: c.at.lsn, Tail: c.at.tail, FeatureLevel: FeatureLevel, Remote: &RemotePart{}}
	if m.Remote.StateLSN, err = s.kv.Checkpoint(ctx, job.StateDir); err != nil {
		return nil, err
	}
	if m.Remote.StateLSN < m.LSN {
		return nil, errs.New(errs.Internal, "the checkpoint of the state stands at record %d, before %d", m.Remote.StateLSN, m.LSN)
	}
	s.o.Hook("upload:state")
	if job.Buckets, err = s.pin(m, c.buckets); err != nil {
		return nil, err
	}
	if p := s.uploads.known(); p != nil {
		job.Known = p.State
	}
	job.Manifest = m
	return job, nil
}

// pin fills in tables and buckets of a manifest as of now, so that the logs hold all
// that the state does, and keeps the files of the logs. Nothing is merged meanwhile, so
// that there is a batch's end where the state stands. A bucket that was dropped since
// the cut, whose records the log still has behind it, is bucket.ErrClosed.
func (s *Shard) pin(m *Manifest, before []*bucketState) (_ []*bucket.Pinned, err error) {
	s.applyMu.RLock()
	defer s.applyMu.RUnlock()
	c := s.cutLocked()
	for _, b := range before {
		if s.bucket(b.id) != b {
			return nil, bucket.ErrClosed
		}
	}
	m.Sealed = c.sealed
	for _, t := range c.tables {
		m.addTable(t)
	}
	var out []*bucket.Pinned
	defer func() {
		if err != nil {
			(&RemoteCheckpoint{Buckets: out}).Release()
		}
	}()
	for _, b := range c.buckets {
		p, err := b.log.Pin()
		if err != nil {
			return nil, err
		}
		out = append(out, p)
		m.Buckets = append(m.Buckets, bucketManifest(b.id, &p.State))
	}
	return out, nil
}

// uploadLoop puts into the object store what it is handed.
func (s *Shard) uploadLoop(ctx context.Context) {
	delay := uploadRetryFirst
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-s.uploads.jobs:
			err := job.err
			if err == nil {
				err = s.upload(ctx, job.c)
				job.c.Release()
				if rerr := s.o.FS.RemoveAll(path.Join(s.o.Dir, uploadDir)); rerr != nil {
					s.o.Logger.WarnContext(ctx, "files of an upload stay until the next one", slog.Int("shard", int(s.o.ID)), slogErr(rerr))
				}
			}
			s.uploadEnded(err)
			if err == nil {
				delay = uploadRetryFirst
			} else if !sleep(ctx, delay) {
				return
			} else {
				delay = min(2*delay, uploadRetryLast)
			}
			s.uploads.busy.Store(false)
			wake(s.uploads.idle)
		}
	}
}

// dropUpload lets go of a checkpoint that nobody took.
// REQUIRES: neither the flush loop nor the upload loop runs.
func (s *Shard) dropUpload() {
	select {
	case job := <-s.uploads.jobs:
		if job.c != nil {
			job.c.Release()
		}
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// upload publishes a checkpoint, and lets the log go of what the one before it covers:
// when the newest cannot be read, that one and the log still give everything.
func (s *Shard) upload(ctx context.Context, job *RemoteCheckpoint) (err error) {
	m := job.Manifest
	ctx, span := s.traced(ctx, "shard upload")
	defer func() { span.Int("millrace.lsn", int64(m.LSN)).End(unlessDropped(err)) }()
	if err := s.o.Remote.Publish(ctx, job); err != nil {
		return fmt.Errorf("shard.upload: %w", err)
	}
	s.o.Hook("upload:published")
	for i := range m.Buckets {
		b := s.bucket(m.Buckets[i].ID)
		for _, f := range m.Buckets[i].Files {
			if b == nil || f.Remote == nil {
				continue
			}
			if err := b.log.Uploaded(f.Base, *f.Remote); err != nil {
				return err
			}
		}
	}
	s.uploads.mu.Lock()
	s.uploads.part, s.uploads.since = m.Remote, s.o.Clock.Now()
	s.uploads.mu.Unlock()
	before := millrace.LSN(s.uploads.lsn.Swap(uint64(m.LSN)))
	s.uploads.current.Store(true)
	if err := s.log.Purge(ctx, before); err != nil {
		return fmt.Errorf("shard.upload: purge: %w", err)
	}
	s.o.Hook("upload:purged")
	s.o.Logger.DebugContext(ctx, "checkpoint published", slog.Int("shard", int(s.o.ID)), slog.Uint64("lsn", uint64(m.LSN)), slog.Uint64("number", m.Number))
	if err := s.o.Remote.Collect(ctx, m.Tail.Epoch); err != nil && ctx.Err() == nil {
		// What is left lies there until the next time.
		s.o.Logger.WarnContext(ctx, "objects that nobody needs stay", slog.Int("shard", int(s.o.ID)), slogErr(err))
	}
	return nil
}

// uploadEnded notes how an upload ended.
func (s *Shard) uploadEnded(err error) {
	u := &s.uploads
	u.mu.Lock()
	defer u.mu.Unlock()
	quiet := errors.Is(err, bucket.ErrClosed) || errors.Is(err, context.Canceled) // the next one is behind the drop; the shard closes
	switch {
	case err == nil && u.err != nil:
		s.o.Logger.Info("checkpoints reach the object store again", slog.Int("shard", int(s.o.ID)))
	case err != nil && u.err == nil && !quiet:
		s.o.Logger.Error("a checkpoint does not reach the object store, the log keeps what it covers; it is tried again", slog.Int("shard", int(s.o.ID)), slogErr(err))
	}
	if err != nil && !quiet {
		s.o.Metrics.uploadFailures.Inc()
	}
	if !quiet {
		u.err = err
	}
	if errors.Is(err, ErrUnnamed) {
		s.fail(err) // opened anew, it takes what is there
	}
	close(u.changed)
	u.changed = make(chan struct{})
}

// uploadAge notes how old the newest checkpoint in the object store is, as long as it
// does not cover everything.
func (s *Shard) uploadAge() {
	if s.o.Remote == nil {
		return
	}
	age := time.Duration(0)
	if at := s.applied.Load(); at != nil && uint64(at.lsn) > s.uploads.lsn.Load() {
		s.uploads.mu.Lock()
		age = s.o.Clock.Now().Sub(s.uploads.since)
		s.uploads.mu.Unlock()
	}
	s.o.Metrics.uploadAge(s.o.ID, age)
}

// CheckpointRemote takes a checkpoint and waits until one that covers what is applied
// now is in the object store.
func (s *Shard) CheckpointRemote(ctx context.Context) error {
	if s.o.Remote == nil {
		return errs.New(errs.Unavailable, "shard %d has no object store for its checkpoints: set remote-uri", s.o.ID)
	}
	var want uint64
	if at := s.applied.Load(); at != nil {
		want = uint64(at.lsn)
	}
	if err := s.Checkpoint(ctx); err != nil {
		return err
	}
	for {
		s.uploads.mu.Lock()
		changed, last := s.uploads.changed, s.uploads.err
		s.uploads.mu.Unlock()
		if s.uploads.lsn.Load() >= want {
			return nil
		}
		select {
		case <-changed:
		case <-s.flushDone:
			return s.stoppedError()
		case <-s.kv.Dead():
			return s.Err()
		case <-ctx.Done():
			return cmp.Or(last, ctx.Err())
		}
	}
}

// lastUpload waits until the newest checkpoint is in the object store, unless that takes
// too long or fails at present: nothing is lost then, since the log has it too.
func (s *Shard) lastUpload(ctx context.Context) {
	if s.o.Remote == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastUploadTime)
	defer cancel()
	for {
		s.uploads.mu.Lock()
		changed, failing := s.uploads.changed, s.uploads.err
		s.uploads.mu.Unlock()
		if failing != nil || s.uploads.lsn.Load() >= s.checkpointed.Load() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-s.flushDone:
			return
		case <-s.kv.Dead():
			return
		}
	}
}

// sendAway goes on without the local copies of files that the object store has, when
// the table wants that, or they are damaged. They are removed when a manifest says so.
func (s *Shard) sendAway(all []*bucketState) {
	if s.o.Remote == nil || !s.uploads.current.Load() {
		return
	}
	now := s.o.Clock.Now()
	for _, b := range all {
		for _, f := range b.log.SendAway(b.awayBefore(now)) {
			s.expiry.released = append(s.expiry.released, releasedFile{file: f, bucket: b.id, away: true})
		}
	}
}

// awayBefore is how old a file's last row is that need not lie here (µs).
func (b *bucketState) awayBefore(now time.Time) int64 {
	ttl, ever := b.of.newest().Options.KeepLocal()
	if ever {
		return 0 // times are later
	}
	return now.Add(-ttl).UnixMicro()
}

// awayDue says whether a file may go.
func (s *Shard) awayDue() bool {
	if s.o.Remote == nil || !s.uploads.current.Load() {
		return false
	}
	now := s.o.Clock.Now()
	for _, b := range s.allBuckets() {
		if b.log.CanSendAway(b.awayBefore(now)) {
			return true
		}
	}
	return false
}
