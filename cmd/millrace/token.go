package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// tokenCmd makes a token for development.
type tokenCmd struct {
	User    string   `required:"" help:"Who the token is for: user:<this> in grants." placeholder:"NAME"`
	Group   []string `help:"A group that the user is a member of; may be given several times." placeholder:"NAME"`
	Expires string   `help:"How long it is good: an integer and s, min, h or d, up to 1d." default:"1h"`
	Key     string   `help:"File of the key that signs it (auth/dev-key.json in the data directory)." placeholder:"FILE" type:"path"`
	DataDir string   `help:"Data directory of the server (MILLRACE_DATA_DIR; ./millrace-data)." placeholder:"DIR" type:"path"`
}

// Help is the text after the flags.
func (*tokenCmd) Help() string {
	return `The token is good at servers that run with --auth-jwks dev and have the same key. It is printed alone, so that a shell can keep it:

  export MILLRACE_TOKEN=$(millrace token --user ann)

Whoever can read the key can be anyone there: in production, use the tokens of an identity provider.`
}

// Run implements the command.
func (c *tokenCmd) Run(a *app) error {
	life, err := millrace.ParseDuration(c.Expires)
	if err != nil {
		return usagef("--expires: %w", err)
	}
	path := c.Key
	if path == "" {
		dir := c.DataDir
		if dir == "" {
			dir = a.getenv("MILLRACE_DATA_DIR")
		}
		if dir == "" {
			dir = "millrace-data"
		}
		path = token.DevKeyPath(dir)
	}
	key, err := token.OpenDevKey(path)
	if err != nil {
		return err
	}
	text, err := key.Sign(c.User, c.Group, time.Now(), life)
	if errs.Is(err, errs.InvalidValue) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, text)
	return err
}

// whoamiCmd says whom the server takes the caller for.
type whoamiCmd struct {
	connection
	listing
}

// Run implements the command.
func (c *whoamiCmd) Run(ctx context.Context, a *app) error {
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	w, err := cl.Whoami(ctx)
	if err != nil {
		return err
	}
	return printList(a, c.Format, []string{"principal", "groups", "expires"}, one(w), func(w openapi.Whoami) []string {
		expires := "never"
		if !w.ExpiresAt.IsZero() {
			expires = w.ExpiresAt.Format(time.RFC3339)
		}
		return []string{w.Principal, strings.Join(w.Groups, ", "), expires}
	})
}
