package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/rest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that a long poll whose time is over, or whose server drains, while a large chunk waits
// for room answers no position behind rows that it does not have; and that one that has
// nothing to read is not refused while others have all the room.
func TestPollWithoutRoom(t *testing.T) {
	ctx, fs, quiet := context.Background(), vfs.NewMem(), slog.New(slog.DiscardHandler)
	n := &node{t: t, clock: storagetest.NewClock()}
	cat, err := catalog.Open(ctx, catalog.Options{Dir: "catalog", Shards: 1, FS: fs, Clock: n.clock.Now, Logger: quiet})
	require.NoError(t, err)
	n.w, err = storage.Open(ctx, storage.Options{Dir: "data", Shards: 1, FS: fs, Clock: n.clock, Logger: quiet, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, n.w.Close(ctx))
		require.NoError(t, cat.Close())
	})
	room := admit.New(admit.Sent, 6<<20, time.Now, prometheus.NewRegistry())
	r := router.New(router.Options{Catalog: cat, Room: room, Owners: router.Local(n.w.Shards()), Signer: noSigner{}, Clock: n.clock, Logger: quiet, Registerer: prometheus.NewRegistry()})
	serve := func() chan struct{} {
		draining := make(chan struct{})
		n.api = rest.New(rest.Options{Catalog: cat, Router: r, Clock: n.clock, Logger: quiet, Draining: draining})
		return draining
	}
	serve()
	const table = "/v1/databases/d/tables/t"
	n.must("POST", "/v1/databases", `{"name":"d"}`)
	n.must("POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"k","type":"BIGINT"},{"name":"v","type":"STRING"}]}`)
	var body strings.Builder
	rng, text := rand.New(rand.NewPCG(1, 2)), make([]byte, 20000) // which does not compress
	const total = 400
	for k := range total {
		for i := range text {
			text[i] = byte('0' + rng.IntN(43))
		}
		fmt.Fprintf(&body, `,{"k":%d,"v":"%s"}`, k, text)
	}
	n.must("POST", table+"/records", `{"rows":[`+body.String()[1:]+`]}`)

	full := room.Hold()
	require.NoError(t, full.Set(ctx, room.Limit(), 0))
	w := n.do("GET", table+"/changelog?from=latest&columns=k&wait=50ms", "")
	require.Equal(t, 200, w.Code, "%s", w.Body)
	full.Done()

	poll := func(from, more string) (keys []int, next string) {
		w := n.do("GET", table+"/changelog?columns=k&from="+from+more, "")
		if w.Code != 200 { // no position, so the client asks again
			return nil, from
		}
		var a struct {
			Rows []struct{ K int }
			Next string
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a), "%s", w.Body)
		for _, row := range a.Rows {
			keys = append(keys, row.K)
		}
		return keys, a.Next
	}
	other := room.Hold()
	for _, how := range []string{"deadline", "drain"} {
		require.NoError(t, other.Set(ctx, 512<<10, 0))
		more := "&timeout=500ms"
		if how == "drain" {
			more = "&timeout=50s"
			draining, stop := serve(), make(chan struct{})
			go func() {
				defer close(draining)
				for !room.Contended() {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
				}
			}()
			defer close(stop)
		}
		keys, next := poll("earliest", more)
		other.Done()
		serve()
		for len(keys) < total {
			var got []int
			got, next = poll(next, "&timeout=50s&wait=10s")
			require.NotEmpty(t, got, how)
			keys = append(keys, got...)
		}
		for i, k := range keys {
			require.Equal(t, i, k, how)
		}
	}
}
