package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// commands is the whole command line. A command's Run takes the context, which
// ends with SIGINT or SIGTERM, and the *app.
type commands struct {
	Serve  ServeCmd  `cmd:"" help:"Run a server."`
	Config configCmd `cmd:"" help:"Show settings."`

	Version versionCmd `cmd:"" help:"Say which program this is."`
	Doctor  doctorCmd  `cmd:"" help:"Look at everything that a server needs, and say in words what is wrong."`

	Restore restoreCmd `cmd:"" help:"Make a data directory of what an object store holds."`
	WAL     walCmd     `cmd:"" name:"wal" help:"Repair the write-ahead log of a stopped server."`

	DB    dbCmd    `cmd:"" name:"db" help:"Create, list, describe and drop databases."`
	Table tableCmd `cmd:"" help:"Create, list, describe, change and drop tables."`

	Partition partitionCmd `cmd:"" help:"Create, list and drop partitions of a table."`

	Put    putCmd    `cmd:"" help:"Load a CSV, NDJSON, JSON, Arrow or Parquet file into a table."`
	Get    getCmd    `cmd:"" help:"Get one row by its key."`
	Lookup lookupCmd `cmd:"" help:"Get many rows by their keys."`
	Scan   scanCmd   `cmd:"" help:"Read a table."`
	Tail   tailCmd   `cmd:"" help:"Follow the changes of a table."`

	SQL sqlCmd `cmd:"" name:"sql" help:"Run SQL statements."`

	Offsets offsetsCmd `cmd:"" help:"Show the offsets, size and owner of each bucket of a table."`
	Status  statusCmd  `cmd:"" help:"Show the server, its workers and shards."`

	Lake lakeCmd `cmd:"" help:"Show and tier the lake table of a table."`

	Token  tokenCmd  `cmd:"" help:"Make a token for development."`
	Whoami whoamiCmd `cmd:"" help:"Show whom the server takes you for."`

	Grant grantCmd `cmd:"" help:"Say who may do what."`
	Quota quotaCmd `cmd:"" help:"Say how much of it."`
	Bench laterCmd `cmd:"" help:"Benchmarks against a running server (not in this release)."`
}

const description = `Millrace: streaming storage for analytics.

Client commands talk to the server that --server or MILLRACE_SERVER names, with the token of MILLRACE_TOKEN or of the file that --token-file or MILLRACE_TOKEN_FILE names.
MILLRACE_CA (--ca) names the file of the authorities of an https server; none: those of the system.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found.`

// exitCode ends a parse that printed help.
type exitCode int

// run is the whole program: its arguments and surroundings in, its exit code out.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) (code int) {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env}
	defer func() {
		if r := recover(); r != nil {
			c, ok := r.(exitCode)
			if !ok {
				panic(r)
			}
			if code = int(c); len(args) == 0 {
				code = exitUsage // help that was not asked for
			}
		}
	}()
	var c commands
	parser, err := kong.New(&c,
		kong.Name("millrace"), kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(a),
	)
	if err != nil {
		panic(fmt.Sprintf("millrace: %v", err)) // the structs above are wrong
	}
	if len(args) == 0 {
		_, _ = parser.Parse([]string{"--help"}) // ends in exitCode
	}
	k, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "millrace: %v\nSee: millrace %s\n", err, strings.Join(append(commandOf(k, err), "--help"), " "))
		return exitUsage
	}
	return a.finish(ctx, k.Run())
}

// commandOf is the part of the command line that was understood.
func commandOf(k *kong.Context, err error) []string {
	if k == nil {
		if p, ok := errors.AsType[*kong.ParseError](err); ok {
			k = p.Context
		}
	}
	var words []string
	if k != nil {
		for _, p := range k.Path {
			if p.Command != nil {
				words = append(words, p.Command.Name)
			}
		}
	}
	return words
}
