package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/client"
)

type tailCmd struct {
	connection
	readFlags
	output
	Table string `arg:"" help:"DATABASE.TABLE, also with $binlog."`
}

// showWithin is how long changes wait for more before they are shown.
const showWithin = 100 * time.Millisecond

// Run implements the command: changes as they come, until --until, --limit or an
// interrupt. As text and NDJSON it survives lost connections; Arrow and Parquet
// are one stream, which has to end.
func (c *tailCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	r, err := c.request()
	if err != nil {
		return err
	}
	if c.Format == "arrow" || c.Format == "parquet" {
		if c.Format == "parquet" && (c.Until == "" || c.Until == "never") && c.Limit == 0 {
			return usagef("a Parquet file has an end: give --until or --limit")
		}
		return c.copyRows(ctx, a, source{arrow: t.ChangelogArrow}, r)
	}
	out, end, err := c.open(a)
	if err != nil {
		return err
	}
	return end(c.follow(ctx, a, t, r, out))
}

// follow writes changes as they come. Writing happens here, reading in a
// goroutine of its own, so that what has come is shown when nothing more comes.
func (c *tailCmd) follow(ctx context.Context, a *app, t *client.Table, r client.ReadRequest, out io.Writer) error {
	write, flush := c.changeWriter(a, out)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes := make(chan client.Change, 256)
	failed := make(chan error, 1)
	go func() {
		defer close(changes)
		for ch, err := range t.Changes(ctx, r) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case changes <- ch:
			case <-ctx.Done():
				return
			}
		}
	}()
	tick := time.NewTicker(showWithin)
	defer tick.Stop()
	for {
		select {
		case ch, ok := <-changes:
			if !ok {
				return errors.Join(flush(), c.ended(ctx, failed))
			}
			if err := write(ch); err != nil {
				return err
			}
			if len(changes) > 0 {
				continue
			}
		case <-tick.C:
		}
		if err := flush(); err != nil {
			return err
		}
	}
}

// ended is why the changes ended; an interrupt is how a tail is meant to end.
func (c *tailCmd) ended(ctx context.Context, failed <-chan error) error {
	select {
	case err := <-failed:
		if ctx.Err() == nil {
			return err
		}
	default:
	}
	return nil
}

func (c *tailCmd) changeWriter(a *app, out io.Writer) (write func(client.Change) error, flush func() error) {
	if c.Format != "ndjson" {
		rows := jsonRows{out: c.text(a, out)}
		return func(ch client.Change) error { return rows.write(ch.Row) }, rows.out.flush
	}
	w := bufio.NewWriterSize(out, 64<<10)
	return func(ch client.Change) error { return writeLine(w, ch.Row) }, w.Flush
}
