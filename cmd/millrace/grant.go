package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/millrace/millrace/openapi"
)

type grantCmd struct {
	Add    grantAddCmd    `cmd:"" help:"Let a user or a group do something."`
	List   grantListCmd   `cmd:"" help:"List the grants on what you are admin of."`
	Remove grantRemoveCmd `cmd:"" help:"Take grants back."`
}

type grantAddCmd struct {
	connection
	Principal string   `arg:"" help:"Who: user:NAME or group:NAME."`
	Verbs     string   `arg:"" help:"What: describe, read, write, create, alter, drop, admin; separated by commas."`
	On        string   `required:"" help:"On what: DATABASE.TABLE, a DATABASE and all tables in it, or * for everything." placeholder:"OBJECT"`
	Columns   []string `help:"With read on a table: these columns alone; separated by commas." placeholder:"NAME"`
}

// Help is the text after the flags.
func (*grantAddCmd) Help() string {
	return `Every verb includes describe of the object, admin includes all verbs. Grants add up, and hold within a few seconds, for streams that are open too:

  millrace grant add group:analysts read --on retail
  millrace grant add user:ann read --on retail.customers --columns id,country`
}

// Run implements the command.
func (c *grantAddCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	g := openapi.NewGrant{Principal: c.Principal, On: c.On, Columns: c.Columns}
	for v := range strings.SplitSeq(c.Verbs, ",") {
		verb := openapi.NewGrantVerbs(v)
		if !verb.Valid() {
			return usagef("%q is not one of describe, read, write, create, alter, drop, admin", v)
		}
		g.Verbs = append(g.Verbs, verb)
	}
	made, err := cl.CreateGrant(ctx, g)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "grant %s: %s, %s on %s\n", printable(made.ID), printable(made.Principal), strings.Join(made.Verbs, ", "), printable(granted(made)))
	return nil
}

// granted says on what a grant is.
func granted(g openapi.Grant) string {
	if len(g.Columns) == 0 {
		return g.On
	}
	return g.On + " (" + strings.Join(g.Columns, ", ") + ")"
}

type grantListCmd struct {
	connection
	listing
	Principal string `help:"Those of this user or group alone." placeholder:"NAME"`
	On        string `help:"Those on this table, database or * alone." placeholder:"OBJECT"`
}

// Run implements the command.
func (c *grantListCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	shown := only(cl.Grants(ctx), func(g openapi.Grant) bool {
		return (c.Principal == "" || g.Principal == c.Principal) && (c.On == "" || g.On == c.On)
	})
	return printList(a, c.Format, []string{"id", "principal", "verbs", "on", "columns"}, shown, func(g openapi.Grant) []string {
		return []string{g.ID, g.Principal, strings.Join(g.Verbs, ", "), g.On, strings.Join(g.Columns, ", ")}
	})
}

// only is the things of a list for which a condition holds, and its errors.
func only[T any](things iter.Seq2[T, error], wanted func(T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range things {
			if (err != nil || wanted(v)) && !yield(v, err) {
				return
			}
		}
	}
}

type grantRemoveCmd struct {
	connection
	IDs []string `arg:"" name:"id" help:"Ids, as list shows them. One that is gone already is no error."`
}

// Run implements the command.
func (c *grantRemoveCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	for _, id := range c.IDs {
		if err := cl.DeleteGrant(ctx, id); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "grant %s is taken back\n", printable(id))
	}
	return nil
}
