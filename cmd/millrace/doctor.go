package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/millrace/millrace/server"
)

// doctorCmd looks at everything that a server needs.
type doctorCmd struct {
	Format    string `help:"text or json." enum:"text,json" default:"text"`
	TokenFile string `help:"File of the token that is shown to a running server (MILLRACE_TOKEN_FILE; the token itself may be in MILLRACE_TOKEN)." placeholder:"FILE" type:"path"`

	serverSettings
}

// Help is the text after the flags.
func (*doctorCmd) Help() string {
	return `Takes the settings of serve, from the same flags, environment and file, and looks at what a server with them needs: data directory, disk, files with secrets, ports, limits,
certificates, keys of tokens, NATS, object stores, clocks, and a running server if there is one. Run it as the user that the server runs as, before a start or beside a running server.
It changes nothing: what it writes to try are a file and objects of its own, which it removes.

A running server that wants tokens tells its alarms, shards and members to an administrator only: MILLRACE_TOKEN or --token-file.
Exit code 0: nothing has failed, though there may be warnings; 1: something has.`
}

// diagnosis is what is printed as JSON.
type diagnosis struct {
	OK       bool             `json:"ok"`
	Findings []server.Finding `json:"findings"`
}

// errUnwell makes the command fail; what is wrong was printed.
var errUnwell = errors.New("something is wrong, see above")

// Validate keeps settings that are wrong for Run, which tells of them as of all else.
func (*doctorCmd) Validate() error { return nil }

// Run implements the command.
func (c *doctorCmd) Run(ctx context.Context, k *kong.Context, a *app) error {
	var found []server.Finding
	s, origins, err := c.load(k, a)
	if err != nil {
		found = []server.Finding{{Subject: "settings", State: server.FindingFailed, Found: err.Error(), Advice: "a server does not start with them; millrace serve --help tells of each. Nothing else was looked at"}}
	} else {
		token, err := c.token(a)
		if err != nil {
			return err
		}
		found = server.Doctor(ctx, server.DoctorOptions{
			Settings: s, Config: cmp.Or(c.Config, a.getenv(server.EnvConfig)), Origins: origins, Token: token, Version: version(),
		})
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	d := diagnosis{OK: true, Findings: found}
	for _, f := range found {
		d.OK = d.OK && f.State != server.FindingFailed
	}
	if err := c.print(a, d); err != nil {
		return err
	}
	if !d.OK {
		return errUnwell
	}
	return nil
}

// token is what a running server is shown.
func (c *doctorCmd) token(a *app) (string, error) {
	path := cmp.Or(c.TokenFile, a.getenv("MILLRACE_TOKEN_FILE"))
	if t := a.getenv("MILLRACE_TOKEN"); c.TokenFile == "" && t != "" || path == "" {
		return t, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("--token-file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// marks stand before findings.
var marks = map[server.FindingState]string{
	server.FindingOK: "ok", server.FindingWarning: "warning", server.FindingFailed: "FAILED", server.FindingSkipped: "skipped",
}

func (c *doctorCmd) print(a *app, d diagnosis) error {
	if c.Format == "json" {
		e := json.NewEncoder(a.stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(d)
	}
	var err error
	p := func(format string, args ...any) {
		_, werr := fmt.Fprintf(a.stdout, format, args...)
		err = errors.Join(err, werr)
	}
	count := map[server.FindingState]int{}
	for _, f := range d.Findings {
		count[f.State]++
		p("%-8s %s: %s\n", marks[f.State], f.Subject, printable(f.Found))
		if f.Advice != "" {
			p("         → %s\n", printable(f.Advice))
		}
	}
	p("failed: %d, warnings: %d\n", count[server.FindingFailed], count[server.FindingWarning])
	return err
}
