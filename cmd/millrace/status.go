package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

type offsetsCmd struct {
	connection
	listing
	Table string `arg:"" help:"DATABASE.TABLE."`
	At    string `help:"Show instead the next offset of each bucket at this position: earliest, latest, a time, or a cursor." placeholder:"POSITION"`
}

// Run implements the command.
func (c *offsetsCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	if c.At == "" {
		return printList(a, c.Format, []string{"bucket", "start", "end", "rows", "size", "shard", "owner"}, t.Buckets(ctx), func(b openapi.Bucket) []string {
			owner := b.Owner
			if owner == "" {
				owner = "none"
			}
			return []string{b.BucketKey, itoa(b.Start), itoa(b.End), itoa(b.Rows), byteSize(b.Bytes), strconv.Itoa(b.Shard), owner}
		})
	}
	o, err := t.Offsets(ctx, client.ParsePosition(c.At))
	if err != nil {
		return err
	}
	if c.Format == "ndjson" {
		return printList(a, c.Format, nil, one(o), nil)
	}
	return printList(a, c.Format, []string{"bucket", "offset"}, each(sortedBuckets(o.Offsets)), func(k string) []string {
		return []string{k, itoa(o.Offsets[k])}
	})
}

type statusCmd struct {
	connection
	listing
}

// Run implements the command. A shard that is damaged, or a lake table that cannot be
// removed, makes it fail, so that scripts notice.
func (c *statusCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	info, err := cl.Info(ctx)
	if err != nil {
		return err
	}
	cluster, err := cl.Cluster(ctx)
	if err != nil {
		return err
	}
	if c.Format == "ndjson" {
		err = printList(a, c.Format, nil, one(struct {
			Info    openapi.Info    `json:"info"`
			Cluster openapi.Cluster `json:"cluster"`
		}{info, cluster}), nil)
	} else {
		err = printStatus(a, cl.Server(), info, cluster)
	}
	if err != nil {
		return err
	}
	for _, s := range cluster.Shards {
		if s.State == openapi.ShardStateDamaged {
			return errs.New(errs.CorruptData, "shard %d is damaged: %s", s.Shard, s.Detail)
		}
	}
	for _, p := range cluster.LakePurges {
		if p.Error != nil {
			return errs.New(p.Error.Code, "the lake table of %s (table %d) could not be removed since %s: %s",
				printable(p.Table), p.TableID, p.Error.Since.UTC().Format(time.RFC3339), printable(p.Error.Detail))
		}
	}
	return nil
}

func printStatus(a *app, server string, info openapi.Info, cluster openapi.Cluster) error {
	fmt.Fprintf(a.stdout, "server:   %s, release %s\ncluster:  %s (%s)\n", server, printable(info.Version), printable(info.ClusterID), cluster.Mode)
	if info.FlightAddress != "" {
		fmt.Fprintf(a.stdout, "flight:   %s\n", printable(info.FlightAddress))
	}
	if len(info.Features) > 0 {
		fmt.Fprintf(a.stdout, "features: %s\n", printable(strings.Join(info.Features, ", ")))
	}
	fmt.Fprintln(a.stdout)
	inCluster := cluster.Mode == openapi.ClusterModeCluster
	workers := []string{"worker", "address", "state", "shards", "release"}
	if inCluster {
		workers = append(workers, "roles")
	}
	err := printList(a, "table", workers, each(cluster.Workers), func(w openapi.Worker) []string {
		return cut([]string{w.ID, w.Address, string(w.State), strconv.Itoa(w.Shards), w.Version, joinRoles(w.Roles)}, workers)
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	shards := []string{"shard", "state", "owner", "epoch", "lsn", "checkpoint", "lag", "buckets", "detail"}
	if inCluster {
		shards = append(shards, "standby", "behind")
	}
	err = printList(a, "table", shards, each(cluster.Shards), func(s openapi.Shard) []string {
		owner := s.Owner
		switch {
		case owner == "":
			owner = "none"
		case s.MovingTo != "":
			owner += " → " + s.MovingTo
		}
		behind := ""
		if s.Standby != "" {
			behind = itoa(s.StandbyLag)
		}
		return cut([]string{
			strconv.Itoa(s.Shard), string(s.State), owner, itoa(s.Epoch), itoa(s.Lsn), itoa(s.CheckpointLsn), itoa(s.Lag), strconv.Itoa(s.Buckets), s.Detail,
			s.Standby, behind,
		}, shards)
	})
	if err != nil || len(cluster.LakePurges) == 0 {
		return err
	}
	fmt.Fprintln(a.stdout, "\nlake tables of dropped tables, to be removed:")
	return printList(a, "table", []string{"table", "id", "dropped", "last try"}, each(cluster.LakePurges), func(p openapi.LakePurge) []string {
		tried := "under way"
		if p.Error != nil {
			tried = string(p.Error.Code)
		}
		return []string{p.Table, itoa(p.TableID), p.DroppedAt.UTC().Format(time.RFC3339), tried}
	})
}

// cut is as much of a row as there are columns.
func cut(row, columns []string) []string { return row[:len(columns)] }

func joinRoles(roles []openapi.WorkerRoles) string {
	out := make([]string, len(roles))
	for i, r := range roles {
		out[i] = string(r)
	}
	return strings.Join(out, ",")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
