package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/apache/arrow-go/v18/arrow/flight"
)

// readFullWidth is R4: one client reads all 40 columns of the table over Flight,
// against Flight servers that have the same batches in memory.
func (b *bench) readFullWidth(ctx context.Context) error {
	if err := b.loadWide(ctx); err != nil {
		return err
	}
	clients, err := b.server.dial(1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	tickets, err := plan(ctx, clients[0], scanOf(b.wide, request{"compression": "stored"}))
	if err != nil {
		return err
	}
	reader, err := b.newReader(ctx)
	if err != nil {
		return err
	}
	defer reader.close()

	arrowGo, err := startYardstick(ctx, roleArrowFly, "", b.server.flight, tickets)
	if err != nil {
		return err
	}
	defer arrowGo.child.stop()
	if err := b.compareReads(ctx, reader, tickets, "arrow-go's Flight server, from memory", arrowGo); err != nil {
		return err
	}
	if !reader.pyarrow() {
		return nil
	}
	cpp, err := startYardstick(ctx, b.o.Python, "bench/flight_server.py", b.server.flight, tickets)
	if err != nil {
		return err
	}
	defer cpp.child.stop()
	return b.compareReads(ctx, reader, tickets, "pyarrow's (C++) Flight server, from memory", cpp)
}

func (b *bench) compareReads(ctx context.Context, r *reader, tickets [][]byte, yardName string, yard *yardstick) error {
	megabytes := b.wideMegabytes() * float64(b.size.Repeat)
	read := func(name, addr string, pid int, tickets [][]byte) side {
		procs := map[string]int{"server": pid, "millrace": b.server.pid()}
		if r.pyarrow() {
			procs["client"] = r.child.pid()
		}
		return side{name: name, processes: procs, work: func(ctx context.Context) (float64, int64, error) {
			return megabytes, 0, r.read(ctx, addr, tickets, b.size.Repeat)
		}}
	}
	return b.compare(ctx, &comparison{
		id: "R4", what: "full-width log read over Flight, stored, by " + r.name(),
		ours: read("millrace", b.server.flight, b.server.pid(), tickets),
		yard: read(yardName, yard.addr, yard.child.pid(), [][]byte{[]byte("all")}),
		metrics: []metric{
			{name: "MB/s", unit: "MB/s", target: 1.0, of: func(s *sample, _ bool) float64 { return s.perSecond() }},
			{name: "per server-CPU-second", unit: "MB/CPU-s", target: 0.9, of: func(s *sample, _ bool) float64 { return s.perCPU("server") }},
		},
	})
}

// yardstick is a server that has the batches in memory.
type yardstick struct {
	child *child
	addr  string
}

// startYardstick starts a server that reads the tickets from Millrace, once, and
// then has what they gave.
func startYardstick(ctx context.Context, program, script, from string, tickets [][]byte) (*yardstick, error) {
	var args []string
	if script == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		args, program = append(args, program), self
	} else {
		args = append(args, script)
	}
	args = append(args, from)
	for _, t := range tickets {
		args = append(args, base64.StdEncoding.EncodeToString(t))
	}
	c, err := startChild(ctx, "yardstick", program, args...)
	if err != nil {
		return nil, err
	}
	addr, err := c.ask("")
	if err != nil {
		c.stop()
		return nil, err
	}
	return &yardstick{c, addr}, nil
}

// reader is the client of reads: stock pyarrow, or arrow-go without decoding.
type reader struct {
	child   *child // nil: arrow-go
	version string
	clients map[string]flight.Client
}

func hasPyarrow(ctx context.Context, python string) bool {
	return exec.CommandContext(ctx, python, "-c", "import pyarrow.flight").Run() == nil
}

func (b *bench) newReader(ctx context.Context) (*reader, error) {
	r := &reader{clients: map[string]flight.Client{}}
	if !hasPyarrow(ctx, b.o.Python) {
		b.note("R4: %s has no pyarrow (make interop installs it): arrow-go reads, without decoding", b.o.Python)
		return r, nil
	}
	var err error
	if r.child, err = startChild(ctx, "pyarrow", b.o.Python, "bench/flight_client.py"); err != nil {
		return nil, err
	}
	r.version, err = r.child.ask("")
	return r, err
}

func (r *reader) pyarrow() bool { return r.child != nil }

func (r *reader) name() string {
	if r.pyarrow() {
		return "pyarrow " + r.version
	}
	return "arrow-go, not decoded"
}

func (r *reader) read(ctx context.Context, addr string, tickets [][]byte, repeat int) error {
	if r.pyarrow() {
		job, err := json.Marshal(map[string]any{"server": addr, "tickets": tickets, "repeat": repeat})
		if err != nil {
			return err
		}
		answer, err := r.child.ask(string(job))
		if err == nil && answer == "0" {
			err = fmt.Errorf("the stream of %s was empty", addr)
		}
		return err
	}
	c := r.clients[addr]
	if c == nil {
		dialed, err := dialFlight(addr, 1)
		if err != nil {
			return err
		}
		c = dialed[0]
		r.clients[addr] = c
	}
	for range repeat {
		if _, err := drain(ctx, c, tickets...); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) close() {
	if r.pyarrow() {
		r.child.stop()
	}
	for _, c := range r.clients {
		_ = c.Close() // nothing is under way
	}
}
