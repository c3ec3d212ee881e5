package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/objstore/faultproxy"
	"github.com/millrace/millrace/objstore/objstoretest"
)

const fleetShards = 6

// fleet is a whole cluster of processes: three nats-servers, an S3 server, three workers, two fronts.
type fleet struct {
	nats    *natstest.Servers
	store   *gate             // between the processes and the S3 server
	faults  *faultproxy.Proxy // behind it, when it was asked for
	common  []string
	env     []string
	workers []*server
	fronts  []*server
	doors   []string // the addresses of the fronts, which they keep
}

// terrain is where the processes of a fleet run.
type terrain struct {
	host    string // their address
	nats    natstest.Options
	worker1 *island         // of its own, where it is a front too; nil: with the others
	disk1   int             // MiB of the first worker's data directory, a disk of its own; 0: that of all
	faulty  bool            // the S3 server is behind a proxy that makes faults
	ahead   []time.Duration // of the clocks of the workers, then the fronts; nil: they agree
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	return newFleetOn(t, terrain{host: "127.0.0.1"})
}

func newFleetOn(t testing.TB, on terrain) *fleet {
	t.Helper()
	on.nats.Servers, on.nats.Dir = 3, t.TempDir()
	nats, err := natstest.Start(t.Context(), on.nats)
	require.NoError(t, err)
	t.Cleanup(nats.Close)
	f := &fleet{nats: nats}
	s3 := objstoretest.StartGateway(t)
	endpoint := s3.Endpoint
	if on.faulty {
		f.faults, err = faultproxy.Start(t.Context(), endpoint)
		require.NoError(t, err)
		t.Cleanup(f.faults.Close)
		endpoint = f.faults.Endpoint
	}
	f.store = startGate(t, on.host, strings.TrimPrefix(endpoint, "http://"))
	f.env = []string{"AWS_ACCESS_KEY_ID=" + s3.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3.SecretKey}
	f.common = []string{
		"--nats-url", f.nats.URLs(), "--shards", fmt.Sprint(fleetShards), "--log-max-size", "1GiB", "--insecure",
		"--remote-uri", s3.URI("remote"), "--lake-uri", s3.URI("lakes"),
		"--s3-endpoint", "http://" + f.store.address(), "--s3-region", objstoretest.Region, "--s3-path-style",
	}
	dir := t.TempDir()
	for i := range 3 {
		name := fmt.Sprintf("worker-%d", i+1)
		roles, host, under := "worker", on.host, []string(nil)
		if i == 0 && on.worker1 != nil {
			roles, host, under = "worker,front", on.worker1.address, on.worker1.there()
		}
		w := f.process(filepath.Join(dir, name), "--roles", roles, "--worker-name", name, "--http-addr", host+":0", "--flight-addr", host+":0")
		w.under = under
		if i == 0 && on.disk1 > 0 {
			require.NoError(t, os.MkdirAll(w.dir, 0o755))
			w.disk = &disk{w.dir, on.disk1}
		}
		f.workers = append(f.workers, w)
	}
	for i := range 2 {
		name, door := fmt.Sprintf("front-%d", i+1), freeDoor(t, on.host)
		f.fronts = append(f.fronts, f.process(filepath.Join(dir, name), "--roles", "front,tier", "--worker-name", name, "--http-addr", door, "--flight-addr", on.host+":0"))
		f.doors = append(f.doors, "http://"+door)
	}
	t.Cleanup(func() {
		for _, s := range f.all() {
			s.showLog(t)
			s.kill()
		}
	})
	for i, s := range f.all() {
		if on.ahead != nil {
			s.env = append(slices.Clip(s.env), "MILLRACE_CLOCK_AHEAD="+on.ahead[i].String())
		}
		require.NoError(t, s.launchAlone())
	}
	f.settle(t, patience)
	return f
}

func (f *fleet) process(dir string, flags ...string) *server {
	return &server{dir: dir, flags: append(flags, f.common...), env: f.env, log: &tailBuffer{}}
}

func (f *fleet) all() []*server { return append(append([]*server{}, f.workers...), f.fronts...) }

// back starts a process again, which may take a few tries while NATS has no leader.
func (f *fleet) back(t testing.TB, s *server) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = s.launchAlone(); err == nil {
			return
		}
	}
	require.NoError(t, err, "a process does not start again")
}

// leave asks a process to end, which hands over its shards first.
func (f *fleet) leave(t testing.TB, s *server) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.done:
	case <-time.After(patience):
		t.Fatalf("a process did not end within %v of SIGTERM:\n%s", patience, s.log)
	}
	require.Zero(t, s.cmd.ProcessState.ExitCode(), "%s", s.log)
	s.disconnect()
}

// shardStatus is a shard as GET /v1/cluster shows it.
type shardStatus struct {
	Shard        int
	Owner, State string
	Epoch        int64
	Standby      string
	StandbyReady bool   `json:"standby_ready"`
	MovingTo     string `json:"moving_to"`
}

func (f *fleet) status() ([]shardStatus, error) {
	var last error
	for _, door := range f.doors {
		a, err := ask(&http.Client{Timeout: 5 * time.Second}, "GET", door+"/v1/cluster", nil)
		if err == nil && a.status != http.StatusOK {
			err = &statusError{a.status, string(a.body)}
		}
		var c struct{ Shards []shardStatus }
		if err == nil {
			err = json.Unmarshal(a.body, &c)
		}
		if err == nil {
			return c.Shards, nil
		}
		last = err
	}
	return nil, last
}

// epochs is the sum of the shards' epochs: it rises by one each time a shard gets an owner.
func (f *fleet) epochs(t testing.TB) int64 {
	t.Helper()
	shards, err := f.status()
	require.NoError(t, err)
	var sum int64
	for _, s := range shards {
		sum += s.Epoch
	}
	return sum
}

// settle waits until every shard has an owner and a standby that has everything, and the workers that run have as many
// each.
func (f *fleet) settle(t testing.TB, within time.Duration) {
	t.Helper()
	var why string
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		shards, err := f.status()
		if err != nil {
			why = err.Error()
			continue
		}
		each, settled := map[string]int{}, len(shards) == fleetShards
		for _, s := range shards {
			each[s.Owner]++
			settled = settled && s.State == "open" && s.Standby != "" && s.StandbyReady && s.MovingTo == ""
		}
		running := 0
		for _, w := range f.workers {
			if w.runs() {
				running++
			}
		}
		for i, w := range f.workers {
			settled = settled && (!w.runs() || each[fmt.Sprintf("worker-%d", i+1)] == fleetShards/running)
		}
		if settled {
			return
		}
		why = fmt.Sprintf("%+v", shards)
	}
	t.Fatalf("the cluster did not settle within %v: %s", within, why)
}

// ask makes a request of a client of its own and reads the whole answer.
func ask(c *http.Client, method, url string, body any, headers ...string) (answer, error) {
	req, err := (&server{}).request(method, url, body, headers...)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b, resp.Trailer}, err
}

// fate is what a client knows of a request.
type fate int

const (
	done     fate = iota
	rejected      // nothing was done
	unknown       // it may have been done, or may be done yet
	wrong         // an answer that no fault explains
)

// fateOf says what an answer means by its code; allowed are codes that are answers like any other.
func fateOf(a answer, err error, allowed ...string) (fate, string) {
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return rejected, "connection refused"
		}
		return unknown, err.Error()
	}
	if a.status >= 200 && a.status < 300 {
		return done, ""
	}
	var p problem
	if err := json.Unmarshal(a.body, &p); err != nil {
		return wrong, string(a.body)
	}
	for _, code := range allowed {
		if p.Code == code {
			return done, code
		}
	}
	switch p.Code {
	case "unavailable", "not_owner", "draining", "overloaded", "storage_full":
		return rejected, p.Code
	case "unknown_outcome":
		return unknown, p.Code
	}
	return wrong, string(a.body)
}

// freeDoor is an address that a process can have again after it was away: its port is below those that outgoing
// connections get.
func freeDoor(t testing.TB, host string) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("%s:%d", host, 10_000+rand.IntN(22_000))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// gate passes connections on, and can hold everything that passes.
type gate struct {
	l      net.Listener
	target string
	mu     sync.Mutex
	moved  *sync.Cond
	shut   bool
}

func startGate(t testing.TB, host, target string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	require.NoError(t, err)
	g := &gate{l: l, target: target}
	g.moved = sync.NewCond(&g.mu)
	t.Cleanup(func() { l.Close(); g.open() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				c.Close()
				continue
			}
			go g.carry(c, s)
			go g.carry(s, c)
		}
	}()
	return g
}

func (g *gate) address() string { return g.l.Addr().String() }
func (g *gate) close()          { g.set(true) }
func (g *gate) open()           { g.set(false) }

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.moved.Broadcast()
}

func (g *gate) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		g.mu.Lock()
		for g.shut {
			g.moved.Wait()
		}
		g.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wipe removes what a process that does not run has kept.
func wipe(t testing.TB, s *server) {
	t.Helper()
	require.NoError(t, os.RemoveAll(s.dir))
}
