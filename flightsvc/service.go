package flightsvc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	gen "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/trace"
)

// Catalog is what the service needs of the catalog besides the router.
type Catalog interface {
	// AllTables lists every table that the caller may know of.
	AllTables(ctx context.Context) []*millrace.Table
	// TableByID finds a table by number; errs.TableNotFound.
	TableByID(ctx context.Context, id millrace.TableID) (*millrace.Table, error)
}

// Actions runs the unary operations of the HTTP interface.
type Actions interface {
	// Do runs an operation by the id it has in openapi.Operations. The body is a JSON
	// object: path and query parameters are members of it, beside those of the
	// operation's own body. It returns the answer's JSON, empty when there is none.
	Do(ctx context.Context, operationID string, body []byte) ([]byte, error)
}

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Options are the settings and components of a Service.
type Options struct {
	// AdvertiseURI is where clients reach this service, such as
	// grpc+tcp://host:8815; empty: over the connection they have.
	AdvertiseURI string
	// StallTimeout ends streams whose client reads nothing for so long. 30 s.
	StallTimeout time.Duration
	// DrainGrace is how long streams that can come to their end may do so while the
	// server shuts down. 5 s.
	DrainGrace time.Duration
	// Room is for what writes under way have received and not made durable; nil: one of
	// 256 MiB.
	Room *admit.Room
	// MaxStreams bounds the calls under way of one connection. 2,048.
	MaxStreams uint32

	// Callers finds out who calls.
	Callers    auth.Authenticator
	Audit      *audit.Log // nil: nothing is written down
	Quotas     Quotas     // nil: everybody may write as much as he likes
	Router     *router.Router
	Catalog    Catalog
	Actions    Actions
	Clock      Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Tracer     *trace.Tracer // nil: nothing is traced
}

// Bounds of calls and their connections.
const (
	maxRecvBytes      = 64 << 20
	maxHeaderBytes    = 64 << 10
	handshakeTime     = 10 * time.Second
	pingInterval      = 30 * time.Second
	pingPatience      = 15 * time.Second
	maxIdle           = 5 * time.Minute // clients connect again by themselves
	minClientPing     = 10 * time.Second
	defaultUnaryTime  = 30 * time.Second
	maxUnaryTime      = 120 * time.Second
	defaultStall      = 30 * time.Second
	defaultDrainGrace = 5 * time.Second
	defaultPutBytes   = 256 << 20
	defaultMaxStreams = 2048
)

func (o *Options) ensureDefaults() {
	if o.StallTimeout == 0 {
		o.StallTimeout = defaultStall
	}
	if o.DrainGrace == 0 {
		o.DrainGrace = defaultDrainGrace
	}
	if o.Room == nil {
		o.Room = admit.New(admit.Received, defaultPutBytes, func() time.Time { return o.Clock.Now() }, o.Registerer)
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = defaultMaxStreams
	}
}

// Service is the Flight service. Register it with a gRPC server that was made with
// its ServerOptions.
type Service struct {
	flight.BaseFlightServer

	o       Options
	methods map[string]map[string]millrace.Rule // see methods
	metrics *metrics
	health  *health.Server
	calls   sync.WaitGroup // goroutines of streaming calls

	drainOnce sync.Once
	draining  chan struct{} // closed by Drain
}

// New makes a service.
func New(o Options) *Service {
	o.ensureDefaults()
	return &Service{
		o: o, methods: methods(), metrics: newMetrics(o.Registerer), health: health.NewServer(),
		draining: make(chan struct{}),
	}
}

// ServerOptions are what the gRPC server must be made with.
func (s *Service) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ChainStreamInterceptor(s.interceptStream),
		grpc.MaxRecvMsgSize(maxRecvBytes),
		grpc.MaxConcurrentStreams(s.o.MaxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTime),
		// Buffers of this size save system calls, and a connection has them only while
		// it writes.
		grpc.WriteBufferSize(128 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingInterval, Timeout: pingPatience, MaxConnectionIdle: maxIdle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
	}
}

// Register registers the Flight service and grpc.health.v1.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(streaming(gen.FlightService_ServiceDesc), s)
	r.RegisterService(streaming(grpc_health_v1.Health_ServiceDesc), s.health)
	s.health.SetServingStatus(gen.FlightService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
}

// Drain refuses new calls, makes health say so, and ends the streams that are
// open: those without an end at once, the others within DrainGrace. Writes that
// were received are finished and acknowledged first. It does not wait; stop the
// gRPC server gracefully for that.
func (s *Service) Drain() {
	s.drainOnce.Do(func() {
		s.health.Shutdown()
		close(s.draining)
	})
}

// Close drains and waits until nothing of a call is left. The gRPC server has
// been stopped before.
func (s *Service) Close() {
	s.Drain()
	s.calls.Wait()
}

func (s *Service) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}
