package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"

	millraceserver "github.com/millrace/millrace/server"
)

// serveProfiled is a Millrace server that profiles itself when it is told to on
// standard input: a line that names a file begins, the next one ends.
func serveProfiled(ctx context.Context, args []string, stderr io.Writer) error {
	settings, _, err := loadSettings(args[0])
	if err != nil {
		return err
	}
	go profileOnDemand(os.Stdin, os.Stdout, stderr)
	return millraceserver.Run(ctx, millraceserver.Options{Settings: settings, Version: "bench", Log: stderr})
}

func loadSettings(dir string) (*millraceserver.Settings, millraceserver.Origins, error) {
	return millraceserver.Load(millraceserver.Sources{Flags: map[string]any{
		"http-addr": "127.0.0.1:0", "flight-addr": "127.0.0.1:0", "log-level": "warn", "cache-size": cacheSize, "data-dir": dir,
	}})
}

func profileOnDemand(in io.Reader, out, stderr io.Writer) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		f, err := os.Create(lines.Text())
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(stderr, "bench: no profile:", err)
			return
		}
		fmt.Fprintln(out, "began")
		lines.Scan()
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			fmt.Fprintln(stderr, "bench: no profile:", err)
			return
		}
		fmt.Fprintln(out, "ended")
	}
}

// profileSelf profiles this process until what it gives is called.
func profileSelf(path string) (end func() error, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
