package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/server"
)

// restoreCmd brings back what an object store holds.
type restoreCmd struct {
	From string `help:"What --remote-uri was: file:///folder or s3://bucket/prefix. Of a cluster it is --remote-uri." placeholder:"URI"`
	skipLake

	serverSettings
}

// skipLake is a flag of commands that bring logs back.
type skipLake struct {
	SkipLake bool `help:"Do not ask the lake how far it has each table. Where it has more than comes back, new records hide behind those in the lake: for a lake that is lost, and not put back later."`
}

func (s skipLake) ask() server.AskLake { return server.AskLake(!s.SkipLake) }

// Help is the text after the flags.
func (*restoreCmd) Help() string {
	return `Brings back what the object store at --from holds of a cluster, or of a single node that had --remote-uri, into --data-dir, which has nothing yet; a single node is started on it.
With --nats-url and the other settings of a cluster it brings back the cluster itself, in NATS that has nothing of it any more: stop all processes first, start them afterwards.
--data-dir is then a place to work in, with room for the state of two shards.

Rows up to the newest checkpoint of each shard come back, a minute old at most when all was well; the logs begin anew.
Writes that were acknowledged after that are lost; the command says how old each checkpoint is. A restore that failed is begun again by the same command.

Where the lake at --lake-uri has more of a table than its checkpoints, the table goes on behind that: what the lake has of a log table is kept, and of a table with a
primary key the lake is written anew from what came back, by the server that is started then: what only the lake has of it is in the lake's older snapshots,
until they expire; copy the table's folder first if it is of use. So the lake is asked, and has to answer for each table, unless --skip-lake is given.`
}

// behindLake says how a bucket goes on of which the lake has more than came back.
func behindLake(keyed bool, next millrace.Offset) string {
	if keyed {
		return fmt.Sprintf("the lake has changes that did not come back; its changelog begins anew at offset %d, and the lake is written anew from the rows that did", next)
	}
	return fmt.Sprintf("the lake has all rows up to offset %d, where its log goes on", next)
}

// Run implements the command.
func (c *restoreCmd) Run(ctx context.Context, k *kong.Context, a *app) error {
	s, _, err := c.load(k, a)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var r *server.Restored
	switch {
	case s.NATSURL == "" && c.From == "":
		return usageError{errs.New(errs.InvalidRequest, "--from says where the checkpoints are; with --nats-url and --remote-uri a cluster is restored")}
	case s.NATSURL == "":
		r, err = server.Restore(ctx, s, c.From, c.ask(), log)
	case c.From != "" && c.From != s.RemoteURI:
		return usageError{errs.New(errs.InvalidRequest, "--from is %s and --remote-uri %s: a cluster goes on where its checkpoints are; copy them there first", c.From, s.RemoteURI)}
	default:
		r, err = server.RestoreCluster(ctx, s, c.ask(), log)
	}
	if err != nil {
		return err
	}
	p := func(format string, args ...any) {
		_, werr := fmt.Fprintf(a.stdout, format, args...)
		err = errors.Join(err, werr)
	}
	p("restored cluster %s: %d tables, %d shards\n", r.ClusterID, r.Tables, r.Shards)
	p("the catalog is as of its change %d; what was changed after that is lost\n", r.Changes)
	p("writes that were acknowledged after these checkpoints are lost:\n")
	for _, at := range r.Points {
		if at.Checkpoint.IsZero() {
			p("  shard %d had no checkpoint and is empty\n", at.Shard)
			continue
		}
		p("  shard %d: of %s, %v ago\n", at.Shard, at.Checkpoint.Format(time.RFC3339), time.Since(at.Checkpoint).Round(time.Second))
	}
	for _, at := range r.Points {
		for _, b := range at.Behind {
			p("bucket %s of %s: %s\n", b.Bucket, printable(b.Table.Path.String()), behindLake(b.Table.Keyed(), b.Next))
		}
	}
	if s.NATSURL != "" {
		p("start the processes of the cluster now\n")
	}
	return err
}
