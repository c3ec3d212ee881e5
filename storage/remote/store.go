package remote

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/shard"
)

// ClusterFile says which cluster the objects below a root belong to.
const ClusterFile = "cluster.json"

const (
	defaultCacheBytes = 64 << 20
	defaultTransfers  = 8
)

// Options are a store's settings and components.
type Options struct {
	Cluster    [16]byte
	CacheBytes int64 // ranges of segments held in memory; default 64 MiB
	Transfers  int64 // objects that are up- or downloaded at a time; default 8

	Objects    objstore.Store
	Clock      shard.Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Store is the remote tier of a process.
type Store struct {
	o     Options
	m     *metrics
	cache *otter.Cache[rangeKey, []byte]
	slots *semaphore.Weighted

	// life ends with the store: reads by readers that know no context end with it.
	life context.Context //nolint:containedctx // a lifetime
	end  context.CancelFunc

	mu      sync.Mutex
	guarded bool // cluster.json is ours
}

// Open opens the tier. It reaches for nothing, so that a server starts while its object
// store is away.
func Open(o Options) (*Store, error) {
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.Transfers == 0 {
		o.Transfers = defaultTransfers
	}
	s := &Store{o: o, slots: semaphore.NewWeighted(o.Transfers)}
	var err error
	if s.cache, err = newCache(o.CacheBytes); err != nil {
		return nil, fmt.Errorf("remote.Open: %w", err)
	}
	s.m = newMetrics(o.Registerer, s)
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the reads under way.
func (s *Store) Close() {
	s.end()
	s.cache.StopAllGoroutines()
}

// Shard is where the checkpoints of a shard go.
func (s *Store) Shard(id millrace.ShardID) *Shard {
	return &Shard{s: s, id: id, sent: map[string]shard.RemoteObject{}}
}

// prefix is that of all keys of the cluster.
func (s *Store) prefix() string { return hex.EncodeToString(s.o.Cluster[:]) + "/" }

// clusterRecord is the content of ClusterFile.
type clusterRecord struct {
	Format    int    `json:"format"`
	ClusterID string `json:"cluster_id"` // hex
}

const clusterFormat = 1

// Claim makes sure that the root is our cluster's; errs.InvalidValue when it is another's.
// Everything else does so first, too.
func (s *Store) Claim(ctx context.Context) error { return s.guard(ctx) }

// guard makes sure, once, that the root is that of our cluster, and marks it as that
// when it is nobody's.
func (s *Store) guard(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guarded {
		return nil
	}
	want := clusterRecord{Format: clusterFormat, ClusterID: hex.EncodeToString(s.o.Cluster[:])}
	err := s.o.Objects.Create(ctx, ClusterFile, encodeJSON(want))
	if errors.Is(err, objstore.ErrExists) {
		var got [16]byte
		if got, err = ClusterOf(ctx, s.o.Objects); err == nil && got != s.o.Cluster {
			err = errs.New(errs.InvalidValue, "%s is where cluster %x keeps its checkpoints, and this is cluster %s: set remote-uri to a place of its own", s.o.Objects.URI(), got, want.ClusterID)
		}
	}
	if err != nil {
		return fmt.Errorf("remote: %s: %w", ClusterFile, err)
	}
	s.guarded = true
	return nil
}

// ClusterOf reads whose checkpoints are below a store's root; objstore.ErrNotExist when
// they are nobody's.
func ClusterOf(ctx context.Context, objects objstore.Reader) (id [16]byte, err error) {
	where := objects.URI() + "/" + ClusterFile
	b, err := objects.Get(ctx, ClusterFile)
	if err != nil {
		return id, err
	}
	var r clusterRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return id, errs.New(errs.CorruptData, "%s does not read: %v", where, err)
	}
	if r.Format > clusterFormat {
		return id, errs.New(errs.NotImplemented, "%s has format %d, was written by a newer release; this one reads %d", where, r.Format, clusterFormat)
	}
	if n, err := hex.Decode(id[:], []byte(r.ClusterID)); err != nil || n != len(id) || len(r.ClusterID) != 2*len(id) {
		return id, errs.New(errs.CorruptData, "%s names the cluster %q, which is none", where, r.ClusterID)
	}
	return id, nil
}

func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("remote: %T does not encode: %v", v, err)) // plain values always do
	}
	return b
}

// Shard is the part of the store that belongs to one shard.
type Shard struct {
	s  *Store
	id millrace.ShardID

	mu   sync.Mutex // held by Publish and Collect
	last *link      // the newest manifest, as of the last Publish; nil: to be read
	// sent are objects that were uploaded and that no manifest names yet, by key.
	sent map[string]shard.RemoteObject
	gc   collector
}

var _ shard.Remote = (*Shard)(nil)

// key is that of an object of the shard.
func (r *Shard) key(parts ...string) string {
	return r.s.prefix() + fmt.Sprintf("%05d/", r.id) + path.Join(parts...)
}

// where names an object in errors.
func (r *Shard) where(key string) string { return r.s.o.Objects.URI() + "/" + key }
