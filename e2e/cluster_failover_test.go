package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// stateRow is about what a row of the state takes in Pebble; its text compresses little.
	stateRow = 1 << 10
	// loadRows is how many of them one request writes.
	loadRows = 400
)

// How long a cluster serves less when something is killed (F3): a worker that is started again at once, a worker that
// stays away, and the nats-server that leads the log of the largest shard. One shard has E2E_FAILOVER_MB of keyed state,
// 8 unless it is set, and its owner is what is killed, E2E_FAILOVER_TIMES each, while rows are upserted and looked up in
// all shards. What is acknowledged is read back. The figures are logged, since no machine is promised to be quick.
func TestClusterFailOver(t *testing.T) {
	size, times := setting("E2E_FAILOVER_MB", 8), setting("E2E_FAILOVER_TIMES", 1)
	f := newFleet(t)
	state := create(t, f.fronts[0], newDB(t, f.fronts[0]), "state", "id BIGINT, v STRING", "id", 1)
	probed := create(t, f.fronts[0], state.db, "probed", "id BIGINT, v STRING", "id", 24)
	shard := f.shardOf(t, state)
	rows := size << 20 / stateRow
	began := time.Now()
	f.fill(t, state, rows)
	t.Logf("%d MiB in shard %d after %.0f s", size, shard, time.Since(began).Seconds())
	f.settle(t, 5*time.Minute)

	p := newProbes(t, f, probed, state, rows)
	defer p.halt()
	for range times {
		f.figure(t, p, "a worker is killed and started at once", 5*time.Second, func() {
			w := f.owner(t, shard)
			w.kill()
			f.back(t, w)
		}, nil)
	}
	for range times {
		var w *server
		f.figure(t, p, "a worker is killed and stays away", 20*time.Second, func() {
			w = f.owner(t, shard)
			w.kill()
		}, func() { f.back(t, w) })
	}
	for range times {
		leader, err := f.nats.StreamLeader(t.Context(), f.logStream(t, shard))
		require.NoError(t, err)
		require.NotNil(t, leader)
		f.figure(t, p, "the nats-server that leads the log is killed", 15*time.Second, leader.Kill, func() {
			require.NoError(t, leader.Start())
			require.NoError(t, f.nats.Ready(t.Context()))
		})
	}
	p.halt()
	require.Empty(t, p.problems)
	count := f.fronts[1].ok(t, "POST", "/v1/sql", obj{"sql": fmt.Sprintf("SELECT COUNT(*) AS n FROM %s.state", state.db)})
	require.Contains(t, fmt.Sprint(count["rows"]), fmt.Sprint(rows), "%v", count)
}

// figure does something to the cluster while probes are at work, waits until all of them go on and then mends it, and
// logs how long each kind of them got nothing done.
func (f *fleet) figure(t *testing.T, p *probes, what string, bound time.Duration, fault, mend func()) {
	t.Helper()
	p.advance(t, 2*time.Minute)
	load, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	p.begin()
	at := time.Now()
	fault()
	p.advance(t, 2*time.Minute)
	all, large := p.longest()
	verdict := "within"
	if max(all, large) > bound {
		verdict = "MISSES"
	}
	t.Logf("%s %s: longest gap of a client %.2f s, of the shard with the state %.2f s; %s the bound of %v; load %s", at.Format("15:04:05"), what,
		all.Seconds(), large.Seconds(), verdict, bound, strings.Join(strings.Fields(string(load))[:3], " "))
	if mend != nil {
		mend()
	}
	f.settle(t, 5*time.Minute)
}

// cluster is what GET /v1/cluster says.
func (f *fleet) cluster(t testing.TB, into any) {
	t.Helper()
	a := f.fronts[0].do(t, "GET", "/v1/cluster", nil)
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	require.NoError(t, json.Unmarshal(a.body, into))
}

// shardOf writes a row to a table of one bucket, and finds the only shard that has a bucket then.
func (f *fleet) shardOf(t testing.TB, one table) int {
	t.Helper()
	one.write(t, `[{"id":0,"v":""}]`)
	var c struct {
		Shards []struct{ Shard, Buckets int }
	}
	f.cluster(t, &c)
	i := slices.IndexFunc(c.Shards, func(s struct{ Shard, Buckets int }) bool { return s.Buckets > 0 })
	require.GreaterOrEqual(t, i, 0, "%+v", c)
	return c.Shards[i].Shard
}

// owner is the worker that serves a shard.
func (f *fleet) owner(t testing.TB, shard int) *server {
	t.Helper()
	shards, err := f.status()
	require.NoError(t, err)
	for i, w := range f.workers {
		if shards[shard].Owner == fmt.Sprintf("worker-%d", i+1) {
			return w
		}
	}
	t.Fatalf("nobody owns shard %d: %+v", shard, shards)
	return nil
}

// logStream is the name that docs/adr/0007-cluster.md gives to the stream of a shard's log.
func (f *fleet) logStream(t testing.TB, shard int) string {
	t.Helper()
	var c struct {
		ID string `json:"cluster_id"`
	}
	f.cluster(t, &c)
	return fmt.Sprintf("mr_%s_wal_%d", strings.ReplaceAll(c.ID, "-", "")[:8], shard)
}

// fill upserts rows 0 to n-1, a few requests at a time.
func (f *fleet) fill(t testing.TB, to table, n int) {
	t.Helper()
	var next atomic.Int64
	var wait sync.WaitGroup
	failed := make(chan error, 4)
	for client := range cap(failed) {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 0))
			c := &http.Client{Timeout: time.Minute}
			defer c.CloseIdleConnections()
			for {
				lo := int(next.Add(loadRows)) - loadRows
				if lo >= n {
					return
				}
				a, err := ask(c, "POST", f.doors[client%len(f.doors)]+to.path()+"/records", stateRows(random, lo, min(lo+loadRows, n)), "Content-Type", mediaNDJSON)
				if err == nil && a.status/100 != 2 {
					err = &statusError{a.status, string(a.body)}
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wait.Wait()
	select {
	case err := <-failed:
		require.NoError(t, err)
	default:
	}
}

// stateRows are rows lo to hi-1 with new texts.
func stateRows(random *rand.Rand, lo, hi int) string {
	var b strings.Builder
	body := make([]byte, (stateRow-64)/4*3)
	for id := lo; id < hi; id++ {
		for i := range body {
			body[i] = byte(random.Uint32())
		}
		fmt.Fprintf(&b, "{\"id\":%d,\"v\":%q}\n", id, base64.StdEncoding.EncodeToString(body))
	}
	return b.String()
}

// probes are clients that upsert a row each and look it up, over and over, and one that upserts rows of the large state.
type probes struct {
	f *fleet

	stop chan struct{}
	once sync.Once
	wait sync.WaitGroup

	mu       sync.Mutex
	rounds   []int
	all      gaps // of clients of all shards
	large    gaps // of those of the large one
	problems []string
}

const (
	probesOfAll   = 48
	probesOfLarge = 2
)

func newProbes(t *testing.T, f *fleet, all, state table, rows int) *probes {
	t.Helper()
	p := &probes{f: f, stop: make(chan struct{}), rounds: make([]int, probesOfAll+probesOfLarge+1)}
	for n := range probesOfAll {
		p.wait.Go(func() { p.probe(n, &p.all, all, n, 100*time.Millisecond) })
	}
	for n := range probesOfLarge {
		p.wait.Go(func() { p.probe(probesOfAll+n, &p.large, state, n, 20*time.Millisecond) })
	}
	p.wait.Go(func() { p.work(probesOfAll+probesOfLarge, state, rows) })
	return p
}

// probe upserts a row and looks it up until it is told to stop; what fails is tried again.
func (p *probes) probe(n int, g *gaps, to table, key int, pause time.Duration) {
	c := &http.Client{Timeout: time.Minute}
	defer c.CloseIdleConnections()
	for round := 1; p.sleep(pause); round++ {
		want := fmt.Sprintf("%d of %d", round, n)
		if !p.until(c, n+round, "PUT", fmt.Sprintf("%s/rows/%d", to.path(), key), fmt.Sprintf(`{"v":%q}`, want), nil) {
			return
		}
		var got struct {
			Rows []*struct{ V string }
		}
		if !p.until(c, n+round+1, "POST", to.path()+"/lookup", fmt.Sprintf(`{"keys":[{"id":%d}]}`, key), &got) {
			return
		}
		p.passed(n, g)
		if len(got.Rows) != 1 || got.Rows[0] == nil || got.Rows[0].V != want {
			p.mu.Lock()
			p.problems = append(p.problems, fmt.Sprintf("client %d wrote %q and read %+v", n, want, got.Rows))
			p.mu.Unlock()
		}
	}
}

// work upserts rows of the large state, so that checkpoints and standbys have to do.
func (p *probes) work(n int, state table, rows int) {
	c := &http.Client{Timeout: time.Minute}
	defer c.CloseIdleConnections()
	random := rand.New(rand.NewPCG(1, 1))
	for p.sleep(50 * time.Millisecond) {
		lo := probesOfLarge + random.IntN(rows-loadRows)
		if !p.until(c, n, "POST", state.path()+"/records", stateRows(random, lo, min(lo+loadRows, rows)), nil, "Content-Type", mediaNDJSON) {
			return
		}
		p.passed(n, &p.large)
	}
}

// until makes a request until it succeeds, or false when the probes are to stop.
func (p *probes) until(c *http.Client, front int, method, path string, body, into any, headers ...string) bool {
	for {
		a, err := ask(c, method, p.f.doors[front%len(p.f.doors)]+path, body, headers...)
		if o, why := fateOf(a, err); o == done {
			err = nil
			if into != nil {
				err = json.Unmarshal(a.body, into)
			}
			return err == nil
		} else if o == wrong {
			p.mu.Lock()
			p.problems = append(p.problems, why)
			p.mu.Unlock()
			return false
		}
		if !p.sleep(20 * time.Millisecond) {
			return false
		}
	}
}

func (p *probes) sleep(d time.Duration) bool {
	select {
	case <-p.stop:
		return false
	case <-time.After(d):
		return true
	}
}

func (p *probes) passed(n int, g *gaps) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rounds[n]++
	g.passed(n)
}

// begin forgets the gaps there were.
func (p *probes) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.longest, p.large.longest = 0, 0
}

func (p *probes) longest() (all, large time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.longest, p.large.longest
}

// advance waits until every client has done something that it began after now.
func (p *probes) advance(t *testing.T, within time.Duration) {
	t.Helper()
	p.mu.Lock()
	before := slices.Clone(p.rounds)
	p.mu.Unlock()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for n := range before {
			// The second one after now is one that began after it.
			if p.rounds[n] < before[n]+2 {
				return len(p.problems) > 0
			}
		}
		return true
	}, within, 20*time.Millisecond, "clients do not go on")
}

func (p *probes) halt() {
	p.once.Do(func() { close(p.stop) })
	p.wait.Wait()
}
