package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fault is something that goes wrong, or is done on purpose, while clients work; it ends with all processes running.
type fault struct {
	name string
	do   func(t *testing.T, f *fleet, random *rand.Rand)
}

// faults are all of them; a run of the short form has each about once, in an order that its seed gives.
var faults = []fault{
	{"kill -9 of a worker", func(t *testing.T, f *fleet, random *rand.Rand) {
		w := f.workers[random.IntN(len(f.workers))]
		w.kill()
		// Back at once it goes on with its shards; later, others have them.
		time.Sleep(time.Duration(random.IntN(2)) * 18 * time.Second)
		f.back(t, w)
	}},
	{"kill -9 of a front", func(t *testing.T, f *fleet, random *rand.Rand) {
		s := f.fronts[random.IntN(len(f.fronts))]
		s.kill()
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		f.back(t, s)
	}},
	{"kill -9 of a nats-server", func(t *testing.T, f *fleet, random *rand.Rand) {
		n := f.nats.Server(random.IntN(f.nats.Len()))
		n.Kill()
		time.Sleep(time.Duration(random.IntN(8000)) * time.Millisecond)
		require.NoError(t, n.Start())
		require.NoError(t, f.nats.Ready(t.Context()))
	}},
	{"a worker stands still for longer than its session", func(t *testing.T, f *fleet, random *rand.Rand) {
		w := f.workers[random.IntN(len(f.workers))]
		require.NoError(t, w.cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(time.Duration(20+random.IntN(10)) * time.Second)
		require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
	}},
	{"a worker leaves and comes back", func(t *testing.T, f *fleet, random *rand.Rand) {
		w := f.workers[random.IntN(len(f.workers))]
		f.leave(t, w)
		f.back(t, w)
	}},
	{"a worker loses its disk", func(t *testing.T, f *fleet, random *rand.Rand) {
		w := f.workers[random.IntN(len(f.workers))]
		w.kill()
		wipe(t, w)
		f.back(t, w)
	}},
	{"the object store does not answer", func(_ *testing.T, f *fleet, random *rand.Rand) {
		f.store.close()
		time.Sleep(time.Duration(5+random.IntN(10)) * time.Second)
		f.store.open()
	}},
}

// Clients upsert, look up, append and change tables through both fronts of a cluster whose processes are killed, paused,
// drained and emptied, and whose clocks are up to two hours apart. Each key's history, and each table name's, could have happened one after the other (F1); what was
// acknowledged is there once and in order, what was refused is not (F2, F3, F11).
//
// E2E_CLUSTER_SECONDS is how long faults begin, E2E_CLUSTER_SEED gives their order.
func TestClusterTorture(t *testing.T) {
	seed := uint64(setting("E2E_CLUSTER_SEED", int(time.Now().UnixNano()%1_000_000)))
	length := time.Duration(setting("E2E_CLUSTER_SECONDS", 60)) * time.Second
	t.Logf("E2E_CLUSTER_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var clocks []time.Duration // no two of which agree
	for range 5 {
		clocks = append(clocks, time.Duration(random.Int64N(int64(2*time.Hour)))-time.Hour)
	}
	f := newFleetOn(t, terrain{host: "127.0.0.1", ahead: clocks})
	front := f.fronts[0]
	db := newDB(t, front)
	keyed := create(t, front, db, "keyed", "id BIGINT, v BIGINT", "id", 12)
	log := create(t, front, db, "log", "w BIGINT, n BIGINT", "", 12, obj{"bucket_key": []string{"w"}})

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	clients := func(n int, run func(n int, random *rand.Rand)) {
		for i := range n {
			r := rand.New(rand.NewPCG(seed, random.Uint64()))
			wg.Go(func() { run(i, r) })
		}
	}
	rows, tables := newHistory(), &catalogHistory{began: time.Now()}
	clients(6, func(n int, r *rand.Rand) { rows.client(ctx, n, f.doors, keyed.path(), r) })
	clients(2, func(n int, r *rand.Rand) { tables.race(ctx, n, f.doors, db, r) })
	clients(1, func(int, *rand.Rand) { tables.travel(ctx, f.doors, db) })
	var appenders []*logWriter
	for n := range 6 {
		appenders = append(appenders, &logWriter{n: n, kind: []string{"sequence", "key", "plain"}[n%3]})
	}
	clients(len(appenders), func(n int, r *rand.Rand) { appenders[n].run(ctx, f.doors, log.path(), r) })

	epochs, counts, end := f.epochs(t), map[string]int{}, time.Now().Add(length)
	var order []int
	for time.Now().Before(end) {
		if len(order) == 0 {
			order = random.Perm(len(faults))
		}
		next := faults[order[0]]
		order = order[1:]
		t.Logf("%s %s", time.Now().Format("15:04:05.000"), next.name)
		next.do(t, f, random)
		counts[next.name]++
		// Now and then the next one comes while the cluster is not itself again.
		if random.IntN(3) > 0 {
			f.settle(t, patience)
		} else {
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
	}
	f.settle(t, patience)
	time.Sleep(time.Second)
	moves := f.epochs(t) - epochs
	stop()
	wg.Wait()

	rows.readAll(t, f.doors[1], keyed.path())
	sum := checkAppended(t, f.doors[0], log.path(), appenders)
	for name, n := range counts {
		t.Logf("%3d × %s", n, name)
	}
	t.Logf("%d times a shard got an owner", moves)
	t.Logf("rows of keyed tables: %d operations answered, %d refused, %d of unknown outcome; longest gap of a client %v, until %s",
		rows.count[done], rows.count[rejected], rows.count[unknown], rows.gaps.longest.Round(time.Millisecond), rows.gaps.at.Format("15:04:05"))
	t.Logf("tables: %d operations answered; longest gap of a client %v, until %s", tables.count, tables.gaps.longest.Round(time.Millisecond), tables.gaps.at.Format("15:04:05"))
	for _, a := range appenders {
		t.Logf("writer %d (%s): %d batches, %d sent again; longest gap %v, until %s", a.n, a.kind, len(a.batches), a.resent, a.gaps.longest.Round(time.Millisecond), a.gaps.at.Format("15:04:05"))
	}
	t.Logf("appended rows: %s", fmt.Sprintf("%+v", sum))
	require.Equal(t, tally{acknowledged: sum.acknowledged}, sum)
	require.Positive(t, sum.acknowledged)
	rows.check(t)
	tables.check(t)
}
