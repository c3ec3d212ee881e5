package keyvalue_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/keyvalue"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/cluster/owner/ownertest"
)

func openKeys(t testing.TB, servers *natstest.Servers) *keyvalue.Keys {
	t.Helper()
	k, err := keyvalue.OpenKeys(t.Context(), keyvalue.KeysOptions{
		Bucket: "mr_" + name(t), Replicas: servers.Len(), Conn: connect(t, servers), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return k
}

// Keys in JetStream keep the contract, on one server and on three.
func TestKeys(t *testing.T) {
	for _, n := range []int{1, 3} {
		servers := natstest.StartT(t, n)
		t.Run(map[int]string{1: "one server", 3: "three servers"}[n], func(t *testing.T) {
			ownertest.RunSuite(t, func(t *testing.T) func() owner.Keys {
				return func() owner.Keys { return openKeys(t, servers) }
			})
		})
	}
}

// A key that a server does not have yet which is behind is not taken for gone: a live
// worker would lose its shards to others. One that is gone is told of.
func TestWatchOfAServerThatIsBehind(t *testing.T) {
	keys := openKeys(t, natstest.StartT(t, 1))
	revision, err := keys.Create(t.Context(), "k.a", []byte("0"))
	require.NoError(t, err)
	gone, err := keyvalue.ToldGone(t.Context(), keys, "k.a", revision)
	require.NoError(t, err)
	require.False(t, gone)
	require.NoError(t, keys.Delete(t.Context(), "k.a", revision))
	for _, key := range []string{"k.a", "k.never"} {
		gone, err = keyvalue.ToldGone(t.Context(), keys, key, revision)
		require.NoError(t, err)
		require.True(t, gone, key)
	}
}

// Changes and watches go on over kills of the servers: what was answered is there, and a
// watcher ends with the same picture.
func TestKeysOverKills(t *testing.T) {
	servers := natstest.StartT(t, 1)
	keys, watching := openKeys(t, servers), openKeys(t, servers)
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan owner.Event, 10_000), make(chan error, 1)
	go func() {
		done <- watching.Watch(ctx, "k.", func(e owner.Event) error {
			events <- e
			return nil
		})
	}()
	revision, err := keys.Create(ctx, "k.0", []byte("0"))
	require.NoError(t, err)
	gone, err := keys.Create(ctx, "k.gone", []byte("0"))
	require.NoError(t, err)
	for n := range 3 {
		killed := make(chan error, 1)
		go func() {
			servers.Server(0).Kill()
			time.Sleep(50 * time.Millisecond)
			killed <- servers.Server(0).Start()
		}()
		for i := range 20 {
			next, err := keys.Update(ctx, "k.0", fmt.Appendf(nil, "%d %d", n, i), revision)
			require.NoError(t, err)
			require.Greater(t, next, revision)
			revision = next
		}
		require.NoError(t, <-killed)
	}
	require.NoError(t, keys.Delete(ctx, "k.gone", gone))
	e, ok, err := keys.Get(ctx, "k.0")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, owner.Entry{Key: "k.0", Value: []byte("2 19"), Revision: revision}, e)

	picture, deadline := map[string]uint64{}, time.After(time.Minute)
	for picture["k.0"] != revision || picture["k.gone"] != 0 {
		select {
		case e := <-events:
			switch e.Kind {
			case owner.Put:
				picture[e.Key] = e.Revision
			case owner.Deleted:
				delete(picture, e.Key)
			default:
			}
		case <-deadline:
			require.FailNow(t, "the watcher is behind", "%v", picture)
		}
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
