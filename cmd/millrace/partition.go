package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/openapi"
)

type partitionCmd struct {
	Create partitionCreateCmd `cmd:"" help:"Create a partition."`
	List   partitionListCmd   `cmd:"" help:"List the partitions of a table."`
	Drop   partitionDropCmd   `cmd:"" help:"Drop a partition and its rows."`
}

type partitionCreateCmd struct {
	connection
	Table       string   `arg:"" help:"DATABASE.TABLE."`
	Values      []string `arg:"" help:"The value of each partition column: dt=2026-08-26 hour=7." placeholder:"COLUMN=VALUE"`
	IfNotExists bool     `help:"It may exist already."`
}

// Run implements the command.
func (c *partitionCreateCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	values := map[string]string{}
	for _, pair := range c.Values {
		name, v, ok := strings.Cut(pair, "=")
		if _, twice := values[name]; !ok || twice {
			return usagef("a partition is named by column=value, each column once, not %q", pair)
		}
		values[name] = v
	}
	object, err := json.Marshal(values)
	if err != nil {
		return err
	}
	p, err := t.CreatePartition(ctx, object, c.IfNotExists)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "partition %s, id %d\n", printable(p.Name), p.ID)
	return nil
}

type partitionListCmd struct {
	connection
	listing
	Table string `arg:"" help:"DATABASE.TABLE."`
}

// Run implements the command.
func (c *partitionListCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	return printList(a, c.Format, []string{"id", "partition", "state"}, t.Partitions(ctx), func(p openapi.Partition) []string {
		return []string{strconv.FormatInt(p.ID, 10), p.Name, string(p.State)}
	})
}

type partitionDropCmd struct {
	connection
	Table    string `arg:"" help:"DATABASE.TABLE."`
	Name     string `arg:"" help:"Name of the partition: dt=2026-08-26/hour=7."`
	IfExists bool   `help:"It may be gone already."`
}

// Run implements the command.
func (c *partitionDropCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	if err := t.DropPartition(ctx, c.Name, c.IfExists); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "dropped partition %s of %s\n", printable(c.Name), printable(t.String()))
	return nil
}
