package keyvalue_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/catalog/catalogtest"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/keyvalue"
	"github.com/millrace/millrace/cluster/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is the boot clock of a test.
type clock struct{}

var began = time.Now()

func (clock) Boot() time.Duration { return time.Hour + time.Since(began) }

func connect(t testing.TB, servers *natstest.Servers) *cluster.Conn {
	t.Helper()
	conn, err := cluster.Connect(t.Context(), cluster.Options{URLs: servers.URLs(), Name: t.Name()})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// name is a cluster's name that no other test has.
func name(t testing.TB) string {
	n := strings.ToLower(strings.NewReplacer("/", "-", " ", "-", "#", "-").Replace(t.Name()))
	return n[max(0, len(n)-32):]
}

func openStore(t testing.TB, servers *natstest.Servers, opts keyvalue.Options) *keyvalue.Store {
	t.Helper()
	opts.Cluster, opts.Conn, opts.Replicas = name(t), connect(t, servers), servers.Len()
	if opts.Clock == nil {
		opts.Clock = clock{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := keyvalue.Open(ctx, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// The store on JetStream keeps the contract, on one server and on three.
func TestStore(t *testing.T) {
	for _, n := range []int{1, 3} {
		servers := natstest.StartT(t, n)
		t.Run(map[int]string{1: "one server", 3: "three servers"}[n], func(t *testing.T) {
			catalogtest.RunSuite(t, func(t *testing.T) catalogtest.Store {
				return catalogtest.Store{
					Open:   func() catalog.KV { return openStore(t, servers, keyvalue.Options{}) },
					Shared: true, TooLarge: 1 << 20,
				}
			})
		})
	}
}
