package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/alecthomas/kong"

	"github.com/millrace/millrace/server"
)

// restoreCmd makes a data directory of what an object store holds.
type restoreCmd struct {
	From string `help:"What --remote-uri was: file:///folder or s3://bucket/prefix." required:"" placeholder:"URI"`

	serverSettings
}

// Help is the text after the flags.
func (*restoreCmd) Help() string {
	return `Brings back a cluster, or a single node that had --remote-uri, from its object store alone into --data-dir, which has nothing yet.
Rows up to the newest checkpoint of each shard come back, a minute old at most when the server was well; the log begins anew.
Of the other settings those of S3 count. A restore that failed is begun again by the same command.`
}

// Run implements the command.
func (c *restoreCmd) Run(ctx context.Context, k *kong.Context, a *app) error {
	s, _, err := c.load(k, a)
	if err != nil {
		return err
	}
	r, err := server.Restore(ctx, s, c.From, slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.stdout, "restored cluster %s: %d tables, %d shards\n", r.ClusterID, r.Tables, r.Shards); err != nil {
		return err
	}
	for _, id := range r.Empty {
		if _, err := fmt.Fprintf(a.stdout, "shard %d had no checkpoint and is empty\n", id); err != nil {
			return err
		}
	}
	return nil
}
