package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// server is the Millrace process under test.
type server struct {
	o      *options
	dir    string
	flags  []string // besides those that all have
	base   string   // http://host:port
	flight string   // host:port
	child  *child
	runs   int // profiles written
}

const database = "bench"

// readyWithin bounds a start, recovery included.
const readyWithin = 2 * time.Minute

func startServer(ctx context.Context, o *options, dir string) (*server, error) {
	s := &server{o: o, dir: dir}
	return s, s.start(ctx)
}

func (s *server) start(ctx context.Context) error {
	addresses := filepath.Join(s.dir, "addresses.json")
	if err := os.Remove(addresses); err != nil && !os.IsNotExist(err) {
		return err
	}
	path, args := s.o.Millrace, []string{"serve", "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0", "--log-level", "warn", "--cache-size", cacheSize, "--data-dir", s.dir}
	args = append(args, s.flags...)
	if s.o.Profile && len(s.flags) == 0 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		path, args = self, []string{roleServer, s.dir}
	}
	var err error
	if s.child, err = startChild(ctx, "millrace", path, args...); err != nil {
		return err
	}
	for deadline := time.Now().Add(readyWithin); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(addresses)
		var a struct {
			HTTP, Flight string
		}
		if err != nil || json.Unmarshal(b, &a) != nil {
			continue // not yet, or half of it
		}
		s.base, s.flight = "http://"+a.HTTP, a.Flight
		if err := s.call(ctx, http.MethodGet, "/readyz", nil); err == nil {
			return nil
		}
	}
	s.child.stop()
	return fmt.Errorf("millrace was not ready within %v", readyWithin)
}

func (s *server) pid() int { return s.child.pid() }

func (s *server) stop() error {
	s.child.stop()
	if code := s.child.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("millrace ended with code %d", code)
	}
	return nil
}

// restart has everything in files, and nothing left to be written.
func (s *server) restart(ctx context.Context) error {
	if err := s.stop(); err != nil {
		return err
	}
	return s.start(ctx)
}

// dial opens Flight connections.
func (s *server) dial(n int) ([]flight.Client, error) { return dialFlight(s.flight, n) }

func dialFlight(addr string, n int) ([]flight.Client, error) {
	var out []flight.Client
	for range n {
		c, err := flight.NewClientWithMiddleware(addr, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func closeAll(clients []flight.Client) {
	for _, c := range clients {
		_ = c.Close() // nothing is under way
	}
}

// call calls the HTTP API; an answer that is no success is an error.
func (s *server) call(ctx context.Context, method, path string, body any) error {
	_, err := s.ask(ctx, method, path, body)
	return err
}

// ask calls the HTTP API for what it answers.
func (s *server) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return b, err
}

func (s *server) createDatabase(ctx context.Context) error {
	err := s.call(ctx, http.MethodPost, "/v1/databases", map[string]string{"name": database})
	return err
}

// table is a table of the server.
type table struct {
	name    string
	columns string // as in SQL
	key     string // columns of the primary key; "" for a log
	// partition is the column that rows are partitioned by; "" for a table without.
	partition  string
	buckets    int
	properties map[string]string
}

func (t *table) full() string { return database + "." + t.name }

func (s *server) create(ctx context.Context, t *table) error {
	var cols []map[string]string
	for c := range strings.SplitSeq(t.columns, ", ") {
		name, typ, _ := strings.Cut(c, " ")
		cols = append(cols, map[string]string{"name": name, "type": typ})
	}
	spec := map[string]any{"name": t.name, "columns": cols, "buckets": t.buckets}
	if t.key != "" {
		spec["primary_key"] = strings.Split(t.key, ",")
	}
	if t.partition != "" {
		spec["partition_by"] = []string{t.partition}
	}
	if t.properties != nil {
		spec["properties"] = t.properties
	}
	err := s.call(ctx, http.MethodPost, "/v1/databases/"+database+"/tables", spec)
	return err
}

// beginProfile has a run of the server profiled when it can be, or one of this process.
// What it gives ends that.
func (s *server) beginProfile(taking map[string]int) (end func() error, err error) {
	if !s.o.Profile || len(taking) > 0 && taking["millrace"] != s.pid() {
		return func() error { return nil }, nil
	}
	s.runs++
	path := filepath.Join(s.o.Dir, fmt.Sprintf("cpu-%03d.prof", s.runs))
	if len(taking) == 0 {
		return profileSelf(path)
	}
	_, err = s.child.ask(path)
	return func() error {
		_, err := s.child.ask("end")
		return err
	}, err
}
