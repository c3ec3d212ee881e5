package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/auth"
)

// client is one connection, byte by byte.
type client struct {
	net.Conn

	in *bufio.Reader
}

func connect(t *testing.T, address string) *client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return &client{c, bufio.NewReader(c)}
}

func (c *client) get(path string) error {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// ended waits until the server closes the connection.
func (c *client) ended(t *testing.T) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := c.in.ReadByte()
	require.Error(t, err)
	ne, ok := errors.AsType[net.Error](err)
	require.False(t, ok && ne.Timeout(), "the server keeps a connection that it should have closed")
}

func boundPort(t *testing.T, most int) (*port, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return newPorts(prometheus.NewRegistry()).bound("http", l, most), l.Addr().String()
}

// A full port makes room: silent connections go before those that have asked something,
// the oldest first, and what is at work is never closed for a new one.
func TestPortMakesRoom(t *testing.T) {
	p, address := boundPort(t, 3)
	began, finish := make(chan struct{}, 8), make(chan struct{})
	srv := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/work" {
			began <- struct{}{}
			<-finish
		}
		fmt.Fprint(w, "ok")
	}), slog.New(slog.DiscardHandler))
	go func() { _ = srv.Serve(p) }()
	t.Cleanup(func() { srv.Close() })
	held := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.held == n }, time.Minute, time.Millisecond)
	}
	rests := func(fresh, idle int) {
		t.Helper()
		require.Eventually(t, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.fresh.Len() == fresh && p.idle.Len() == idle
		}, time.Minute, time.Millisecond)
	}

	user := connect(t, address)
	require.NoError(t, user.get("/"))
	rests(0, 1)
	silent := connect(t, address)
	rests(1, 1)
	second := connect(t, address)
	rests(2, 1)
	third := connect(t, address) // the port is full: the oldest silent one goes
	silent.ended(t)
	// An answer is read before its connection rests, and who rests for longest goes first.
	for i, c := range []*client{user, second, third} {
		require.NoError(t, c.get("/"))
		rests(2-i, 1+i)
	}
	fourth := connect(t, address) // of those that have asked the longest idle
	user.ended(t)
	require.NoError(t, fourth.get("/"))
	held(3)

	results := make(chan error, 3)
	for _, c := range []*client{second, third, fourth} {
		go func() { results <- c.get("/work") }()
		<-began
	}
	rests(0, 0)
	connect(t, address).ended(t) // all work: the new one goes
	close(finish)
	for range 3 {
		require.NoError(t, <-results)
	}
	rests(0, 3)
	require.NoError(t, connect(t, address).get("/"))
}

// The connections of gRPC are at work while a call of a known caller is under way; health,
// which asks for no caller, is no work.
func TestPortOfCalls(t *testing.T) {
	p, address := boundPort(t, 2)
	const worker = "worker" // the agent by which the caller is known
	known := grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if md, _ := metadata.FromIncomingContext(ss.Context()); slices.Contains(md.Get(worker), worker) {
			ss = calledBy{ss, auth.With(ss.Context(), auth.NewPrincipal("ann", nil, time.Time{}))}
		}
		return handler(srv, ss)
	})
	srv := grpc.NewServer(append([]grpc.ServerOption{known}, followCalls()...)...)
	grpc_health_v1.RegisterHealthServer(srv, grpchealth.NewServer())
	go func() { _ = srv.Serve(p) }()
	t.Cleanup(srv.Stop)
	watch := func(ctx context.Context) grpc_health_v1.Health_WatchClient {
		cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { cc.Close() })
		stream, err := grpc_health_v1.NewHealthClient(cc).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		return stream
	}
	working, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), worker, worker))
	defer cancel()
	first := watch(working)
	nobody := watch(t.Context())
	second := watch(working) // takes the room of who is nobody
	_, err := nobody.Recv()
	require.Error(t, err)
	connect(t, address).ended(t) // all work: the new one goes
	require.NoError(t, first.Context().Err())
	require.NoError(t, second.Context().Err())
	cancel()
	require.Eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.idle.Len() == 2 }, time.Minute, time.Millisecond)
	watch(t.Context())
}

// calledBy is a stream of which it is known who calls.
type calledBy struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // the stream's own, as gRPC has it
}

func (c calledBy) Context() context.Context { return c.ctx }

// The limit of open files bounds connections, and is complained of.
func TestConnectionsOfALimit(t *testing.T) {
	most, _ := connections(100)
	require.Equal(t, 100, most)
	most, _ = connections(0)
	require.LessOrEqual(t, most, maxConnections)
	most, short := connections(1 << 20)
	require.Less(t, most, 1<<20)
	require.True(t, short)
}
