package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/millrace/millrace/client"
)

// app is what surrounds a command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
}

// getenv is the value of an environment variable, empty when it is not set.
func (a *app) getenv(name string) string {
	for _, setting := range slices.Backward(a.env) {
		if k, v, ok := strings.Cut(setting, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// isTerminal says whether someone looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// connection is embedded in every client command.
type connection struct {
	Server string `help:"Address of the server (MILLRACE_SERVER; http://127.0.0.1:8080)." placeholder:"URL"`
	CA     string `name:"ca" help:"File of the authorities that sign the certificate of an https server (MILLRACE_CA; those of the system)." placeholder:"FILE" type:"path"`

	TokenFile string `help:"File of the token, which may be renewed while the command runs (MILLRACE_TOKEN_FILE; the token itself may be in MILLRACE_TOKEN)." placeholder:"FILE" type:"path"`
}

func (c connection) client(a *app) (*client.Client, error) {
	if c.Server == "" {
		c.Server = a.getenv("MILLRACE_SERVER")
	}
	if c.CA == "" {
		c.CA = a.getenv("MILLRACE_CA")
	}
	o := client.Options{Server: c.Server, TokenFile: c.TokenFile, UserAgent: "millrace"}
	if o.TokenFile == "" {
		o.Token, o.TokenFile = a.getenv("MILLRACE_TOKEN"), a.getenv("MILLRACE_TOKEN_FILE")
	}
	if c.CA != "" {
		var err error
		if o.CA, err = os.ReadFile(c.CA); err != nil {
			return nil, usagef("--ca: %w", err)
		}
	}
	cl, err := client.New(o)
	if err != nil {
		return nil, usageError{err}
	}
	return cl, nil
}

// table opens the table of a command.
func (c connection) table(a *app, name string) (*client.Table, error) {
	cl, err := c.client(a)
	if err != nil {
		return nil, err
	}
	t, err := cl.Table(name)
	if err != nil {
		return nil, usageError{err}
	}
	return t, nil
}

// interrupted says that a person ended the command.
func interrupted(ctx context.Context) bool { return ctx.Err() != nil }
