package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/shardrpc"
	"github.com/millrace/millrace/storage/shard"
)

// The tests of this package run on shards that are here; with MILLRACE_TEST_SHARDS=remote
// on the same shards through another router, which owns them, and a real HTTP server; and
// with MILLRACE_TEST_SHARDS=moving so that this one owns them now and then only. The rows
// are the same either way.
var testShards = os.Getenv("MILLRACE_TEST_SHARDS")

// farOwners says that all shards are elsewhere.
type farOwners struct {
	shards int
	c      *shardrpc.Client
}

func (f *farOwners) Shards() int { return f.shards }
func (f *farOwners) Owner(id millrace.ShardID) (*shard.Shard, router.Remote) {
	return nil, f.c.Shard(id)
}

// moving are shards that are here most of the time.
type moving struct{ router.Local }

func (m moving) Owner(id millrace.ShardID) (*shard.Shard, router.Remote) {
	if time.Now().UnixMilli()%60 < 4 {
		return nil, nil
	}
	return m.Local.Owner(id)
}

// processes are the servers that own shards, behind one address.
var processes = struct {
	sync.Once
	url  string
	next atomic.Int64
	all  sync.Map // number → *shardrpc.Server
}{}

func serve() string {
	processes.Do(func() {
		processes.url = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			number, rest, _ := strings.Cut(r.URL.Path[1:], "/")
			s, ok := processes.all.Load(number)
			if !ok {
				http.NotFound(w, r)
				return
			}
			r.URL.Path = "/" + rest
			s.(*shardrpc.Server).ServeHTTP(w, r)
		})).URL
	})
	return processes.url
}

// newRouter is a router over shards, wherever they are said to be.
func newRouter(o router.Options, shards []*shard.Shard) *router.Router {
	return newRouterTo(testShards, o, shards)
}

// newRouterTo is a router over shards that are here ("") or elsewhere; both ends of it count
// what is read in the room that they are given, as the fronts and owners of a process do.
func newRouterTo(where string, o router.Options, shards []*shard.Shard) *router.Router {
	var owners router.Owners = router.Local(shards)
	if where == "moving" {
		owners = moving{router.Local(shards)}
	}
	o.Owners = owners
	if where == "" {
		return router.New(o)
	}
	quiet := slog.New(slog.DiscardHandler)
	back := o
	back.Registerer, back.Logger, back.Quotas = prometheus.NewRegistry(), quiet, nil // it is the front that charges
	owner := router.New(back)
	number := fmt.Sprint(processes.next.Add(1))
	s := shardrpc.NewServer(shardrpc.ServerOptions{
		Address: serve() + "/" + number, Owners: owners, Router: owner, Logger: quiet,
		Table: func(ctx context.Context, id millrace.TableID) (*millrace.Table, error) {
			return o.Catalog.TableByID(ctx, id)
		},
		Verify: func(string) error { return nil },
	})
	processes.all.Store(number, s)
	o.Owners = &farOwners{shards: len(shards), c: shardrpc.NewClient(shardrpc.ClientOptions{
		Transport: shardrpc.Processes{Owner: func(millrace.ShardID) *shardrpc.Server { return s }},
		HTTP:      shardrpc.HTTP{Client: http.DefaultClient, Token: func() (string, error) { return "t", nil }},
	})}
	front := router.New(o)
	front.Behind(owner)
	return front
}

// begun waits until reads of shards elsewhere have begun, where a test moves its clock by
// more than they may take for that.
func begun() {
	if testShards != "" {
		time.Sleep(time.Second)
	}
}
