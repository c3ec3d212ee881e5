package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/cluster/natstest"
)

// fleet is a cluster of processes: three nats-servers, workers, and the front that clients speak to.
type fleet struct {
	nats    *natstest.Servers
	workers []*server
	front   *server
	shards  int
}

// fleetShards is what the sizing guide takes for three workers.
const fleetShards = 16

// settleWithin bounds how long shards take to be where they stay.
const settleWithin = 5 * time.Minute

func (b *bench) startFleet(ctx context.Context, name string, workers int) (_ *fleet, err error) {
	dir := b.path(name)
	f := &fleet{shards: fleetShards}
	defer func() {
		if err != nil {
			f.kill()
		}
	}()
	if f.nats, err = natstest.Start(ctx, natstest.Options{Servers: 3, Dir: filepath.Join(dir, "nats")}); err != nil {
		return nil, err
	}
	common := []string{
		"--nats-url", f.nats.URLs(), "--cluster-name", name, "--shards", fmt.Sprint(f.shards), "--log-max-size", "1GiB",
		"--remote-uri", "file://" + filepath.Join(dir, "remote"), "--lake-uri", "file://" + filepath.Join(dir, "lake"),
	}
	process := func(name, roles string) *server {
		return &server{o: b.o, dir: filepath.Join(dir, name), flags: append([]string{"--roles", roles, "--worker-name", name}, common...)}
	}
	for i := range workers {
		f.workers = append(f.workers, process(workerName(i), "worker"))
	}
	f.front = process("front", "front,tier")
	for _, s := range append([]*server{f.front}, f.workers...) {
		if err := s.start(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.settle(ctx); err != nil {
		return nil, err
	}
	return f, f.front.createDatabase(ctx)
}

func workerName(i int) string { return fmt.Sprintf("worker-%d", i+1) }

// kill ends everything; nobody needs the data.
func (f *fleet) kill() {
	for _, s := range append([]*server{f.front}, f.workers...) {
		if s != nil && s.child != nil {
			s.child.kill()
		}
	}
	if f.nats != nil {
		f.nats.Close()
	}
}

// millrace are the processes of ours that run, by name.
func (f *fleet) millrace() map[string]int {
	out := map[string]int{"front": f.front.pid()}
	for i, w := range f.workers {
		if w.child != nil {
			out[workerName(i)] = w.pid()
		}
	}
	return out
}

// servers are the nats-servers, by name.
func (f *fleet) servers() map[string]int {
	out := map[string]int{}
	for i := range f.nats.Len() {
		out[fmt.Sprintf("nats-%d", i+1)] = f.nats.Server(i).PID()
	}
	return out
}

// processes are all of them.
func (f *fleet) processes() map[string]int {
	out := f.millrace()
	maps.Copy(out, f.servers())
	return out
}

// messages are how many messages the nats-servers have got and sent, together.
func (f *fleet) messages(ctx context.Context) (in, out float64, err error) {
	for i := range f.nats.Len() {
		a, b, err := f.nats.Server(i).Messages(ctx)
		if err != nil {
			return 0, 0, err
		}
		in, out = in+float64(a), out+float64(b)
	}
	return in, out, nil
}

// leave ends a worker, which hands over its shards, and waits until they have a place.
func (f *fleet) leave(ctx context.Context, i int) error {
	w := f.workers[i]
	if err := w.stop(); err != nil {
		return err
	}
	w.child = nil
	return f.settle(ctx)
}

// settle waits until each worker that runs has its share of the shards, and each shard a standby that has
// everything, where there is a worker for it.
func (f *fleet) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleWithin, errors.New("the shards do not come to rest"))
	defer cancel()
	for {
		why, err := f.unsettled(ctx)
		if err == nil && why == "" {
			return nil
		}
		if err != nil {
			why = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), why)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// unsettled says what is not as it will stay.
func (f *fleet) unsettled(ctx context.Context) (string, error) {
	body, err := f.front.ask(ctx, http.MethodGet, "/v1/cluster", nil)
	if err != nil {
		return "", err
	}
	var c struct {
		Shards []struct {
			Shard                 int
			Owner, State, Standby string
			StandbyReady          bool   `json:"standby_ready"`
			MovingTo              string `json:"moving_to"`
		}
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return "", err
	}
	running, owned := 0, map[string]int{}
	for _, w := range f.workers {
		if w.child != nil {
			running++
		}
	}
	if len(c.Shards) != f.shards {
		return fmt.Sprintf("%d shards", len(c.Shards)), nil
	}
	for _, s := range c.Shards {
		owned[s.Owner]++
		if s.State != "open" || s.MovingTo != "" || running > 1 && (s.Standby == "" || !s.StandbyReady) {
			return fmt.Sprintf("%+v", s), nil
		}
	}
	most := (f.shards + running - 1) / running
	if len(owned) != running {
		return fmt.Sprintf("owners %v", owned), nil
	}
	for w, n := range owned {
		if n > most {
			return fmt.Sprintf("%s has %d shards", w, n), nil
		}
	}
	return "", nil
}

// memory is what each process holds in MiB.
func (f *fleet) memory() (map[string]float64, error) {
	out := map[string]float64{}
	for name, pid := range f.processes() {
		var err error
		if out[name], err = memoryMiB(pid); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isNATS says whether a process is a nats-server, by its name.
func isNATS(process string) bool { return strings.HasPrefix(process, "nats-") }

// together is the sum over all processes of Millrace, or of NATS; the harness is neither.
func together(of map[string]float64, nats bool) float64 {
	sum := 0.0
	for name, v := range of {
		if name != "harness" && isNATS(name) == nats {
			sum += v
		}
	}
	return sum
}
