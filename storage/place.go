package storage

import (
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
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/wal"
)

// readerGrace is how long readers have to finish when their shard went elsewhere.
const readerGrace = 10 * time.Second

// place is where one shard is open, or was.
type place struct {
	id       millrace.ShardID
	mu       sync.Mutex // held while what is here changes
	shard    atomic.Pointer[shard.Shard]
	follower atomic.Pointer[shard.Follower]
	// leaving is the shard that was here last, whose files may be open for readers
	// still; nil when there was none.
	leaving *shard.Shard
}

// Lease is on what terms a shard is served; the zero Lease is for a single node.
type Lease struct {
	// MinEpoch is a lower bound of the epoch that begins.
	MinEpoch millrace.Epoch
	// Valid says why nothing must be answered at this moment; see shard.Options.Lease.
	Valid func() error
}

func (w *Worker) place(id millrace.ShardID) *place {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.places[id]
	if p == nil {
		p = &place{id: id}
		w.places[id] = p
	}
	return p
}

// ShardDir is the directory of a shard, below the data directory.
func (w *Worker) ShardDir(id millrace.ShardID) string {
	return path.Join(w.o.Dir, "shards", fmt.Sprintf("%05d", id))
}

// options are those of a shard. The memory for rows is parted among as many shards as
// are expected, or as there are when those are more.
func (w *Worker) options(id millrace.ShardID, log wal.Log) shard.Options {
	here := 0
	for _, p := range w.all() {
		if p.id == id || p.shard.Load() != nil || p.follower.Load() != nil {
			here++
		}
	}
	o := &w.o
	var remote shard.Remote
	if o.Remote != nil {
		remote = o.Remote(id)
	}
	return shard.Options{
		Remote: remote,
		ID:     id, Dir: w.ShardDir(id), Cluster: o.Cluster,
		CheckpointBytes: o.CheckpointBytes, CheckpointEvery: o.CheckpointEvery, SealBytes: o.SealBytes,
		TailBytes: o.TailBytes, BucketTailBytes: o.BucketTailBytes, QueueBytes: o.QueueBytes, MemTableBytes: o.MemTableBytes,
		Codec: o.Codec, MaxSnapshots: o.MaxSnapshots, KeepExpired: o.KeepExpired, FollowEvery: o.FollowEvery,
		FS: o.FS, Log: log, Cache: w.cache, RowCacheBytes: o.rowCacheBytes() / int64(max(o.ShardsHere, here, 1)),
		Clock: o.Clock, Logger: o.Logger, Metrics: w.metrics, Tracer: o.Tracer, Hook: o.Hook,
	}
}

// Open opens a shard for service. One that is open here, or followed, must have been
// closed before; Open waits for its last readers, until ctx ends.
//
// The errors are those of shard.Open.
func (w *Worker) Open(ctx context.Context, id millrace.ShardID, log wal.Log, on Lease) (*shard.Shard, error) {
	p := w.place(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.free(ctx); err != nil {
		return nil, err
	}
	o := w.options(id, log)
	o.MinEpoch, o.Lease = on.MinEpoch, on.Valid
	s, err := shard.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	p.shard.Store(s)
	return s, nil
}

// Follow begins to follow a shard, as Open opens it. The errors are those of
// shard.Follow.
func (w *Worker) Follow(ctx context.Context, id millrace.ShardID, log wal.Log) (*shard.Follower, error) {
	p := w.place(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.free(ctx); err != nil {
		return nil, err
	}
	f, err := shard.Follow(ctx, w.options(id, log))
	if err != nil {
		return nil, err
	}
	p.follower.Store(f)
	return f, nil
}

// Promote makes a shard that is followed here one that is served; see
// shard.Follower.Promote.
func (w *Worker) Promote(ctx context.Context, id millrace.ShardID, on Lease) (*shard.Shard, error) {
	p := w.place(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.follower.Load()
	if f == nil {
		return nil, errs.New(errs.Internal, "storage: shard %d is not followed here", id)
	}
	s, err := f.Promote(ctx, on.MinEpoch, on.Valid)
	if err != nil {
		return nil, err
	}
	p.follower.Store(nil)
	p.shard.Store(s)
	return s, f.Close()
}

// Resign hands a shard over in order; see shard.Shard.Resign. It is not found any more
// when Resign returns, whatever the error; readers that are under way have a while.
func (w *Worker) Resign(ctx context.Context, id millrace.ShardID) error {
	p := w.place(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shard.Load()
	if s == nil {
		return nil
	}
	err := s.Resign(ctx)
	w.vacate(ctx, p)
	return err
}

// Abandon stops to serve, or to follow, a shard at once; see shard.Shard.Abandon.
func (w *Worker) Abandon(ctx context.Context, id millrace.ShardID) error {
	p := w.place(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shard.Load(); s != nil {
		s.Abandon()
		w.vacate(ctx, p)
	}
	if f := p.follower.Swap(nil); f != nil {
		return f.Close()
	}
	return nil
}

// vacate closes the shard of a place while others may take it for gone.
// REQUIRES: p.mu is held, and the shard has stopped.
func (w *Worker) vacate(ctx context.Context, p *place) {
	s := p.shard.Swap(nil)
	p.leaving = s
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readerGrace)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			w.o.Logger.WarnContext(ctx, "a shard that went elsewhere did not close well", slog.Int("shard", int(p.id)), slog.Any("err", err))
		}
	}()
}

// free waits until the directory of a place can be opened.
// REQUIRES: p.mu is held.
func (p *place) free(ctx context.Context) error {
	if p.shard.Load() != nil || p.follower.Load() != nil {
		return errs.New(errs.Internal, "storage: shard %d is open here already", p.id)
	}
	return p.wait(ctx)
}

func (p *place) wait(ctx context.Context) error {
	if p.leaving == nil {
		return nil
	}
	select {
	case <-p.leaving.Closed():
		p.leaving = nil
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.Unavailable, "storage: readers still use the files of shard", fmt.Errorf("%d: %w", p.id, ctx.Err()))
	}
}

// closePlace closes what is in a place.
func (w *Worker) closePlace(ctx context.Context, p *place) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if s := p.shard.Load(); s != nil {
		err = s.Close(ctx)
	}
	if f := p.follower.Swap(nil); f != nil {
		err = errors.Join(err, f.Close())
	}
	return errors.Join(err, p.wait(ctx))
}
