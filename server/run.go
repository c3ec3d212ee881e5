package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/auth/quota"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/flightsvc"
	"github.com/millrace/millrace/guard"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/server/certs"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/tier"
	"github.com/millrace/millrace/trace"
)

// drainTime is how long requests and streams under way have at a stop.
const drainTime = 10 * time.Second

// catalogDir is the catalog's folder in the data directory.
const catalogDir = "catalog"

// Options run a server.
type Options struct {
	Settings *Settings
	Version  string
	Log      io.Writer
	// Reread brings something when certificates are to be read again at once; nil: never.
	Reread <-chan os.Signal
	// Failpoint is what EnvFailpoint says; in tests only.
	Failpoint string
	// ClockAhead is what EnvClock says; in tests only.
	ClockAhead string
}

// Server is a server from start to stop.
type Server struct {
	settings *Settings
	version  string
	dir      string
	log      *slog.Logger
	clock    wallClock

	health  *health
	tracer  *trace.Tracer // nil: nothing is traced
	metrics *metrics
	callers auth.Authenticator
	audit   *audit.Log   // nil: nothing is written down
	certs   *certs.Files // nil without TLS here and without authorities of other processes
	reread  <-chan os.Signal
	ports   *ports
	front   *front
	catalog *catalog.Catalog
	worker  *storage.Worker
	member  *member // nil on a single node
	tier    *tier.Manager
	guard   *guard.Guard
	quotas  *quota.Quotas
	// received is what bodies and batches may take that clients send.
	received *admit.Room
	router   *router.Router
	failAt   string
	lake     lakeFormat
	flight   *flightsvc.Service
	grpc     *grpc.Server

	httpAddr, flightAddr, metricsAddr, debugAddr net.Addr
	lakeLocation                                 string // where lake tables are; "" when there is no such place
	// draining is closed when streams have to end.
	draining chan struct{}
	// serving holds the listeners' goroutines; the first error ends the server.
	serving *errgroup.Group
	failed  context.Context

	stops []stop // in order of start
}

// stop undoes one step of the start.
type stop struct {
	what string
	do   func(ctx context.Context) error
}

func (s *Server) onStop(what string, do func(ctx context.Context) error) {
	s.stops = append(s.stops, stop{what, do})
}

// Run starts a server and serves until ctx ends; then it drains and returns nil.
// It returns an error when the server cannot start, when a part of it fails, or
// when it cannot be stopped cleanly.
func Run(ctx context.Context, o Options) error {
	boundMemory()
	ctx = auth.With(ctx, auth.System) // what the server does unasked; requests have contexts of their own
	s := newServer(ctx, o)
	var err error
	if s.clock, err = clockAhead(o.ClockAhead); err != nil {
		return err
	}
	err = s.start(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
			s.log.InfoContext(ctx, "stopping", slog.Duration("at_most", drainTime))
		case <-s.failed.Done():
			err = context.Cause(s.failed)
		}
	}
	// What ends the server does not end its stopping.
	return errors.Join(err, s.stop(context.WithoutCancel(ctx)))
}

// newServer makes a server that has not been started.
func newServer(ctx context.Context, o Options) *Server {
	s := &Server{settings: o.Settings, version: o.Version, failAt: o.Failpoint, reread: o.Reread, log: newLogger(o.Log, o.Settings), draining: make(chan struct{})}
	s.serving, s.failed = errgroup.WithContext(context.WithoutCancel(ctx))
	return s
}

// start runs the steps of the package comment, each with its undoing.
func (s *Server) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.openDataDir, s.listen, s.openNATS, s.openCatalog, s.openBackup, s.openLake, s.openWorker, s.openTier, s.openRouter, s.openAuditTable, s.openDoors, s.openUpkeep, s.join} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, name := range s.settings.unsafe() {
		s.log.WarnContext(ctx, "unsafe setting", slog.String("setting", name), slog.String("why", unsafeSettings[name].why))
	}
	return s.becomeReady(ctx)
}

func (s *Server) openDataDir(context.Context) error {
	dir, err := filepath.Abs(s.settings.DataDir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	s.dir = dir
	if err := makeDataDir(dir); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	s.onStop("data directory", func(context.Context) error { return lock.release() })
	return nil
}

// listen opens the ports and answers on them; until the server is ready that it is
// starting.
func (s *Server) listen(ctx context.Context) error {
	s.health = newHealth(s.clock.Now)
	s.metrics = newMetrics(s.version, s.settings.unsafe(), s.health, func() int64 { return s.front.working.Load() })
	watchDisk(s.metrics.registry, s.dir)
	if err := s.openCallers(ctx); err != nil {
		return err
	}
	// Who shows a token says himself whom he means to reach.
	machine := wallClock{} // deadlines of connections are the operating system's
	s.front = newFront(s.health, s.metrics, s.log, machine.Now, s.callers, s.settings.Insecure || s.settings.authenticated())
	if err := s.openAudit(); err != nil {
		return err
	}
	s.front.audit = s.audit
	if err := s.openTracing(ctx); err != nil {
		return err
	}
	s.front.tracer = s.tracer
	s.front.pages = newPages(s.settings.CORSOrigins)
	s.ports = newPorts(s.metrics.registry)
	if err := s.openCerts(ctx); err != nil {
		return err
	}
	var err error
	if s.httpAddr, err = s.serveHTTP(ctx, "http-addr", s.settings.HTTPAddr, s.settings.encrypted(), s.front.handler()); err != nil {
		return err
	}
	if s.settings.MetricsAddr != "" {
		if s.metricsAddr, err = s.serveHTTP(ctx, "metrics-addr", s.settings.MetricsAddr, false, s.front.observing()); err != nil {
			return err
		}
	}
	return s.serveDebug(ctx)
}

func (s *Server) listenOn(ctx context.Context, setting, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("setting %s: %w", setting, err)
	}
	most, short := connections(s.settings.MaxConnections)
	if short {
		s.log.WarnContext(ctx, "the limit of open files leaves fewer connections than there should be (ulimit -n, LimitNOFILE)",
			slog.String("setting", setting), slog.Int("connections", most))
	}
	return s.ports.bound(strings.TrimSuffix(setting, "-addr"), l, most), nil
}

func (s *Server) serveHTTP(ctx context.Context, setting, addr string, encrypted bool, h http.Handler) (net.Addr, error) {
	l, err := s.listenOn(ctx, setting, addr)
	if err != nil {
		return nil, err
	}
	srv := newHTTPServer(h, s.log)
	serve := srv.Serve
	if encrypted {
		srv.TLSConfig = s.certs.Server(protoHTTP2, protoHTTP1)
		serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	s.serving.Go(func() error {
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving %s: %w", setting, err)
		}
		return nil
	})
	s.onStop(setting, func(context.Context) error {
		// Whatever could be finished has been; what is left is idle or stuck.
		return srv.Close()
	})
	return l.Addr(), nil
}

func (s *Server) openCatalog(ctx context.Context) error {
	var c *catalog.Catalog
	var err error
	if s.member != nil {
		c, err = s.openClusterCatalog(ctx)
	} else {
		c, err = catalog.Open(ctx, catalog.Options{
			Dir: filepath.Join(s.dir, catalogDir), Shards: s.settings.Shards, FS: vfs.Default, Clock: s.clock.Now, Logger: s.log,
		})
	}
	if err != nil {
		return err
	}
	s.catalog = c
	s.onStop("catalog", func(context.Context) error { return c.Close() })
	s.health.watch("catalog", c.Err)
	return guardCluster(s.dir, c.ClusterID())
}

// becomeReady tells where the server is, and takes work.
func (s *Server) becomeReady(ctx context.Context) error {
	r := addressesRecord{HTTP: s.httpAddr.String(), TLS: s.settings.encrypted(), PID: os.Getpid()}
	if s.flightAddr != nil {
		r.Flight = s.flightAddr.String()
	}
	if s.metricsAddr != nil {
		r.Metrics = s.metricsAddr.String()
	}
	s.health.enter(serving) // who finds the addresses finds it ready
	if s.debugAddr != nil {
		r.Debug = s.debugAddr.String()
	}
	if err := publishAddresses(s.dir, r); err != nil {
		return err
	}
	s.onStop("addresses", func(context.Context) error { return withdrawAddresses(s.dir) })
	s.log.InfoContext(ctx, "ready", slog.String("http", s.scheme()+r.HTTP), slog.String("flight", s.flightScheme()+r.Flight),
		slog.String("authentication", s.settings.authentication()), slog.String("data_dir", s.dir), slog.String("version", s.version))
	return nil
}

// stop drains and undoes the start, last step first; each step is tried whatever
// became of the others.
func (s *Server) stop(ctx context.Context) error {
	served := s.health != nil && s.health.now() == serving
	if served {
		s.drain(ctx)
	}
	var errs []error
	for _, st := range slices.Backward(s.stops) {
		if err := st.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", st.what, err))
		}
	}
	if err := s.serving.Wait(); len(errs) == 0 && err != nil && context.Cause(s.failed) != err { //nolint:errorlint // the same error again
		errs = append(errs, err)
	}
	if served && len(errs) == 0 {
		s.log.InfoContext(ctx, "stopped")
	}
	return errors.Join(errs...)
}

// drain refuses new work and gives what is under way drainTime to end.
func (s *Server) drain(ctx context.Context) {
	s.health.enter(draining)
	close(s.draining)
	if s.flight != nil {
		s.flight.Drain()
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	var both errgroup.Group
	both.Go(func() error { return s.front.drained(ctx) })
	both.Go(func() error { return s.drainFlight(ctx) })
	if err := both.Wait(); err != nil {
		s.log.WarnContext(ctx, "requests broken off", slog.Int64("http_requests", s.front.working.Load()))
	}
}
