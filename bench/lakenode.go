package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/tier"
	"github.com/millrace/millrace/tier/iceberg"
)

// lakeNode is the server without its doors and with a lake in files: the same catalog,
// router, storage and tiering. Nothing is tiered before it is asked for.
type lakeNode struct {
	dir    string
	cat    *catalog.Catalog
	worker *storage.Worker
	router *router.Router
	tier   *tier.Manager
	store  *prometheus.Registry // what the object store counts
}

func openLakeNode(ctx context.Context, dir string) (*lakeNode, error) {
	n := &lakeNode{dir: dir, store: prometheus.NewRegistry()}
	quiet, clock := slog.New(slog.DiscardHandler), wallClock{}
	var err error
	if err = os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	n.cat, err = catalog.Open(ctx, catalog.Options{Dir: filepath.Join(dir, "catalog"), FS: vfs.Default, Clock: time.Now, Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err = n.cat.CreateDatabase(ctx, database, ""); err != nil {
		return nil, err
	}
	n.worker, err = storage.Open(ctx, storage.Options{
		Dir: filepath.Join(dir, "data"), Cluster: n.cat.ClusterID(), Shards: n.cat.Shards(), CacheBytes: cacheBytes,
		FS: vfs.Default, Clock: clock, Logger: quiet, Registerer: prometheus.NewRegistry(),
	})
	if err == nil {
		err = n.worker.Err()
	}
	if err != nil {
		return nil, err
	}
	store, err := objstore.Open(ctx, "file://"+filepath.Join(dir, "lake"), objstore.Options{Registerer: n.store})
	if err != nil {
		return nil, err
	}
	o := tier.Options{
		Format:  iceberg.New(iceberg.Options{Store: store, Cluster: n.cat.ClusterID(), Clock: clock, Logger: quiet}),
		Catalog: n.cat, Clock: clock, Logger: quiet, Registerer: prometheus.NewRegistry(),
	}
	for _, s := range n.worker.Shards() {
		o.Shards = append(o.Shards, s)
	}
	n.tier = tier.New(ctx, o)
	n.router = router.New(router.Options{
		Catalog: n.cat, Owners: router.Local(n.worker.Shards()), Signer: unsigned{}, Lake: n.tier, Clock: clock,
		Logger: quiet, Registerer: prometheus.NewRegistry(),
	})
	n.tier.Attach(n.router)
	return n, nil
}

// discard closes it and removes its data, of which nobody has need.
func (n *lakeNode) discard(ctx context.Context) {
	_ = n.tier.Close()
	_ = n.worker.Close(ctx)
	_ = n.cat.Close()
	_ = os.RemoveAll(n.dir)
}

// lakeProperties are those of tables that are tiered when it is asked for, and left as
// that made them.
func lakeProperties() map[string]string {
	return map[string]string{
		"table.datalake.enabled": "true", "table.datalake.freshness": "1h", "table.datalake.auto-compaction": "false",
		"table.datalake.expire-snapshots": "false",
	}
}

// create makes a table that is tiered.
func (n *lakeNode) create(ctx context.Context, t *table) (*millrace.Table, error) {
	spec := catalog.Spec{Name: t.name, Buckets: &t.buckets, Properties: lakeProperties()}
	for c := range strings.SplitSeq(t.columns, ", ") {
		name, typ, _ := strings.Cut(c, " ")
		spec.Columns = append(spec.Columns, catalog.ColumnSpec{Name: name, Type: typ})
	}
	if t.key != "" {
		spec.PrimaryKey = []string{t.key}
	}
	out, _, err := n.cat.CreateTable(ctx, database, spec, false)
	return out, err
}

// write writes rows, in batches taken in turn.
func (n *lakeNode) write(ctx context.Context, t *millrace.Table, recs []arrow.RecordBatch, rows int) error {
	mode, err := router.ParseMode("", t)
	if err != nil {
		return err
	}
	for i := 0; rows > 0; i++ {
		rec := recs[i%len(recs)]
		rec = rec.NewSlice(0, min(int64(rows), rec.NumRows()))
		rows -= int(rec.NumRows())
		_, err := n.router.Write(ctx, &router.WriteRequest{Table: t, Mode: mode, Rows: row.Rows{Record: rec, Columns: t.Schema.Columns}})
		rec.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// tierNow takes a table to the lake, which must take as many rows.
func (n *lakeNode) tierNow(ctx context.Context, t *millrace.Table, rows int) (lake.Status, error) {
	s, err := n.tier.Tier(ctx, t)
	if err == nil && s.Tiered != int64(rows) {
		err = fmt.Errorf("%d rows of table %s were tiered, of %d", s.Tiered, t.Path, rows)
	}
	return s, err
}

// read reads a table as clients do, and counts its rows.
func (n *lakeNode) read(ctx context.Context, t *millrace.Table, columns []string) (rows int64, err error) {
	p, err := n.router.Plan(ctx, t.Path.String(), &router.ReadRequest{Columns: columns}, router.Scan)
	if err != nil {
		return 0, err
	}
	rd := n.router.Open(p)
	defer func() { err = errors.Join(err, rd.Close()) }()
	for {
		c, err := rd.Next(ctx, 0)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rec, err := c.Record()
		if err != nil {
			return rows, err
		}
		rows += rec.NumRows()
		rec.Release()
		c.Release()
	}
}

// files are the paths of the Parquet files of a table's newest snapshot.
func (n *lakeNode) files(ctx context.Context, t *millrace.Table) ([]string, error) {
	s, err := n.tier.Newest(ctx, t)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("table %s is not in the lake", t.Path)
	}
	all, err := s.Files(ctx, lake.Scope{})
	out := make([]string, len(all))
	for i, f := range all {
		out[i] = strings.TrimPrefix(f.Path, "file://")
	}
	return out, err
}

// bytesRead is what the object store has read.
func (n *lakeNode) bytesRead() (float64, error) {
	all, err := n.store.Gather()
	for _, f := range all {
		if f.GetName() == "millrace_objstore_read_bytes_total" {
			return f.GetMetric()[0].GetCounter().GetValue(), nil
		}
	}
	return 0, err
}
