package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/cluster/owner"
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
	// itself when it ends: a page token of a day.
	ticketLife = auth.MaxLife
	// signTickets is what the texts are for that clients bring back.
	signTickets = "ticket or page token"
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
	o := storage.Options{
		Dir: s.dir, Cluster: s.catalog.ClusterID(), Shards: s.catalog.Shards(), CacheBytes: cache,
		KeepExpired: keepExpired,
		FS:          vfs.Default, Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry, Tracer: s.tracer,
	}
	if s.member != nil {
		return s.openMember(ctx, o)
	}
	if o.Remote, err = s.openRemote(ctx, o.Cluster); err != nil {
		return err
	}
	w, err := storage.Open(ctx, o)
	if err != nil {
		return err
	}
	s.worker = w
	s.onStop("worker", w.Close)
	s.health.watch("worker", w.Err)
	w.Tell(s.catalog.AllTables()...)
	return w.DropUnknown(ctx, s.known(ctx))
}

// openRouter makes what all reads and writes go through, and lets those of other
// processes come in.
func (s *Server) openRouter(ctx context.Context) error {
	s.openGuard()
	bytes, err := receiveBytes(s.settings.ReceiveMemory, machineMemory())
	if err != nil {
		return err
	}
	room := func(of admit.Of) *admit.Room {
		return admit.New(of, bytes, s.clock.Now, s.metrics.registry.with(prometheus.Labels{"of": string(of)}))
	}
	s.received = room(admit.Received)
	o := router.Options{
		Catalog: s.catalog, Access: s.guard, Quotas: s.quotas, Room: room(admit.Sent), Owners: router.Local(nil), Signer: s.signer(ctx, signTickets, ticketLife), Lake: s.tier,
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	}
	if s.member == nil {
		o.Owners = router.Local(s.worker.Shards())
		s.router = router.New(o)
		return nil
	}
	return s.openCalls(ctx, o)
}

// openDoors opens what clients use: with the role front both doors, else none.
func (s *Server) openDoors(ctx context.Context) error {
	if !s.settings.has(owner.RoleFront) {
		s.front.serveAPI(http.HandlerFunc(noFront))
		return nil
	}
	l, err := s.listenOn(ctx, "flight-addr", s.settings.FlightAddr)
	if err != nil {
		return err
	}
	s.flightAddr = l.Addr()
	api := rest.New(rest.Options{
		Version: s.version, Authentication: s.settings.authenticated(), FlightAddress: s.flightAddress(), Members: s.members,
		Catalog: s.guard, Access: s.guard, Room: s.received, Quotas: s.quotas, Router: s.router, Lake: s.tier, LakeLocation: s.lakeLocation, IcebergAddress: s.icebergAddress(),
		Clock: s.clock, Logger: s.log, Draining: s.draining,
	})
	s.flight = flightsvc.New(flightsvc.Options{
		AdvertiseURI: s.advertiseURI(), Callers: s.callers, Audit: s.audit, Room: s.received, Quotas: s.quotas, Router: s.router, Catalog: s.guard, Actions: newActions(api), Tracer: s.tracer,
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	})
	s.serveFlight(l)
	s.front.serveAPI(s.doors(api))
	return nil
}

// noFront answers clients where they are not served.
func noFront(w http.ResponseWriter, r *http.Request) {
	refuse(w, r, errs.New(errs.RouteNotFound, "this process has not the role front: ask one that has"))
}

// openUpkeep begins what goes on beside requests: tiering, and the making and ending of
// partitions.
func (s *Server) openUpkeep(ctx context.Context) error {
	if !s.settings.has(owner.RoleTier) {
		s.tier.Attach(s.router)
		return nil
	}
	if s.member != nil {
		s.runTeller(ctx)
	}
	s.tier.Start(s.router)
	s.keepPartitions(ctx, s.router)
	return nil
}

// keepPartitions makes partitions ahead of time, and ends old ones, as long as the
// server runs.
func (s *Server) keepPartitions(ctx context.Context, r *router.Router) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		router.NewKeeper(r, s.catalog).Run(run, func() bool { return s.mine(owner.RoleTier, keeperTurn) })
	}()
	s.onStop("keeper of partitions", func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}

// keeperTurn is the number of the work of keeping partitions; no table has it.
const keeperTurn = 1<<64 - 1

// signer signs with the keys of the catalog, which changes them daily.
func (s *Server) signer(ctx context.Context, purpose string, life time.Duration) *auth.Signer {
	return auth.NewSigner(auth.Options{
		Purpose: purpose, Life: life, Clock: s.clock.Now,
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
	if s.settings.AdvertiseFlight != "" || s.flightAddr == nil {
		return s.settings.AdvertiseFlight
	}
	return s.flightAddr.String()
}

// advertiseURI is what endpoints name; nothing, unless it was set.
func (s *Server) advertiseURI() string {
	if s.settings.AdvertiseFlight == "" {
		return ""
	}
	return s.flightScheme() + s.settings.AdvertiseFlight
}

func (s *Server) serveFlight(l net.Listener) {
	o := append(s.flight.ServerOptions(), followCalls()...)
	if s.settings.encrypted() {
		o = append(o, grpc.Creds(credentials.NewTLS(s.certs.Server(protoHTTP2))))
	}
	s.grpc = grpc.NewServer(o...)
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
	if s.grpc == nil {
		return nil
	}
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
