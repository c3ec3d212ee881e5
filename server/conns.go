package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/millrace/millrace/auth"
)

const (
	// maxConnections is how many connections a port holds, unless a setting or the limit
	// of open files says otherwise.
	maxConnections = 8192
	// filesForData are left to everything that is not a connection of a client.
	filesForData = 2048
	minForPort   = 64
)

// connections is how many connections each port may hold: as set, or as many as the limit
// of open files leaves; short says that this is less than it should be.
func connections(set int) (most int, short bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return wanted(set), false
	}
	return connectionsWithin(set, limit.Cur)
}

// wanted is how many connections a port should hold.
func wanted(set int) int {
	if set > 0 {
		return set
	}
	return maxConnections
}

// connectionsWithin is how many of them a limit of open files leaves.
func connectionsWithin(set int, files uint64) (most int, short bool) {
	most = wanted(set)
	left := minForPort
	if files > filesForData {
		left = max(minForPort, int(min((files-filesForData)/2, 1<<30)))
	}
	return min(most, left), left < most
}

// port is a listener that holds a bounded number of connections. When it is full and one
// more comes, the connection is closed that has been without work for longest: one that
// has never asked for anything before one that has. While all are at work the new one is
// closed. So who opens connections and is silent takes room from his like only. A call of
// gRPC is work when its caller is known.
type port struct {
	net.Listener

	most int
	open prometheus.Gauge
	shut prometheus.Counter

	mu    sync.Mutex
	held  int
	fresh *list.List // of *conn that have not asked for anything yet, the oldest first
	idle  *list.List // of *conn whose work has ended, the oldest first
}

// ports are the metrics of all ports.
type ports struct {
	open *prometheus.GaugeVec
	shut *prometheus.CounterVec
}

func newPorts(r prometheus.Registerer) *ports {
	p := &ports{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_server_connections", Help: "Connections of clients that are open."}, []string{"port"}),
		shut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_server_connections_closed_for_room_total", Help: "Connections without work, or new ones where all were at work, that were closed since the port was full.",
		}, []string{"port"}),
	}
	r.MustRegister(p.open, p.shut)
	return p
}

func (p *ports) bound(name string, l net.Listener, most int) *port {
	return &port{
		Listener: l, most: most, open: p.open.WithLabelValues(name), shut: p.shut.WithLabelValues(name),
		fresh: list.New(), idle: list.New(),
	}
}

// conn is a connection of a port.
type conn struct {
	net.Conn

	p *port
	// Under p.mu:
	at     *list.Element // its place among those without work; nil while it is at work
	in     *list.List    // the list of that place
	work   int
	closed bool
}

// connAddr is the address of a client, by which calls of gRPC find their connection.
type connAddr struct {
	net.Addr

	c *conn
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

// Accept implements net.Listener.
func (p *port) Accept() (net.Conn, error) {
	for {
		inner, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, p: p}
		victim, ok := p.enter(c)
		if victim != nil {
			p.shut.Inc()
			_ = victim.Close() // its owner notices
		}
		if ok {
			return c, nil
		}
		p.shut.Inc()
		_ = inner.Close() // it was not served yet
	}
}

// enter takes a connection in, if need be in the place of another.
func (p *port) enter(c *conn) (victim *conn, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held >= p.most {
		first := p.fresh.Front()
		if first == nil {
			first = p.idle.Front()
		}
		if first == nil {
			return nil, false
		}
		victim = first.Value.(*conn)
		p.leaveLocked(victim)
	}
	p.held++
	p.open.Set(float64(p.held))
	c.in = p.fresh
	c.at = p.fresh.PushBack(c)
	return victim, true
}

// leaveLocked lets go of a connection. REQUIRES: p.mu.
func (p *port) leaveLocked(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	p.held--
	p.open.Set(float64(p.held))
	c.restLocked(nil)
}

// restLocked puts a connection at the end of a list, nil for none. REQUIRES: p.mu.
func (c *conn) restLocked(in *list.List) {
	if c.at != nil {
		c.in.Remove(c.at)
	}
	c.at, c.in = nil, in
	if in != nil {
		c.at = in.PushBack(c)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.p.mu.Lock()
	c.p.leaveLocked(c)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// begin and end enclose work for the client.
func (c *conn) begin() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.work++; c.work == 1 && !c.closed {
		c.restLocked(nil)
	}
}

func (c *conn) end() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.work--; c.work == 0 && !c.closed {
		c.restLocked(c.p.idle)
	}
}

// httpState follows the connections of an HTTP server.
func httpState(nc net.Conn, state http.ConnState) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	switch {
	case c.closed:
	case state == http.StateActive:
		c.restLocked(nil)
	case state == http.StateIdle:
		c.restLocked(c.p.idle)
	case state == http.StateNew, state == http.StateHijacked, state == http.StateClosed: // as it came; Close lets go of it
	}
}

// connOf is the connection of a call of gRPC; nil where it is not one of a port.
func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(connAddr); ok {
			return a.c
		}
	}
	return nil
}

// followCalls are the options by which a gRPC server tells of its calls; they stand behind
// those that find out who calls. A call of nobody, as of grpc.health.v1, is no work.
func followCalls() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if c := connOf(ss.Context()); c != nil && auth.Of(ss.Context()) != nil {
				c.begin()
				defer c.end()
			}
			return handler(srv, ss)
		}),
	}
}
