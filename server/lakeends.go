package server

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/tier/iceberg"
)

// lakeEndTime is how long the lake has to say how far it has one table.
const lakeEndTime = 30 * time.Second

// AskLake says whether a command that brings logs back asks the lake how far it is; else
// the lake must have no more than comes back, or be lost for good.
type AskLake bool

// lakeEnds asks the lake how far it has each bucket, by shard: what brings logs back that
// end sooner must give no offset to another record. A lake that does not say so of a table,
// also since its metadata is damaged, is an error: it may be mended later.
func lakeEnds(ctx context.Context, s *Settings, ask AskLake, c *catalog.Catalog, log *slog.Logger) (map[millrace.ShardID][]shard.InLake, error) {
	out := map[millrace.ShardID][]shard.InLake{}
	if !ask {
		return out, nil
	}
	var format *iceberg.Format
	for _, t := range c.AllTables() {
		if t.Options.Lake == nil {
			continue
		}
		if format == nil {
			f, end, err := s.lakeOffline(ctx, c.ClusterID(), log)
			if f == nil || err != nil {
				return nil, err
			}
			defer end()
			format = f
		}
		if err := tableEnds(ctx, s, format, t, c, out, log); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lakeOffline is the lake of a server that does not run; nil when there is none.
func (s *Settings) lakeOffline(ctx context.Context, cluster [16]byte, log *slog.Logger) (_ *iceberg.Format, end func(), err error) {
	dir, err := filepath.Abs(s.DataDir)
	if err != nil {
		return nil, nil, fmt.Errorf("data directory: %w", err)
	}
	store, err := objstore.Open(ctx, strings.Replace(s.LakeURI, dataDirMark, dir, 1), objstore.Options{
		S3: objstore.S3{Endpoint: s.S3Endpoint, Region: s.S3Region, PathStyle: s.S3PathStyle},
	})
	switch {
	case err != nil && strings.Contains(s.LakeURI, dataDirMark): // such a server has no lake (noLake)
		return nil, nil, nil
	case err != nil:
		return nil, nil, wrong("lake-uri", "%v", err)
	}
	own, err := s.ownCatalog(store)
	if err != nil {
		return nil, nil, err
	}
	var pointers iceberg.Catalog // stays nil without a catalog of the user's own
	end = func() {}
	if own != nil {
		pointers, end = own, func() { _ = own.Close() } // it was only asked
	}
	return iceberg.New(iceberg.Options{Store: store, Catalog: pointers, Cluster: cluster, Clock: wallClock{}, Logger: log}), end, nil
}

func tableEnds(ctx context.Context, s *Settings, f *iceberg.Format, t *millrace.Table, c *catalog.Catalog, out map[millrace.ShardID][]shard.InLake, log *slog.Logger) error {
	ask, cancel := context.WithTimeout(ctx, lakeEndTime)
	defer cancel()
	ends, err := f.Ends(ask, t)
	if err != nil {
		return errs.Wrap(errs.CodeOf(err), "the lake does not say how far it has table "+t.Path.String()+" (--skip-lake goes on without)", err)
	}
	if ends == nil && t.Options.Lake.Enabled {
		log.WarnContext(ctx, "the lake has nothing of a table that is taken there: make sure that lake-uri is the place that it was", slog.String("table", t.Path.String()), slog.String("lake_uri", s.LakeURI))
	}
	shards := map[millrace.PartitionID][]millrace.ShardID{0: t.Shards}
	if t.Partitioned() {
		ps, err := c.Partitions(ctx, t.ID)
		if err != nil {
			return err
		}
		for _, p := range ps {
			if p.State != millrace.PartitionExpired && !p.Dropping { // else no shard has it
				shards[p.ID] = p.Shards
			}
		}
	}
	for id, end := range ends {
		if of := shards[id.Partition]; int(id.Bucket) < len(of) {
			out[of[id.Bucket]] = append(out[of[id.Bucket]], shard.InLake{Table: t, Bucket: id, End: end})
		}
	}
	return nil
}
