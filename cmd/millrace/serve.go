package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/millrace/millrace/server"
)

// serverSettings are the flags of every command that builds a server's settings.
type serverSettings struct {
	Config string `help:"YAML file of settings, named as the flags are (MILLRACE_CONFIG)." placeholder:"FILE" type:"path"`

	server.Settings `embed:""`
}

// notSettings are flags of commands that take settings, and are none.
var notSettings = map[string]bool{"config": true, "from": true, "accept-loss": true, "skip-lake": true, "format": true, "token-file": true}

// load puts the settings together: flags, then the environment, then the file.
func (c *serverSettings) load(k *kong.Context, a *app) (*server.Settings, server.Origins, error) {
	flags := map[string]any{}
	for _, p := range k.Path {
		if p.Flag != nil && !notSettings[p.Flag.Name] && !p.Resolved {
			flags[p.Flag.Name] = p.Flag.Target.Interface()
		}
	}
	s, origins, err := server.Load(server.Sources{File: c.Config, Env: a.env, Flags: flags})
	if err != nil {
		return nil, nil, usageError{err}
	}
	return s, origins, nil
}

// ServeCmd runs a server.
type ServeCmd struct{ serverSettings }

// Help is the text after the flags.
func (*ServeCmd) Help() string {
	return `Every setting is also an environment variable, MILLRACE_HTTP_ADDR for --http-addr, and a key of the YAML file, "http-addr".
Flags win over the environment, and the environment over the file. "millrace config print" shows the outcome.

SIGHUP reads the certificates of TLS again at once; else they are looked at every few seconds.
SIGTERM or SIGINT stops the server: it finishes what is under way, takes a checkpoint and exits with 0.`
}

// Run implements the command.
func (c *ServeCmd) Run(ctx context.Context, k *kong.Context, a *app) error {
	s, _, err := c.load(k, a)
	if err != nil {
		return err
	}
	o := server.Options{Settings: s, Version: version(), Log: a.stderr, Failpoint: a.getenv(server.EnvFailpoint), ClockAhead: a.getenv(server.EnvClock)}
	if s.TLSCert != "" || s.TLSCA != "" { // else a hang-up ends the server, as any command
		again := make(chan os.Signal, 1)
		signal.Notify(again, syscall.SIGHUP)
		defer signal.Stop(again)
		o.Reread = again
	}
	return server.Run(ctx, o)
}

// configCmd shows settings.
type configCmd struct {
	Print configPrintCmd `cmd:"" help:"Print the settings that serve would run with, and where each comes from."`
}

type configPrintCmd struct{ serverSettings }

// Run implements the command.
func (c *configPrintCmd) Run(k *kong.Context, a *app) error {
	s, origins, err := c.load(k, a)
	if err != nil {
		return err
	}
	return s.Print(a.stdout, origins)
}
