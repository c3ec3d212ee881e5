package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/icebergrest"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/tier"
	"github.com/millrace/millrace/tier/iceberg"
)

// lakeFormat keeps lake tables, and shows them to stock readers.
type lakeFormat interface {
	lake.Format
	icebergrest.Lake
}

// openLake names the place of the lake tables. It reaches for nothing: a server starts
// while its lake is away. A data directory whose name is no address is no reason not to
// start, as long as nobody asked for a lake there.
func (s *Server) openLake(ctx context.Context) error {
	store, err := s.openObjects(ctx, "lake", s.settings.LakeURI)
	switch {
	case err == nil:
		own, err := s.settings.ownCatalog(store)
		if err != nil {
			return err
		}
		var pointers iceberg.Catalog // stays nil without a catalog of the user's own
		if own != nil {
			pointers = own
			s.onStop("lake catalog", func(context.Context) error { return own.Close() })
		}
		s.lakeLocation = store.URI()
		s.lake = iceberg.New(iceberg.Options{Store: store, Catalog: pointers, Cluster: s.catalog.ClusterID(), Clock: s.clock, Logger: s.log})
		return nil
	case !strings.Contains(s.settings.LakeURI, dataDirMark):
		return wrong("lake-uri", "%v", err)
	}
	s.log.WarnContext(ctx, "there is no lake in this data directory: set lake-uri to have one", slog.Any("err", err))
	s.lake = noLake{errs.New(errs.Unavailable, "there is no lake, since lake-uri is not set and the data directory cannot hold it: %v", err)}
	return nil
}

// noLake is the lake of a server that has no place for it.
type noLake struct{ why error }

// Open implements lake.Format.
func (l noLake) Open(context.Context, *millrace.Table) (lake.Table, error) { return nil, l.why }

// Purge implements lake.Format: it waits for the lake that the table may have been in.
func (l noLake) Purge(context.Context, millrace.TableID, millrace.TablePath) error { return l.why }

// Metadata implements icebergrest.Lake.
func (l noLake) Metadata(context.Context, *millrace.Table) (string, []byte, error) {
	return "", nil, l.why
}

// openTier makes what takes tables to the lake; it begins with the doors.
func (s *Server) openTier(ctx context.Context) error {
	hook, err := failpoint(s.failAt)
	if err != nil {
		return err
	}
	o := tier.Options{
		Format: s.lake, Catalog: s.catalog, Hook: hook,
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry, Tracer: s.tracer,
	}
	if s.member == nil {
		for _, sh := range s.worker.Shards() {
			o.Shards = append(o.Shards, sh)
		}
	} else {
		s.member.teller = newTeller(s)
		o.Shards = []tier.Shard{s.member.teller}
		o.Mine = func(id millrace.TableID) bool { return s.mine(owner.RoleTier, uint64(id)) }
	}
	s.tier = tier.New(ctx, o)
	s.onStop("tiering", func(context.Context) error { return s.tier.Close() })
	return nil
}

// icebergAddress is the path of the catalog of stock readers.
func (s *Server) icebergAddress() string {
	if s.lakeLocation == "" {
		return ""
	}
	return icebergrest.Root
}

// doors is the whole of the API: the catalog of stock readers below its root, and the
// operations.
func (s *Server) doors(api http.Handler) http.Handler {
	readers := icebergrest.New(icebergrest.Options{Catalog: s.guard, Access: s.guard, Lake: s.lake, FileIO: s.fileIO(), Logger: s.log})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if icebergrest.Serves(r.URL.Path) {
			readers.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// fileIO is what stock readers are told of how to reach the files of an S3 lake, by the
// names that Iceberg's clients have for it.
func (s *Server) fileIO() map[string]string {
	if !strings.HasPrefix(s.lakeLocation, "s3://") {
		return nil
	}
	out := map[string]string{}
	if s.settings.S3Endpoint != "" {
		out["s3.endpoint"] = s.settings.S3Endpoint
	}
	if s.settings.S3Region != "" {
		out["client.region"], out["s3.region"] = s.settings.S3Region, s.settings.S3Region
	}
	if s.settings.S3PathStyle {
		out["s3.path-style-access"] = "true"
	}
	return out
}
