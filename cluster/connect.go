package cluster

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/millrace/millrace/errs"
)

// Options say how to reach the servers.
type Options struct {
	// Settings.

	// URLs is a comma list: nats:// or tls://, each with user and password or not. They
	// are tried in random order, and so are the servers that these name.
	URLs string
	// Credentials is the path of a credentials file (JWT and key); "" for none.
	Credentials string
	// CA, Cert and Key are paths of PEM files: who may have signed the servers'
	// certificates, and ours; "" for none.
	CA, Cert, Key string
	// Name is shown in the servers' lists of connections.
	Name string

	// Components; each may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	dialTimeout = 2 * time.Second
	// A server that is silent is given up after two pings without an answer.
	pingInterval = 2 * time.Second
	maxPingsOut  = 2
	// writeTimeout is how long a server may take no bytes: all that is sent waits.
	writeTimeout = 4 * time.Second
	maxPause     = 2 * time.Second // between two attempts to connect
)

// Conn is a connection to the cluster's servers, which is sought again whenever it is lost.
type Conn struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	logger *slog.Logger
	met    connMetrics
	dial   []nats.Option // for another connection

	life context.Context // ends with Close
	end  context.CancelFunc

	mu struct {
		sync.Mutex
		up   context.Context // ends when the connection is lost
		down context.CancelFunc
	}
}

type connMetrics struct {
	connected prometheus.Gauge
	lost      prometheus.Counter
	errors    prometheus.Counter
}

// Connect connects, and tries again until ctx ends. It fails at once when a server
// refuses us. The caller closes the connection.
func Connect(ctx context.Context, opts Options) (*Conn, error) {
	urls, err := splitURLs(opts.URLs)
	if err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := promauto.With(opts.Registerer)
	c := &Conn{logger: opts.Logger, met: connMetrics{
		connected: p.NewGauge(prometheus.GaugeOpts{Name: "millrace_cluster_connected", Help: "1 while there is a connection to a NATS server."}),
		lost:      p.NewCounter(prometheus.CounterOpts{Name: "millrace_cluster_disconnects_total", Help: "Connections to a NATS server that were lost."}),
		errors:    p.NewCounter(prometheus.CounterOpts{Name: "millrace_cluster_errors_total", Help: "Errors that NATS reported outside of any call, a subscription that is too slow among them; the log has each."}),
	}}
	c.life, c.end = context.WithCancel(context.Background())
	c.setUp()
	if c.dial, err = dialOptions(opts); err != nil {
		return nil, err
	}
	if err := c.connect(ctx, urls); err != nil {
		c.end()
		return nil, err
	}
	c.met.connected.Set(1)
	return c, nil
}

func splitURLs(list string) ([]string, error) {
	var urls []string
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || (u.Scheme != "nats" && u.Scheme != "tls") {
			return nil, errs.New(errs.InvalidRequest, "a NATS address is not of the form nats://host:4222 or tls://host:4222") // it may hold a password
		}
		urls = append(urls, s)
	}
	if len(urls) == 0 {
		return nil, errs.New(errs.InvalidRequest, "there is no NATS address")
	}
	return urls, nil
}

// dialOptions are the options of every connection that we make.
func dialOptions(opts Options) ([]nats.Option, error) {
	o := []nats.Option{
		nats.Name(opts.Name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1), // C1
		nats.CustomReconnectDelay(pause),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPingsOut),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
		nats.IgnoreAuthErrorAbort(), // a server that is starting may not know us yet
	}
	if opts.Credentials != "" {
		o = append(o, nats.UserCredentials(opts.Credentials))
	}
	if opts.CA != "" {
		o = append(o, nats.RootCAs(opts.CA))
	}
	if (opts.Cert == "") != (opts.Key == "") {
		return nil, errs.New(errs.InvalidRequest, "a certificate for NATS needs its key, and a key its certificate")
	}
	if opts.Cert != "" {
		o = append(o, nats.ClientCert(opts.Cert, opts.Key))
	}
	return o, nil
}

// pause is how long to wait after all servers were tried, for the nth time.
func pause(n int) time.Duration {
	d := min(maxPause, 50*time.Millisecond<<min(n, 10))
	return d/2 + rand.N(d/2)
}

func (c *Conn) connect(ctx context.Context, urls []string) error {
	dial := append([]nats.Option{
		nats.DisconnectErrHandler(c.disconnected),
		nats.ReconnectHandler(c.reconnected),
		nats.ErrorHandler(c.failed),
	}, c.dial...)
	for n := 0; ; n++ {
		nc, err := nats.Connect(strings.Join(urls, ","), dial...)
		if err == nil {
			c.nc = nc
			if c.js, err = jetstream.New(nc); err != nil {
				nc.Close()
				return errs.Wrap(errs.Internal, "cluster.Connect", err)
			}
			return nil
		}
		if refused(err) {
			return errs.New(errs.Unavailable, "NATS refuses us: %v", err)
		}
		if n == 0 {
			c.logger.LogAttrs(ctx, slog.LevelWarn, "nats cannot be reached, trying again", slog.Any("err", err))
		}
		wait := time.NewTimer(pause(n))
		select {
		case <-ctx.Done():
			wait.Stop()
			return errs.New(errs.Unavailable, "NATS cannot be reached: %v", err)
		case <-wait.C:
		}
	}
}

// refused says whether trying again is of no use.
func refused(err error) bool {
	for _, is := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrBadTimeout} {
		if errors.Is(err, is) {
			return true
		}
	}
	// A file that cannot be read, a certificate that is not right: not of the network.
	s := err.Error()
	return strings.Contains(s, "no such file") || strings.Contains(s, "tls: ") || strings.Contains(s, "x509: ")
}

func (c *Conn) setUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.up, c.mu.down = context.WithCancel(c.life) //nolint:fatcontext // each is of life, none of the one before
}

func (c *Conn) disconnected(_ *nats.Conn, err error) {
	c.mu.Lock()
	c.mu.down()
	c.mu.Unlock()
	if c.life.Err() != nil {
		return
	}
	c.met.connected.Set(0)
	c.met.lost.Inc()
	c.logger.LogAttrs(c.life, slog.LevelWarn, "nats connection lost, trying again", slog.Any("err", err))
}

func (c *Conn) reconnected(nc *nats.Conn) {
	c.setUp()
	c.met.connected.Set(1)
	c.logger.LogAttrs(c.life, slog.LevelInfo, "nats connection is back", slog.String("server", nc.ConnectedServerName()))
}

// failed is told what no call answers for.
func (c *Conn) failed(_ *nats.Conn, sub *nats.Subscription, err error) {
	c.met.errors.Inc()
	attrs := []slog.Attr{slog.Any("err", err)}
	if sub != nil {
		attrs = append(attrs, slog.String("subject", sub.Subject))
	}
	c.logger.LogAttrs(c.life, slog.LevelWarn, "nats reports an error", attrs...)
}

// NATS is the connection itself.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// JetStream is JetStream over the connection.
func (c *Conn) JetStream() jetstream.JetStream { return c.js }

// Request returns a context for a request that is about to be sent: it ends after
// timeout, with ctx, and when the connection is lost, since no answer comes then.
func (c *Conn) Request(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	c.mu.Lock()
	up := c.mu.up
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	if up.Err() != nil {
		cancel()
	}
	stop := context.AfterFunc(up, cancel)
	return ctx, func() { stop(); cancel() }
}

// Done is closed when the connection was closed by Close.
func (c *Conn) Done() <-chan struct{} { return c.life.Done() }

// Close closes the connection. It may be called again.
func (c *Conn) Close() {
	c.end()
	c.nc.Close()
	c.met.connected.Set(0)
}
