package server

import (
	"context"
	"log/slog"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/shard"
)

// nearlyThere is how many records a standby may be behind and be promoted in no time.
const nearlyThere = 64

// shardHost opens, follows and hands over the shards of this process; see owner.Host.
type shardHost struct {
	s       *Server
	manager *owner.Manager
	// serve makes the process answer calls for a shard, until the function that it
	// returns is called.
	serve func(millrace.ShardID) (stop func(), err error)

	mu      sync.Mutex
	serving map[millrace.ShardID]func() // ends the answering of calls
}

func newShardHost(s *Server, serve func(millrace.ShardID) (func(), error)) *shardHost {
	return &shardHost{s: s, serve: serve, serving: map[millrace.ShardID]func(){}}
}

// Lead implements owner.Host.
func (h *shardHost) Lead(ctx context.Context, id millrace.ShardID, least millrace.Epoch, valid func() error) (millrace.Epoch, error) {
	sh, err := h.open(ctx, id, storage.Lease{MinEpoch: least, Valid: valid})
	if err != nil {
		return 0, err
	}
	sh.Tell(h.s.catalog.AllTables()...)
	if err := sh.DropUnknown(ctx, h.s.known(ctx)); err != nil {
		h.Abandon(id)
		return 0, err
	}
	stop, err := h.serve(id)
	if err != nil {
		h.Abandon(id)
		return 0, err
	}
	h.mu.Lock()
	h.serving[id] = stop
	h.mu.Unlock()
	go h.watch(id, sh.Stopped(), sh.Err)
	return sh.Status().Epoch, nil
}

// open promotes the follower, or opens the shard from its files and its log.
func (h *shardHost) open(ctx context.Context, id millrace.ShardID, on storage.Lease) (*shard.Shard, error) {
	if h.s.worker.Follower(id) != nil {
		sh, err := h.s.worker.Promote(ctx, id, on)
		if err == nil {
			return sh, nil
		}
		h.s.log.WarnContext(ctx, "standby not promoted; opening the shard from its files", slog.Int("shard", int(id)), slog.Any("err", err))
		h.Abandon(id)
	}
	log, err := h.s.member.logs.Shard(ctx, id)
	if err != nil {
		return nil, err
	}
	return h.s.worker.Open(ctx, id, log, on)
}

// watch tells when a shard stops by itself. One that was ended by us is not here any more.
func (h *shardHost) watch(id millrace.ShardID, stopped <-chan struct{}, why func() error) {
	<-stopped
	sh, f := h.s.worker.Shard(id), h.s.worker.Follower(id)
	if sh != nil && sh.Stopped() == stopped || f != nil && f.Stopped() == stopped {
		err := why()
		h.Abandon(id)
		h.manager.Stopped(id, err)
	}
}

// Resign implements owner.Host.
func (h *shardHost) Resign(ctx context.Context, id millrace.ShardID) error {
	h.unserve(id)
	return h.s.worker.Resign(ctx, id)
}

// Abandon implements owner.Host.
func (h *shardHost) Abandon(id millrace.ShardID) {
	h.unserve(id)
	if err := h.s.worker.Abandon(context.Background(), id); err != nil {
		h.s.log.Warn("shard not closed well", slog.Int("shard", int(id)), slog.Any("err", err))
	}
}

func (h *shardHost) unserve(id millrace.ShardID) {
	h.mu.Lock()
	stop := h.serving[id]
	delete(h.serving, id)
	h.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Follow implements owner.Host.
func (h *shardHost) Follow(ctx context.Context, id millrace.ShardID) error {
	log, err := h.s.member.logs.Shard(ctx, id)
	if err != nil {
		return err
	}
	f, err := h.s.worker.Follow(ctx, id, log)
	if err != nil {
		return err
	}
	go h.watch(id, f.Stopped(), f.Err)
	return nil
}

// Standings implements owner.Host.
func (h *shardHost) Standings() map[millrace.ShardID]owner.Standing {
	out := map[millrace.ShardID]owner.Standing{}
	for i := range h.s.catalog.Shards() {
		id := millrace.ShardID(i)
		f := h.s.worker.Follower(id)
		if f == nil {
			continue
		}
		lsn, behind := f.Position()
		out[id] = owner.Standing{LSN: lsn, Behind: behind, Ready: lsn > 0 && behind <= nearlyThere}
	}
	return out
}

// known says whether the catalog knows a table, or a partition that has rows in the workers.
func (s *Server) known(ctx context.Context) func(millrace.TableID, millrace.PartitionID) bool {
	return func(id millrace.TableID, partition millrace.PartitionID) bool {
		if partition == 0 {
			_, err := s.catalog.TableByID(ctx, id)
			return !errs.Is(err, errs.TableNotFound)
		}
		p, err := s.catalog.PartitionByID(ctx, id, partition)
		return err != nil && !errs.Is(err, errs.PartitionNotFound) || err == nil && !p.Gone
	}
}
