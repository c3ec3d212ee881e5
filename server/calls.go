package server

import (
	"context"
	"net"
	"net/http"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/subject"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/shardrpc"
	"github.com/millrace/millrace/storage/shard"
)

const (
	// signInternal is what the tokens are for that processes show each other, and
	// internalLife how long one is good: long, since clocks of machines may be hours apart.
	signInternal = "token of the cluster's processes"
	internalLife = auth.MaxLife
	// Connections to other processes.
	dialTime    = 3 * time.Second
	idlePerPeer = 32
)

// openCalls makes the router of a process of a cluster: for shards that are elsewhere it
// calls their owners, and it answers calls for those that are here.
func (s *Server) openCalls(ctx context.Context, o router.Options) error {
	signer := s.signer(ctx, signInternal, internalLife)
	transport := subject.New(s.member.conn, cluster.NamesOf(s.catalog.ClusterID()), subject.Options{Logger: s.log, Registerer: s.metrics.registry})
	s.onStop("calls", func(context.Context) error { transport.Close(); return nil })
	dialer := &net.Dialer{Timeout: dialTime}
	s.member.away = shardrpc.NewClient(shardrpc.ClientOptions{
		Transport: transport,
		HTTP: shardrpc.HTTP{
			Client: &http.Client{Transport: &http.Transport{
				DialContext: dialer.DialContext, DialTLSContext: s.dialTLS(dialer), MaxIdleConnsPerHost: idlePerPeer, IdleConnTimeout: time.Minute,
				DisableCompression: true, WriteBufferSize: 256 << 10, ReadBufferSize: 256 << 10,
			}},
			Token: func() (string, error) { return signer.Sign([]byte(s.member.name)) },
		},
		Registerer: s.metrics.registry,
	})
	o.Owners = owners{s}
	s.router = router.New(o)
	if s.worker == nil {
		return nil
	}
	answering := shardrpc.NewServer(shardrpc.ServerOptions{
		Address: s.scheme() + s.advertisedHTTP(), Owners: owners{s}, Router: s.router, Table: s.catalog.TableByID,
		Verify: func(token string) error { _, err := signer.Verify(token); return err },
		Logger: s.log, Registerer: s.metrics.registry, Tracer: s.tracer,
	})
	s.front.serveInternal(answering)
	s.member.host = newShardHost(s, func(id millrace.ShardID) (func(), error) {
		return transport.Serve(id, func(ctx context.Context, id millrace.ShardID, request []byte) []byte {
			return answering.Answer(auth.With(ctx, auth.System), id, request) // who asked has checked his caller
		})
	})
	return nil
}

// owners finds the owners of shards; it implements router.Owners.
type owners struct{ s *Server }

// Shards implements router.Owners.
func (o owners) Shards() int { return o.s.catalog.Shards() }

// Owner implements router.Owners.
func (o owners) Owner(id millrace.ShardID) (*shard.Shard, router.Remote) {
	if o.s.worker != nil {
		if sh := o.s.worker.Shard(id); sh != nil {
			return sh, nil
		}
	}
	return nil, o.s.member.away.Shard(id)
}
