package stream_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// Servers are shared by the tests, each of which has a cluster id of its own.
var shared struct {
	sync.Mutex
	dir string
	by  map[int]*natstest.Servers
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "stream")
	if err != nil {
		panic(err)
	}
	shared.dir, shared.by = dir, map[int]*natstest.Servers{}
	code := m.Run()
	for _, s := range shared.by {
		s.Close()
	}
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// servers are one or three that all tests share.
func servers(t *testing.T, n int) *natstest.Servers {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if s := shared.by[n]; s != nil {
		return s
	}
	s, err := natstest.Start(t.Context(), natstest.Options{Servers: n, MaxStore: 1 << 40, Dir: filepath.Join(shared.dir, string(rune('0'+n)))})
	require.NoError(t, err)
	shared.by[n] = s
	return s
}

func newID(t *testing.T) (id wal.ClusterID) {
	t.Helper()
	_, err := rand.Read(id[:])
	require.NoError(t, err)
	return id
}

func connect(t *testing.T, urls string) *cluster.Conn {
	t.Helper()
	c, err := cluster.Connect(t.Context(), cluster.Options{URLs: urls, Name: t.Name()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func options(s *natstest.Servers, id wal.ClusterID) stream.Options {
	return stream.Options{ClusterID: id, Replicas: s.Len(), MaxBytes: 1 << 30, Clock: clock{}, Registerer: prometheus.NewRegistry()}
}

func streams(t *testing.T, urls string, opts stream.Options) *stream.Streams {
	t.Helper()
	s, err := stream.New(connect(t, urls), opts)
	require.NoError(t, err)
	return s
}

func open(t *testing.T, s *stream.Streams) *stream.Log {
	t.Helper()
	l, err := s.Shard(context.Background(), 0)
	require.NoError(t, err)
	return l
}

// A log on NATS keeps the contract of every log, on one server and on three.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(map[int]string{1: "R1", 3: "R3"}[n], func(t *testing.T) {
			t.Parallel()
			srv := servers(t, n)
			waltest.RunSuite(t, func(t *testing.T) waltest.Opener {
				id := newID(t)
				return func() waltest.Session {
					c, err := cluster.Connect(context.Background(), cluster.Options{URLs: srv.URLs()})
					require.NoError(t, err)
					s, err := stream.New(c, options(srv, id))
					require.NoError(t, err)
					logs := make([]wal.Log, waltest.Shards)
					for i := range logs {
						logs[i], err = s.Shard(context.Background(), millrace.ShardID(i))
						require.NoError(t, err)
					}
					return waltest.Session{Log: func(id millrace.ShardID) wal.Log { return logs[id] }, Close: c.Close}
				}
			})
		})
	}
}

// value is a counter or gauge of the registry of options, of the label's value if one is given.
func value(t *testing.T, opts stream.Options, name, label string) float64 {
	t.Helper()
	families, err := opts.Registerer.(*prometheus.Registry).Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}
