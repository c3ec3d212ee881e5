package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/shard"
)

// link is the end of the chain of manifests (R1).
type link struct {
	number   uint64          // of the newest one, whether it reads or not
	manifest *shard.Manifest // the newest one that reads; nil when there is none
	at       time.Time       // when that was so, at the latest
}

// believeFor is how long an owner believes that its last manifest is the newest one
// without asking. It is less than numbers are kept: one that was deposed long ago must
// not create a number anew that was removed.
const believeFor = KeepSuperseded / 2

func (r *Shard) manifestKey(number uint64) string {
	return r.key("manifest", fmt.Sprintf("%020d", number))
}

// numbers lists the manifests there are, rising.
func (r *Shard) numbers(ctx context.Context) ([]uint64, error) {
	prefix := r.key("manifest") + "/"
	var out []uint64
	err := r.s.o.Objects.List(ctx, prefix, func(i objstore.Info) error {
		if n, err := strconv.ParseUint(strings.TrimPrefix(i.Key, prefix), 10, 64); err == nil && r.manifestKey(n) == i.Key {
			out = append(out, n)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("remote: list manifests of shard %d: %w", r.id, err)
	}
	return out, nil
}

// manifest reads a manifest; errs.CorruptData when it is damaged or gone.
func (r *Shard) manifest(ctx context.Context, number uint64) (*shard.Manifest, error) {
	key := r.manifestKey(number)
	b, err := r.s.o.Objects.Get(ctx, key)
	if errors.Is(err, objstore.ErrNotExist) {
		return nil, errs.New(errs.CorruptData, "%s is not there", r.where(key))
	}
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	m, err := shard.DecodeManifest(r.where(key), b)
	if err != nil {
		return nil, err
	}
	if m.Number != number || m.Shard != r.id || string(m.Cluster) != string(r.s.o.Cluster[:]) || m.Remote == nil {
		return nil, errs.New(errs.CorruptData, "%s says that it is manifest %d of shard %d of cluster %x", r.where(key), m.Number, m.Shard, m.Cluster)
	}
	return m, nil
}

// newest reads the end of the chain; its number is 0 when there is none.
func (r *Shard) newest(ctx context.Context) (*link, error) {
	l := &link{at: r.s.o.Clock.Now()}
	all, err := r.numbers(ctx)
	if err != nil || len(all) == 0 {
		return l, err
	}
	l.number = all[len(all)-1]
	for _, n := range slices.Backward(all) {
		m, err := r.manifest(ctx, n)
		if err == nil {
			l.manifest = m
			return l, nil
		}
		if !passOver(err) {
			return nil, err
		}
		r.passedOver(n, err)
	}
	return l, nil
}

// passOver says whether an error is of one checkpoint, so that the one before may do.
func passOver(err error) bool { return errs.Is(err, errs.CorruptData) }

func (r *Shard) passedOver(number uint64, err error) {
	r.s.m.passedOver.Inc()
	r.s.o.Logger.Error("a checkpoint in the object store is damaged, the one before is taken", slog.Int("shard", int(r.id)), slog.Uint64("number", number), slog.Any("err", err))
}

// Newest is part of shard.Remote.
func (r *Shard) Newest(ctx context.Context) (*shard.Manifest, error) {
	if err := r.s.guard(ctx); err != nil {
		return nil, err
	}
	l, err := r.newest(ctx)
	if err != nil {
		return nil, err
	}
	if l.manifest == nil && l.number > 0 {
		return nil, errs.New(errs.CorruptData, "none of the checkpoints of shard %d in %s reads", r.id, r.s.o.Objects.URI())
	}
	return l.manifest, nil
}

// tag is the part of keys that belongs to one owner of one log (R2).
func tag(m *shard.Manifest) string {
	return fmt.Sprintf("%d.%08x", m.Tail.Epoch, uint32(m.Tail.LogID))
}

func segmentKey(r *Shard, id millrace.BucketID, base millrace.Offset, tag string) string {
	return r.key("segments", fmt.Sprintf("%010d", id.Table), fmt.Sprintf("%010d", id.Partition), fmt.Sprintf("%05d", id.Bucket), fmt.Sprintf("%020d-%s", base, tag))
}
