package tier_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/tier/iceberg"
)

func inIceberg(t *testing.T) (*node, objstore.Store) {
	store, err := objstore.Open(t.Context(), "file:///lake", objstore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	format := iceberg.New(iceberg.Options{Store: store, Cluster: [16]byte{7}, Clock: storagetest.NewClock(), Logger: slog.New(slog.DiscardHandler)})
	return newNode(t, func(n *node) { n.format = format }), store
}

// A table that is not tiered any more may get a column that the lake cannot hold. It is
// read and its partitions are dropped as before, whether it has a lake table or none.
func TestColumnTheLakeCannotHold(t *testing.T) {
	for _, first := range []bool{true, false} {
		n, _ := inIceberg(t)
		lt := n.table("t", "k BIGINT, dt STRING", func(s *catalog.Spec) { s.PartitionBy = []string{"dt"} })
		if first {
			n.must(lt, router.Append, `{"k":1,"dt":"mo"} {"k":2,"dt":"tu"}`)
			n.tier(lt)
		}
		lt = n.alter(lt, `[{"op":"set_properties","properties":{"table.datalake.enabled":"false"}},{"op":"add_column","column":{"name":"at","type":"TIMESTAMP(9)"}}]`)
		n.must(lt, router.Append, `{"k":3,"dt":"mo"} {"k":4,"dt":"tu"}`)
		require.Equal(t, n.rows(lt, "hot"), n.rows(lt, "union"))
		mo, err := n.cat.Partition(context.Background(), lt.ID, "dt=mo")
		require.NoError(t, err)
		require.NoError(t, n.dropPartition(lt, mo))
		require.NotContains(t, n.rows(lt, "lake"), `{"at":null,"dt":"mo","k":1}`)
		n.must(lt, router.Append, `{"k":5,"dt":"mo"}`)
		require.Equal(t, n.rows(lt, "hot"), n.rows(lt, "union"))
	}
}

// A file of the lake that was lost is damage to who reads it, and the status tells of it.
func TestFileOfTheLakeLost(t *testing.T) {
	ctx := t.Context()
	n, store := inIceberg(t)
	lt := n.table("t", "k BIGINT", nil)
	n.must(lt, router.Append, `{"k":1}`)
	n.tier(lt)
	var lost []string
	require.NoError(t, store.List(ctx, "", func(i objstore.Info) error {
		if strings.HasSuffix(i.Key, ".parquet") {
			lost = append(lost, i.Key)
		}
		return nil
	}))
	require.Len(t, lost, 1)
	require.NoError(t, store.Remove(ctx, lost...))
	p, err := n.r.Plan(ctx, lt.Path.String(), &router.ReadRequest{}, router.Scan)
	require.NoError(t, err)
	rd := n.r.Open(p)
	_, err = rd.Next(ctx, time.Second)
	require.True(t, errs.Is(err, errs.CorruptData), err)
	require.NoError(t, rd.Close())
	s, err := n.m.Status(ctx, lt)
	require.NoError(t, err)
	require.Equal(t, lake.StateFailing, s.State)
	require.Contains(t, s.Failure.Detail, lost[0])
}
