package server

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/remote"
	"github.com/millrace/millrace/storage/shard"
)

// openMember makes the worker of a cluster, without shards: those come when the process
// has joined. Without the role worker there is none.
func (s *Server) openMember(ctx context.Context, o storage.Options) error {
	if !s.settings.has(owner.RoleWorker) {
		return nil
	}
	if err := s.openLogs(ctx); err != nil {
		return err
	}
	var err error
	if o.Remote, err = s.openRemote(ctx, o.Cluster); err != nil {
		return err
	}
	w, err := storage.New(o)
	if err != nil {
		return err
	}
	s.worker = w
	s.onStop("worker", w.Close)
	s.health.watch("worker", w.Err)
	s.catalog.Changed(s.told)
	return nil
}

// openObjects names an object store, of which the metrics go by what it is for.
func (s *Server) openObjects(ctx context.Context, what, uri string) (objstore.Store, error) {
	return objstore.Open(ctx, strings.Replace(uri, dataDirMark, s.dir, 1), objstore.Options{
		S3:         objstore.S3{Endpoint: s.settings.S3Endpoint, Region: s.settings.S3Region, PathStyle: s.settings.S3PathStyle},
		Registerer: s.metrics.registry.with(prometheus.Labels{"store": what}),
	})
}

// claimTime is how long a start waits for an object store that does not answer.
const claimTime = 5 * time.Second

// openRemote is where the checkpoints of shards go besides the data directory: nowhere
// on a single node, unless it was told where.
func (s *Server) openRemote(ctx context.Context, id [16]byte) (func(millrace.ShardID) shard.Remote, error) {
	if strings.Contains(s.settings.RemoteURI, dataDirMark) {
		return nil, nil
	}
	objects, err := s.openObjects(ctx, "remote", s.settings.RemoteURI)
	if err != nil {
		return nil, wrong("remote-uri", "%v", err)
	}
	cache, err := sizeOf("remote-cache-size", s.settings.RemoteCacheSize)
	if err != nil {
		return nil, err
	}
	r, err := remote.Open(remote.Options{
		Cluster: id, CacheBytes: cache, Objects: objects, Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	})
	if err != nil {
		return nil, err
	}
	s.onStop("remote tier", func(context.Context) error { r.Close(); return nil })
	// Another cluster's place ends the start; a store that is away does not.
	claim, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	if err := r.Claim(claim); errs.Is(err, errs.InvalidValue) {
		return nil, wrong("remote-uri", "%v", err)
	}
	return func(id millrace.ShardID) shard.Remote { return r.Shard(id) }, nil
}
