package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// The first argument names what this binary is, when it is not the harness.
const (
	roleServer   = "role-server"   // a Millrace server that can be profiled
	roleArrowFly = "role-arrow-go" // the yardstick of reads
	roleParquet  = "role-parquet"  // the yardstick of reads of the lake
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) > 0 && args[0] == roleServer:
		err = serveProfiled(ctx, args[1:], stderr)
	case len(args) > 0 && args[0] == roleArrowFly:
		err = serveFromMemory(ctx, args[1:], stdout)
	case len(args) > 0 && args[0] == roleParquet:
		err = serveParquet(ctx, args[1:], stdout)
	default:
		err = measureAll(ctx, args, stdout, stderr)
	}
	if errors.Is(err, flag.ErrHelp) {
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// options are what a person can choose.
type options struct {
	Pairs    int    `json:"pairs"`
	Short    bool   `json:"short"`
	Only     string `json:"only,omitempty"`
	Millrace string `json:"-"`
	Python   string `json:"-"`
	Dir      string `json:"-"`
	Results  string `json:"-"`
	Profile  bool   `json:"profiled,omitempty"`
}

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.Pairs, "pairs", 5, "pairs of runs of each comparison")
	fs.BoolVar(&o.Short, "short", false, "small sizes and one pair: shows that everything runs, the figures mean little")
	fs.StringVar(&o.Only, "only", "", "workloads to run, as R1,R9; when empty all but those of clusters, R17 and R18")
	fs.StringVar(&o.Millrace, "millrace", "bin/millrace", "the server's binary")
	fs.StringVar(&o.Python, "python", ".venv/bin/python", "a Python that has pyarrow; without it arrow-go reads")
	fs.StringVar(&o.Dir, "dir", "bench/out", "folder for data, logs and profiles; the disk it is on is what is measured")
	fs.StringVar(&o.Results, "results", "", "folder to write results to; none when empty")
	fs.BoolVar(&o.Profile, "profile", false, "serve from this binary and write CPU profiles of the measured runs to the folder of -dir")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag", fs.Arg(0))
	}
	if o.Short {
		o.Pairs = 1
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	return o, os.MkdirAll(o.Dir, 0o755)
}

// workload is one line, or several, of the table of targets.
type workload struct {
	id  string
	run func(b *bench, ctx context.Context) error
	// asked says that it is run only when it is named: it takes minutes, and a cluster.
	asked bool
}

// workloads are in the order in which they share what they load.
var workloads = []workload{
	{id: "R1", run: (*bench).appendDurably},
	{id: "R1CL", run: (*bench).appendToStreams},
	{id: "R4", run: (*bench).readFullWidth},
	{id: "R5", run: (*bench).readOverHTTP},
	{id: "R6", run: (*bench).readNarrow},
	{id: "R14", run: (*bench).readFiltered},
	{id: "R7", run: (*bench).lookUp},
	{id: "R9", run: (*bench).upsertDurably},
	{id: "R10", run: (*bench).follow},
	{id: "R12", run: (*bench).tierToParquet},
	{id: "R12B", run: (*bench).tierBesideClients},
	{id: "R12M", run: (*bench).tierMany},
	{id: "R12K", run: (*bench).tierChanges},
	{id: "R13", run: (*bench).readUnion},
	{id: "R15", run: (*bench).idleBuckets},
	{id: "R16", run: (*bench).grow},
	{id: "R17", run: (*bench).scaleWorkers, asked: true},
	{id: "R18", run: (*bench).growCluster, asked: true},
}

func measureAll(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	only := strings.FieldsFunc(o.Only, func(r rune) bool { return r == ',' })
	b, err := newBench(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var failed error
	for _, w := range workloads {
		if named := slices.Contains(only, w.id); !named && (w.asked || len(only) > 0) {
			continue
		}
		if err := w.run(b, ctx); err != nil {
			b.note("%s ended early: %v", w.id, err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", w.id, err))
		}
		if ctx.Err() != nil {
			break // what was found so far is reported
		}
	}
	return errors.Join(failed, b.report(context.WithoutCancel(ctx), stdout))
}
