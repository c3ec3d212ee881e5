package main

import (
	"context"
	"fmt"
	"strconv"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/openapi"
)

type quotaCmd struct {
	Set    quotaSetCmd    `cmd:"" help:"Bound what a user or a group may do in a second."`
	List   quotaListCmd   `cmd:"" help:"List quotas."`
	Remove quotaRemoveCmd `cmd:"" help:"Take a quota away."`
}

type quotaSetCmd struct {
	connection
	Principal  string `arg:"" help:"Whose: user:NAME, group:NAME, or default for each user who has none of either."`
	WriteRows  int64  `help:"Rows written in a second." placeholder:"N"`
	WriteBytes string `help:"Bytes written in a second: a number, or one of KiB, MiB or GiB." placeholder:"SIZE" default:"0"`
	ReadBytes  string `help:"Bytes read in a second." placeholder:"SIZE" default:"0"`
	Streams    int64  `help:"Streams open at a time." placeholder:"N"`
}

// Help is the text after the flags.
func (*quotaSetCmd) Help() string {
	return `It replaces the whole quota: what is not named is not limited. A user's quota and those of his groups hold together, and a group's is shared by its members. Each process that serves clients counts for itself.

  millrace quota set default --write-bytes 16MiB --read-bytes 64MiB --streams 20
  millrace quota set group:loaders --write-rows 100000`
}

// Run implements the command.
func (c *quotaSetCmd) Run(ctx context.Context, a *app) error {
	q := openapi.Quota{WriteRowsPerS: c.WriteRows, Streams: c.Streams}
	var err error
	if q.WriteBytesPerS, err = parseBytes(c.WriteBytes); err != nil {
		return usagef("--write-bytes: %w", err)
	}
	if q.ReadBytesPerS, err = parseBytes(c.ReadBytes); err != nil {
		return usagef("--read-bytes: %w", err)
	}
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	if _, err = cl.SetQuota(ctx, c.Principal, q); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "quota of %s is set\n", printable(c.Principal))
	return nil
}

// parseBytes reads a number of bytes, plain or as settings spell sizes.
func parseBytes(s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	return millrace.ParseSize(s)
}

type quotaListCmd struct {
	connection
	listing
}

// Run implements the command.
func (c *quotaListCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	names := []string{"principal", "rows written/s", "bytes written/s", "bytes read/s", "streams"}
	return printList(a, c.Format, names, cl.Quotas(ctx), func(q openapi.PrincipalQuota) []string {
		return []string{q.Principal, limit(q.WriteRowsPerS), limit(q.WriteBytesPerS), limit(q.ReadBytesPerS), limit(q.Streams)}
	})
}

// limit is a limit in words.
func limit(n int64) string {
	if n == 0 {
		return "any"
	}
	return grouped(n)
}

type quotaRemoveCmd struct {
	connection
	Principal string `arg:"" help:"Whose: user:NAME, group:NAME or default."`
}

// Run implements the command.
func (c *quotaRemoveCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	if err := cl.DeleteQuota(ctx, c.Principal); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "quota of %s is gone\n", printable(c.Principal))
	return nil
}
