package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/errs"
)

// smallCluster is a cluster of one process with two shards, and its NATS.
type smallCluster struct {
	nats  *natstest.Servers
	place string
}

func (c *smallCluster) set(dir string) func(*Settings) {
	return func(s *Settings) {
		s.DataDir, s.NATSURL, s.RemoteURI, s.LakeURI = dir, c.nats.URLs(), "file://"+c.place+"/remote", "file://"+c.place+"/lake"
		s.Shards, s.LogMaxSize, s.MetricsAddr = 2, "64MiB", ""
	}
}

func (c *smallCluster) settings(t *testing.T, dir string) *Settings {
	t.Helper()
	s := testSettings(t, dir)
	c.set(dir)(s)
	return s
}

// wipe makes NATS lose everything.
func (c *smallCluster) wipe(t *testing.T) {
	t.Helper()
	n := c.nats.Server(0)
	n.Kill()
	require.NoError(t, n.RemoveStore())
	require.NoError(t, n.Start())
	require.NoError(t, c.nats.Ready(t.Context()))
}

// rows are those of the table of the test, one a line.
func rows(t *testing.T, r *running) string {
	t.Helper()
	var answer struct{ Rows json.RawMessage }
	got := r.call(t, "POST", "/v1/sql", `{"sql":"SELECT id, v FROM d.t ORDER BY id"}`)
	require.NoError(t, json.Unmarshal([]byte(got), &answer))
	return string(answer.Rows)
}

// Shows that a cluster whose NATS lost everything makes no new one of itself; that a
// restore which ended anywhere is begun again, and no process starts on half of it; that
// everything is there then; and what a restore refuses: a NATS that has the cluster, or
// streams of it, processes that run, another cluster's data directory.
func TestRestoreCluster(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := &smallCluster{nats: natstest.StartT(t, 1), place: t.TempDir()}
	dir := t.TempDir()
	r := startServerWith(t, dir, c.set(dir))
	require.Contains(t, r.call(t, "POST", "/v1/databases", `{"name":"d"}`), `"d"`)
	require.Contains(t, r.call(t, "POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"id","type":"BIGINT","nullable":false},{"name":"v","type":"STRING"}],"primary_key":["id"]}`), `"t"`)
	for i := range 20 {
		require.Contains(t, r.call(t, "POST", "/v1/databases/d/tables/t/records", fmt.Sprintf(`{"rows":[{"id":%d,"v":"x%d"}]}`, i, i)), "end")
	}
	before := rows(t, r)
	require.Contains(t, before, "x19")
	refused := func(what, dir, says string) {
		t.Helper()
		_, err := RestoreCluster(t.Context(), c.settings(t, dir), true, log)
		require.Truef(t, errs.Is(err, errs.InvalidRequest) && strings.Contains(err.Error(), says), "%s: %v", what, err)
	}
	refused("it is well", t.TempDir(), "has a catalog")
	r.stop(t)

	// What is there of the cluster, apart from its catalog.
	conn, err := cluster.Connect(t.Context(), cluster.Options{URLs: c.nats.URLs()})
	require.NoError(t, err)
	require.NoError(t, conn.JetStream().DeleteStream(t.Context(), cluster.CatalogStream("millrace")))
	conn.Close()
	refused("logs are there", t.TempDir(), "records")
	c.wipe(t)
	for what, in := range map[string]string{"its data directory": dir, "an empty one": t.TempDir()} {
		err := Run(t.Context(), Options{Settings: c.settings(t, in), Log: &strings.Builder{}})
		require.ErrorContains(t, err, "millrace restore", what)
	}
	other := t.TempDir()
	require.NoError(t, guardCluster(other, [16]byte{1}))
	_, err = RestoreCluster(t.Context(), c.settings(t, other), true, log)
	require.ErrorContains(t, err, "another data directory")

	// Each attempt ends one step later than the one before.
	place, told := t.TempDir(), errors.New("ended here")
	var out *Restored
	for _, last := range []string{"marked", "published", "begun", "imported"} {
		out, err = restoreCluster(t.Context(), c.settings(t, place), true, log, func(step string) error {
			if step == last {
				return told
			}
			return nil
		})
		require.ErrorIs(t, err, told)
		if last != "imported" {
			err = Run(t.Context(), Options{Settings: c.settings(t, t.TempDir()), Log: &strings.Builder{}})
			require.ErrorContains(t, err, "import", "after %s", last)
		}
	}
	require.Equal(t, 1, out.Tables)
	require.Len(t, out.Points, 2)
	for i, p := range out.Points {
		require.Equal(t, millrace.ShardID(i), p.Shard)
		require.Less(t, time.Since(p.Checkpoint), 10*time.Minute)
	}
	refused("it is done", t.TempDir(), "has a catalog")

	r = startServerWith(t, dir, c.set(dir)) // with the files of before
	require.Equal(t, before, rows(t, r))
	require.Contains(t, r.call(t, "POST", "/v1/databases/d/tables/t/records", `{"rows":[{"id":3,"v":"after"}]}`), "end")
	require.Contains(t, rows(t, r), "after")
	after := rows(t, r)
	r.stop(t)
	empty := t.TempDir()
	r = startServerWith(t, empty, c.set(empty))
	require.Equal(t, after, rows(t, r))
	r.stop(t)
}
