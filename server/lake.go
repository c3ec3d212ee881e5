package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/millrace/millrace/icebergrest"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/tier"
	"github.com/millrace/millrace/tier/iceberg"
)

// openLake names the place of the lake tables. It reaches for nothing: a server starts
// while its lake is away.
func (s *Server) openLake(ctx context.Context) error {
	store, err := objstore.Open(ctx, strings.Replace(s.settings.LakeURI, dataDirMark, s.dir, 1), objstore.Options{Registerer: s.metrics.registry})
	if err != nil {
		return wrong("lake-uri", "%v", err)
	}
	s.lake = iceberg.New(iceberg.Options{Store: store, Cluster: s.catalog.ClusterID(), Clock: s.clock, Logger: s.log})
	return nil
}

// openTier makes what takes tables to the lake; it begins with the doors.
func (s *Server) openTier(context.Context) error {
	hook, err := failpoint(s.failAt)
	if err != nil {
		return err
	}
	var shards []tier.Shard
	for _, sh := range s.worker.Shards() {
		shards = append(shards, sh)
	}
	s.tier = tier.New(tier.Options{
		Format: s.lake, Catalog: s.catalog, Shards: shards, Hook: hook,
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	})
	s.onStop("tiering", func(context.Context) error { return s.tier.Close() })
	return nil
}

// doors is the whole of the API: the catalog of stock readers below its root, and the
// operations.
func (s *Server) doors(api http.Handler) http.Handler {
	readers := icebergrest.New(icebergrest.Options{Catalog: s.catalog, Lake: s.lake, Logger: s.log})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if icebergrest.Serves(r.URL.Path) {
			readers.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}
