package server

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
	"github.com/millrace/millrace/rest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage"
)

const (
	// ownerName is the only worker there is on a single node.
	ownerName = "local"
	// ticketLife covers the longest-lived thing that the router signs, which says
	// itself when it ends: a ticket of an hour.
	ticketLife = 2 * time.Hour
	// keepExpired is how long what has expired can be read by those who began before:
	// as long as a ticket says that it may, and a while for the stream it began.
	keepExpired = router.TicketTTL + 10*time.Minute
)

// openWorker recovers the data, and drops that of tables and partitions whose drop a
// crash interrupted, or which are in the lake alone.
func (s *Server) openWorker(ctx context.Context) error {
	cache, err := cacheBytes(s.settings.CacheSize, machineMemory())
	if err != nil {
		return err
	}
	w, err := storage.Open(ctx, storage.Options{
		Dir: s.dir, Cluster: s.catalog.ClusterID(), Shards: s.catalog.Shards(), CacheBytes: cache,
		KeepExpired: keepExpired,
		FS:          vfs.Default, Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	})
	if err != nil {
		return err
	}
	s.worker = w
	s.onStop("worker", w.Close)
	s.health.watch("worker", w.Err)
	w.Tell(s.catalog.AllTables()...)
	return w.DropUnknown(ctx, func(id millrace.TableID, partition millrace.PartitionID) bool {
		if partition == 0 {
			_, err := s.catalog.TableByID(ctx, id)
			return !errs.Is(err, errs.TableNotFound)
		}
		p, err := s.catalog.PartitionByID(ctx, id, partition)
		return err != nil && !errs.Is(err, errs.PartitionNotFound) || err == nil && !p.Gone
	})
}

// openDoors makes the router and both doors, and opens the port of Flight.
func (s *Server) openDoors(ctx context.Context) error {
	l, err := s.listenOn(ctx, "flight-addr", s.settings.FlightAddr)
	if err != nil {
		return err
	}
	s.flightAddr = l.Addr()
	r := router.New(router.Options{
		Catalog: s.catalog, Owners: router.Local(s.worker.Shards()), Signer: s.signer(ctx), Lake: s.tier,
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	})
	api := rest.New(rest.Options{
		Version: s.version, FlightAddress: s.flightAddress(), Owner: ownerName,
		Catalog: s.catalog, Router: r, Lake: s.tier, LakeLocation: s.lakeLocation, IcebergAddress: s.icebergAddress(),
		Clock: s.clock, Logger: s.log, Draining: s.draining,
	})
	s.flight = flightsvc.New(flightsvc.Options{
		AdvertiseURI: s.advertiseURI(), Router: r, Catalog: s.catalog, Actions: newActions(api),
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	})
	s.serveFlight(l)
	s.front.serveAPI(s.doors(api))
	s.tier.Start(r)
	s.keepPartitions(ctx, r)
	return nil
}

// keepPartitions makes partitions ahead of time, and ends old ones, as long as the
// server runs.
func (s *Server) keepPartitions(ctx context.Context, r *router.Router) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		router.NewKeeper(r, s.catalog).Run(run)
	}()
	s.onStop("keeper of partitions", func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}

// signer signs with the keys of the catalog, which changes them daily.
func (s *Server) signer(ctx context.Context) *auth.Signer {
	return auth.NewSigner(auth.Options{
		Purpose: "ticket or page token", Life: ticketLife, Clock: s.clock.Now,
		Keys: func() ([]auth.Key, error) {
			stored, err := s.catalog.SigningKeys(ctx)
			return authKeys(stored), err
		},
	})
}

func authKeys(stored []catalog.SigningKey) []auth.Key {
	keys := make([]auth.Key, len(stored))
	for i, k := range stored {
		keys[i] = auth.Key{ID: k.ID, Secret: k.Secret}
	}
	return keys
}

// flightAddress is what clients of the HTTP API are told.
func (s *Server) flightAddress() string {
	if s.settings.AdvertiseFlight != "" {
		return s.settings.AdvertiseFlight
	}
	return s.flightAddr.String()
}

// advertiseURI is what endpoints name; nothing, unless it was set.
func (s *Server) advertiseURI() string {
	if s.settings.AdvertiseFlight == "" {
		return ""
	}
	return "grpc+tcp://" + s.settings.AdvertiseFlight
}

func (s *Server) serveFlight(l net.Listener) {
	s.grpc = grpc.NewServer(s.flight.ServerOptions()...)
	s.flight.Register(s.grpc)
	s.serving.Go(func() error {
		if err := s.grpc.Serve(l); err != nil {
			return fmt.Errorf("serving flight-addr: %w", err)
		}
		return nil
	})
	s.onStop("flight-addr", func(context.Context) error {
		s.grpc.Stop()
		s.flight.Close()
		return nil
	})
}

// drainFlight waits until the calls under way have ended, or ctx ends; then it
// breaks them off.
func (s *Server) drainFlight(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-ended
		return ctx.Err()
	}
}
