package remote

import (
	"context"
	"io"
	"math"

	"github.com/maypok86/otter/v2"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

// rangeKey is a range of an object. Readers of a segment ask for the same ranges again:
// its index, the first bytes of a batch, the chunks of a projection.
type rangeKey struct {
	object string
	off    int64
	n      int
}

// rangeOverhead is about what the cache itself takes for a range.
const rangeOverhead = 256

func newCache(bytes int64) (*otter.Cache[rangeKey, []byte], error) {
	return otter.New(&otter.Options[rangeKey, []byte]{
		MaximumWeight: uint64(bytes),
		Weigher: func(k rangeKey, b []byte) uint32 {
			return uint32(min(len(k.object)+len(b)+rangeOverhead, math.MaxUint32))
		},
	})
}

// source reads an object through the cache.
type source struct {
	s     *Store
	key   string
	bytes int64
}

var _ segment.Rereader = (*source)(nil)

// Open is part of shard.Remote.
func (r *Shard) Open(key string, bytes int64) (segment.Source, string) {
	return &source{r.s, key, bytes}, r.where(key)
}

// ReadAt reads from the cache, or from the store: once, when several want the same range
// at a time.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	return s.read(p, off, func(k rangeKey) ([]byte, error) {
		hit := true
		b, err := s.s.cache.Get(s.s.life, k, otter.LoaderFunc[rangeKey, []byte](func(ctx context.Context, k rangeKey) ([]byte, error) {
			hit = false
			return s.load(ctx, k)
		}))
		if hit {
			s.s.m.cacheHits.Inc()
		} else {
			s.s.m.cacheMisses.Inc()
		}
		return b, err
	})
}

// ReadAgain reads from the store, and puts that into the cache.
func (s *source) ReadAgain(p []byte, off int64) (int, error) {
	return s.read(p, off, func(k rangeKey) ([]byte, error) {
		b, err := s.load(s.s.life, k)
		if err == nil {
			s.s.m.reread.Inc()
			s.s.cache.Set(k, b)
		}
		return b, err
	})
}

func (s *source) read(p []byte, off int64, get func(rangeKey) ([]byte, error)) (int, error) {
	n := int(max(0, min(int64(len(p)), s.bytes-off)))
	if n > 0 {
		b, err := get(rangeKey{s.key, off, n})
		if err != nil {
			if s.s.life.Err() != nil {
				return 0, errs.Wrap(errs.Draining, "remote.read", err)
			}
			return 0, err
		}
		copy(p, b)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (s *source) load(ctx context.Context, k rangeKey) ([]byte, error) {
	b := make([]byte, k.n)
	if err := s.s.readAt(ctx, k.object, b, k.off); err != nil {
		return nil, err
	}
	s.s.m.fetchedBytes.Add(float64(len(b)))
	return b, nil
}

// Close does nothing: what is in the cache goes when others need the room.
func (s *source) Close() error { return nil }
