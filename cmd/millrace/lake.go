package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

type lakeCmd struct {
	Status lakeStatusCmd `cmd:"" help:"Show how far a table is in the lake."`
	Tier   lakeTierCmd   `cmd:"" help:"Take what there is of a table to the lake now."`
}

type lakeStatusCmd struct {
	connection
	listing
	Table string `arg:"" help:"DATABASE.TABLE."`
}

// Run implements the command. A lake that does not take rows makes it fail, so that
// scripts notice.
func (c *lakeStatusCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	s, err := t.Lake(ctx)
	if err != nil {
		return err
	}
	return printLake(a, c.Format, &s)
}

type lakeTierCmd struct {
	connection
	listing
	Table   string `arg:"" help:"DATABASE.TABLE."`
	Timeout string `help:"How long to wait, up to 2min; the round goes on after that." default:"2min"`
}

// Run implements the command.
func (c *lakeTierCmd) Run(ctx context.Context, a *app) error {
	timeout, err := millrace.ParseDuration(c.Timeout)
	if err != nil || timeout <= 0 {
		return usagef("--timeout %q is not a duration such as 30s or 2min", c.Timeout)
	}
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	// A while longer, so that the server's answer still comes.
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Second)
	defer cancel()
	s, err := t.Tier(ctx)
	if err != nil {
		return err
	}
	if c.Format == "table" && s.RowsTiered != nil {
		fmt.Fprintf(a.stdout, "tiered:   %s rows\n", grouped(*s.RowsTiered))
	}
	return printLake(a, c.Format, &s)
}

// printLake shows how far a table is in the lake; when it does not get on, the error
// says so.
func printLake(a *app, format string, s *openapi.LakeStatus) error {
	if format == "ndjson" {
		if err := printList(a, format, nil, one(*s), nil); err != nil {
			return err
		}
	} else if err := printLakeTable(a, s); err != nil {
		return err
	}
	if s.Error != nil {
		return errs.New(s.Error.Code, "something is wrong with the lake since %s: %s", s.Error.Since.UTC().Format(time.RFC3339), printable(s.Error.Detail))
	}
	return nil
}

func printLakeTable(a *app, s *openapi.LakeStatus) error {
	state := string(s.State)
	if !s.Enabled {
		state += ", tiering is off"
	}
	fmt.Fprintf(a.stdout, "state:    %s\nlocation: %s (%s)\n", printable(state), printable(s.Location), printable(string(s.Format)))
	if s.SnapshotID != "" {
		fmt.Fprintf(a.stdout, "snapshot: %s, round %d, of %s\n", printable(s.SnapshotID), s.Round, s.CommittedAt.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(a.stdout, "rows:     %s", grouped(s.Totals.Rows))
	if s.Totals.DeletedRows > 0 {
		fmt.Fprintf(a.stdout, ", and %s deleted ones in files", grouped(s.Totals.DeletedRows))
	}
	fmt.Fprintf(a.stdout, "\nfiles:    %s of data, %s of deletes, %s\n", grouped(s.Totals.DataFiles), grouped(s.Totals.DeleteFiles), byteSize(s.Totals.Bytes))
	fmt.Fprintf(a.stdout, "pending:  %s rows", grouped(s.PendingRows))
	if s.LagMs > 0 {
		fmt.Fprintf(a.stdout, ", the oldest of %s ago", time.Duration(s.LagMs)*time.Millisecond)
	}
	fmt.Fprintln(a.stdout)
	if s.SkippedRows > 0 {
		fmt.Fprintf(a.stdout, "skipped:  %s rows that left the log while tiering was off\n", grouped(s.SkippedRows))
	}
	if len(s.Offsets) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	return printList(a, "table", []string{"bucket", "offset"}, each(sortedBuckets(s.Offsets)), func(k string) []string {
		return []string{k, itoa(s.Offsets[k])}
	})
}
