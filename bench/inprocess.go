package main

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage"
)

// inProcess is the server without its doors: the same router and storage, called
// as the doors call them.
type inProcess struct {
	dir    string
	table  *millrace.Table
	router *router.Router
	worker *storage.Worker
}

type wallClock struct{}

// Now implements the clocks of router and storage.
func (wallClock) Now() time.Time { return time.Now() }

// oneTable is a catalog of one table, which has no partitions.
type oneTable struct {
	router.Catalog
	t *millrace.Table
}

// Table implements router.Catalog.
func (c oneTable) Table(_ context.Context, path millrace.TablePath) (*millrace.Table, error) {
	if path != c.t.Path {
		return nil, errs.New(errs.TableNotFound, "there is only table %s", c.t.Path)
	}
	return c.t, nil
}

// TableByID implements router.Catalog.
func (c oneTable) TableByID(_ context.Context, id millrace.TableID) (*millrace.Table, error) {
	if id != c.t.ID {
		return nil, errs.New(errs.TableNotFound, "there is only table %d", c.t.ID)
	}
	return c.t, nil
}

// unsigned signs nothing: no ticket leaves the process.
type unsigned struct{}

// Sign implements router.Signer.
func (unsigned) Sign(b []byte) (string, error) { return string(b), nil }

// Verify implements router.Signer.
func (unsigned) Verify(s string) ([]byte, error) { return []byte(s), nil }

func openInProcess(ctx context.Context, dir string, t *table, schema *arrow.Schema) (*inProcess, error) {
	in := &inProcess{dir: dir, table: describe(t, schema)}
	var err error
	in.worker, err = storage.Open(ctx, storage.Options{
		Dir: dir, Shards: catalog.DefaultShards, CacheBytes: cacheBytes, FS: vfs.Default, Clock: wallClock{},
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err == nil {
		err = in.worker.Err()
	}
	if err != nil {
		return nil, err
	}
	in.router = router.New(router.Options{
		Catalog: oneTable{t: in.table}, Owners: router.Local(in.worker.Shards()), Signer: unsigned{}, Clock: wallClock{},
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	return in, nil
}

// describe is the descriptor that the server's catalog would give the table.
func describe(t *table, schema *arrow.Schema) *millrace.Table {
	kinds := map[arrow.Type]millrace.Kind{arrow.INT64: millrace.BigInt, arrow.FLOAT64: millrace.Double, arrow.STRING: millrace.String, arrow.BINARY: millrace.Bytes}
	out := &millrace.Table{ID: 1, Path: millrace.TablePath{Database: database, Table: t.name}, Kind: millrace.LogTable, Buckets: t.buckets, Schema: &millrace.Schema{ID: 1}}
	for i, f := range schema.Fields() {
		c := millrace.Column{ID: millrace.ColumnID(i + 1), Name: f.Name, Type: millrace.DataType{Kind: kinds[f.Type.ID()]}, Nullable: f.Name != t.key}
		out.Schema.Columns = append(out.Schema.Columns, c)
		if f.Name == t.key {
			out.Kind, out.PrimaryKey, out.BucketKey = millrace.KeyedTable, []millrace.ColumnID{c.ID}, []millrace.ColumnID{c.ID}
		}
	}
	for i := range t.buckets {
		out.Shards = append(out.Shards, millrace.ShardID(i%catalog.DefaultShards))
	}
	return out
}

// writeClosedLoop has each writer wait until its batch is durable.
func (in *inProcess) writeClosedLoop(ctx context.Context, recs []arrow.RecordBatch, n int) error {
	mode, err := router.ParseMode("", in.table)
	if err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(n))
	eg, ctx := errgroup.WithContext(ctx)
	for w := range writers {
		eg.Go(func() error {
			for i := w; left.Add(-1) >= 0; i += writers {
				rows := row.Rows{Record: recs[i%len(recs)], Columns: in.table.Schema.Columns}
				if _, err := in.router.Write(ctx, &router.WriteRequest{Table: in.table, Mode: mode, Rows: rows}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return eg.Wait()
}

// discard closes it and removes its data, of which nobody has need.
func (in *inProcess) discard(ctx context.Context) {
	_ = in.worker.Close(ctx)
	_ = os.RemoveAll(in.dir)
}
