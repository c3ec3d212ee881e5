package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/server"
)

// walCmd is about the write-ahead log of a server that is stopped.
type walCmd struct {
	Repair walRepairCmd `cmd:"" help:"Tell what a damaged or lost log costs, and go on without it."`
}

type walRepairCmd struct {
	AcceptLoss bool `help:"Go on without what is lost. Without this, the command only tells."`
	skipLake

	serverSettings
}

// Help is the text after the flags.
func (*walRepairCmd) Help() string {
	return `For a server that says corrupt_data of its log: a shard whose log is damaged, gone, or behind what the shard knows stays closed.
Stop the server first. The log in --data-dir is read as far as it can be, and each such shard is told of: which records cannot be read, and
where each bucket goes on. With --accept-loss the shards go on from there. What was there before is copied to a folder repair-… in --data-dir.

With --nats-url and the other settings of a cluster the logs are its streams in NATS; stop all processes first. A shard goes on from its
checkpoint in the object store and what can be read of its stream, or, where they know of more, from the files of the worker whose --data-dir
it is: "its files here" in what is told. Of a table of which the lake at --lake-uri has more than that, the log goes on behind the lake, which is asked for that and has to answer
unless --skip-lake is given. The stream is made anew: keep what is in it with "nats stream backup" first, if it may be of use.`
}

// Run implements the command. Something that is lost and not accepted makes it fail, so
// that scripts notice.
func (c *walRepairCmd) Run(ctx context.Context, k *kong.Context, a *app) error {
	s, _, err := c.load(k, a)
	if err != nil {
		return err
	}
	losses, copies, err := server.RepairLog(ctx, s, c.AcceptLoss, c.ask(), slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	p := func(format string, args ...any) {
		_, werr := fmt.Fprintf(a.stdout, format, args...)
		err = errors.Join(err, werr)
	}
	for _, l := range losses {
		p("shard %d: %v\n", l.Shard, l.Cause)
		switch {
		case l.Behind:
		case l.From <= l.To:
			p("  records %d to %d of its log, at least, cannot be read\n", l.From, l.To)
		default:
			p("  what came behind record %d of its log, if anything did, cannot be read\n", l.To)
		}
		switch {
		case l.Checkpoint > 0:
			at := time.UnixMicro(l.Checkpoint).UTC()
			p("  it goes on at record %d, from its checkpoint of %s, %v ago, and what can be read behind that\n", l.Applied, at.Format(time.RFC3339), time.Since(at).Round(time.Second))
		case s.NATSURL != "" && l.Ahead:
			p("  it goes on at record %d, from its files here\n", l.Applied)
		}
		for _, b := range l.Buckets {
			table := printable(b.Table.String())
			switch {
			case b.InLake != nil:
				p("  bucket %s of %s: %s\n", b.ID, table, behindLake(b.InLake.Table.Keyed(), b.End))
				if b.Lost > 0 {
					p("    %d rows behind that are lost\n", b.Lost)
				}
			case b.Table.Table == "":
				p("  bucket %s: of a table that only the lost records describe; all of it is lost\n", b.ID)
			case b.Begins:
				p("  bucket %s of %s: all rows are there, its changelog begins anew at offset %d\n", b.ID, table, b.End)
			default:
				p("  bucket %s of %s: goes on at offset %d, %d lost rows are known of\n", b.ID, table, b.End, b.Lost)
			}
		}
	}
	switch {
	case err != nil:
		return err
	case len(losses) == 0:
		p("the logs of all shards are sound\n")
	case c.AcceptLoss && copies == "":
		p("repaired\n")
	case c.AcceptLoss:
		p("repaired; what was there before is in %s\n", copies)
	default:
		return errs.New(errs.CorruptData, "the logs of %d shards have lost something: bring them back, or accept the loss with --accept-loss", len(losses))
	}
	return err
}
