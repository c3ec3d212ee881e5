package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/wal"
)

// Follower is a recovery that goes on: it applies a shard's log, which another process
// writes, to state and bucket logs of its own, and takes checkpoints in its own
// directory, so that it can serve soon when it is promoted. It writes nothing to the
// log, purges nothing of it, and shows nothing (S12).
type Follower struct {
	o Options

	mu   sync.Mutex // held by a round, Promote and Close
	s    *Shard     // nil when there is nothing open
	over bool       // promoted or closed
	last time.Time  // checkpoint

	applied atomic.Uint64 // LSN
	end     atomic.Uint64 // LSN of the log's end, as last seen
	trouble atomic.Pointer[error]
	failure atomic.Pointer[error]
	stopped chan struct{}
	ended   sync.Once // closes stopped
	cancel  context.CancelFunc
	done    chan struct{}
}

// Follow begins to follow a shard, from what is in the directory, or from nothing.
// Files there that are damaged, or not of this log, are thrown away: they are a copy.
// Those that are ahead of the log are kept, and the error is errs.CorruptData: the log
// has lost something that it acknowledged.
//
// An error that wraps wal.ErrPurged, here or later from Err, says that the log begins
// behind what there is; where there is an object store, Follow fills the directory from
// the newest checkpoint there.
func Follow(ctx context.Context, o Options) (*Follower, error) {
	f, err := follow(ctx, o)
	if o.Remote == nil || !errors.Is(err, wal.ErrPurged) {
		return f, err
	}
	restored, rerr := restore(ctx, &o, err)
	if rerr != nil || !restored {
		return nil, errors.Join(rerr, err)
	}
	return follow(ctx, o)
}

func follow(ctx context.Context, o Options) (*Follower, error) {
	o.ensureDefaults()
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Follower{o: o, stopped: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	err := f.open(ctx)
	if useless(err) {
		o.Logger.WarnContext(ctx, "files of a followed shard are of no use and are thrown away", slog.Int("shard", int(o.ID)), slogErr(err))
		if err = Discard(o.FS, o.Dir); err == nil {
			err = f.open(ctx)
		}
	}
	if err == nil {
		if err = f.round(ctx, false); err != nil && !f.passing(err) {
			err = errors.Join(err, f.closeShard())
		} else {
			err = nil
		}
	}
	if err != nil {
		cancel()
		return nil, err
	}
	go f.run(run)
	return f, nil
}

// useless says whether files can be thrown away for what is wrong with them.
func useless(err error) bool {
	return errs.Is(err, errs.CorruptData) && !errors.Is(err, wal.ErrPurged) && !errors.Is(err, errAhead)
}

// Discard removes what is in a shard's directory: at once, so that a crash leaves all
// of it or nothing.
func Discard(fs vfs.FS, dir string) error {
	old := dir + ".discarded"
	if err := fs.RemoveAll(old); err != nil {
		return fmt.Errorf("shard.Discard: %w", err)
	}
	if err := fs.Rename(dir, old); err != nil && !oserror.IsNotExist(err) {
		return fmt.Errorf("shard.Discard: %w", err)
	}
	if err := bucket.SyncDir(fs, path.Dir(dir)); err != nil {
		return fmt.Errorf("shard.Discard: %w", err)
	}
	if err := fs.RemoveAll(old); err != nil {
		return fmt.Errorf("shard.Discard: %w", err)
	}
	return nil
}

func (f *Follower) open(ctx context.Context) error {
	s, err := load(ctx, f.o)
	if err != nil {
		return err
	}
	if s.manifest.number == 0 && s.replayer.applied > 0 {
		// Nothing says of which log the state is.
		return errors.Join(errs.Wrap(errs.CorruptData, "shard.Follow", fmt.Errorf("the files in %s: %w: there is a state and no manifest", f.o.Dir, ErrForeign)), s.closeFiles())
	}
	s.following = true
	f.s = s
	return nil
}

// run applies what comes, until the follower ends.
func (f *Follower) run(ctx context.Context) {
	defer close(f.done)
	tick := time.NewTicker(f.o.FollowEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f.step(ctx); err != nil && ctx.Err() == nil {
			f.fail(err)
			return
		}
	}
}

// step is a round and what follows from how it went; an error ends the following.
func (f *Follower) step(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil
	}
	err := f.round(ctx, true)
	if err == nil {
		if f.trouble.Swap(nil) != nil {
			f.o.Logger.InfoContext(ctx, "a followed shard goes on", slog.Int("shard", int(f.o.ID)))
		}
		return nil
	}
	if !f.passing(err) {
		return err
	}
	if f.trouble.Swap(&err) == nil {
		f.o.Logger.WarnContext(ctx, "a shard cannot be followed at present", slog.Int("shard", int(f.o.ID)), slogErr(err))
	}
	return nil
}

// passing says whether what went wrong may go by.
func (f *Follower) passing(err error) bool {
	return errs.Is(err, errs.Unavailable) || errs.Is(err, errs.Overloaded) || errs.Is(err, errs.StorageFull) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// round applies what there is in the log; with checkpoints, also what makes it durable
// here when enough has come. After an error that left an entry half applied, it begins
// again from what is on disk.
func (f *Follower) round(ctx context.Context, checkpoints bool) error {
	if f.s != nil && (f.s.replayer.broken || f.s.Err() != nil) {
		if err := f.closeShard(); err != nil {
			f.o.Logger.WarnContext(ctx, "a followed shard did not close", slog.Int("shard", int(f.o.ID)), slogErr(err))
		}
	}
	if f.s == nil {
		if err := f.open(ctx); err != nil {
			return err
		}
	}
	s := f.s
	for {
		err := s.catchUp(ctx, s.o.CheckpointBytes)
		f.note()
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		if checkpoints || err != nil {
			if cerr := f.checkpoint(ctx); cerr != nil {
				return cerr
			}
		}
		if err == nil {
			return nil
		}
	}
}

// note makes known how far the follower is.
func (f *Follower) note() {
	f.applied.Store(uint64(f.s.replayer.at.LSN))
	f.end.Store(uint64(max(f.s.replayer.until, f.s.replayer.at.LSN)))
}

// checkpoint takes one when it is due.
func (f *Follower) checkpoint(ctx context.Context) error {
	s, now := f.s, f.o.Clock.Now()
	if f.last.IsZero() {
		f.last = now
	}
	if bytes := s.sinceBytes.Load(); bytes == 0 || bytes < s.o.CheckpointBytes && now.Sub(f.last) < s.o.CheckpointEvery {
		return nil
	}
	if err := s.checkpoint(ctx); err != nil {
		return diskError(err)
	}
	f.last = now
	return nil
}

// Position is how far the follower is: the last record that it has applied, and how
// many more the log had when it looked last.
func (f *Follower) Position() (lsn millrace.LSN, lag uint64) {
	at := f.applied.Load()
	return millrace.LSN(at), max(f.end.Load(), at) - at
}

// CatchUp applies what the log has now.
func (f *Follower) CatchUp(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return errs.New(errs.Draining, "shard %d is not followed any more", f.o.ID)
	}
	if err := f.Err(); err != nil {
		return err
	}
	return f.round(ctx, true)
}

// Stopped is closed when the follower does not go on; Err then tells why, and nothing when
// it was promoted or closed.
func (f *Follower) Stopped() <-chan struct{} { return f.stopped }

// Err is why the follower cannot go on; nil while it does.
func (f *Follower) Err() error {
	if p := f.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Trouble is why the follower cannot go on, or does not at present.
func (f *Follower) Trouble() error {
	if p := f.trouble.Load(); p != nil && f.Err() == nil {
		return *p
	}
	return f.Err()
}

func (f *Follower) fail(err error) {
	if f.failure.CompareAndSwap(nil, &err) {
		f.o.Logger.Error("a shard is not followed any more", slog.Int("shard", int(f.o.ID)), slogErr(err))
		f.ended.Do(func() { close(f.stopped) })
	}
}

// Promote makes an owner of the follower: it applies what is left of the log, begins an
// epoch above that of the log, of its manifest, and least, and serves. lease is as in
// Options. When it fails the follower goes on, unless its log takes no more, or it cannot
// go on for what is wrong; then Err tells, and it is to be closed.
func (f *Follower) Promote(ctx context.Context, least millrace.Epoch, lease func() error) (*Shard, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil, errs.New(errs.Draining, "shard %d is not followed any more", f.o.ID)
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	err := f.round(ctx, false)
	if err == nil {
		err = f.s.lead(ctx, least)
	}
	if err != nil {
		if !f.passing(err) || errors.Is(err, wal.ErrStopped) {
			f.fail(err)
		}
		return nil, err
	}
	f.over = true
	f.cancel()
	s := f.s
	f.s, s.o.Lease = nil, lease
	s.start(ctx)
	return s, nil
}

// Close ends the following and closes the files. What was promoted stays open.
func (f *Follower) Close() error {
	f.cancel()
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.ended.Do(func() { close(f.stopped) })
	return f.closeShard()
}

func (f *Follower) closeShard() error {
	if f.s == nil {
		return nil
	}
	s := f.s
	f.s = nil
	s.leave(errs.New(errs.Draining, "shard %d is not followed any more", f.o.ID))
	return s.closeFiles()
}
