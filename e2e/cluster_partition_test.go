package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/natstest"
)

// insider is a client that is cut off together with a worker, which it asks as a front.
type insider struct {
	cut              atomic.Int64 // when, as time since the history began; 0: not cut
	read, wrote      atomic.Int64 // answers while cut that are later than they may be
	refused, answers atomic.Int64 // while cut, and while not
}

// lease is how long a worker may answer that cannot renew its session, and how far a test sees into that.
const lease, slack = 15 * time.Second, time.Second

// islander is the first client that may be cut off, which is no gap then.
const islander = 100

// run upserts and looks up keys through the worker.
func (in *insider) run(ctx context.Context, h *history, client int, is *island, w *server, path string, random *rand.Rand) {
	c := is.client(2 * time.Second)
	defer c.CloseIdleConnections()
	for ctx.Err() == nil {
		key := int64(time.Since(h.began)/(20*time.Second))*100 + int64(random.IntN(24))
		call := time.Since(h.began)
		cut := time.Duration(in.cut.Load())
		write := random.IntN(3) == 0
		var o fate
		if write {
			op := registerOp{key: key, kind: 'w', value: h.value.Add(1)}
			a, err := ask(c, "PUT", fmt.Sprintf("%s%s/rows/%d", w.base, path, key), fmt.Sprintf(`{"v":%d}`, op.value))
			var why string
			o, why = fateOf(a, err)
			h.add(client, op, int64(call), o, why)
		} else {
			o = h.lookup(c, client, w.base+path, []int64{key})
		}
		switch still := time.Duration(in.cut.Load()); {
		case cut == 0 || still != cut: // not cut all the time
			if o == done {
				in.answers.Add(1)
			}
		case o != done:
			in.refused.Add(1)
		case write && call > cut+slack:
			in.wrote.Add(1)
		case !write && call > cut+lease+slack:
			in.read.Add(1)
		}
		time.Sleep(time.Duration(20+random.IntN(30)) * time.Millisecond)
	}
}

// severance is a cut that a round makes.
type severance struct {
	what string // "worker" or "nats"
	way  string
}

// A worker, or a nats-server, is cut off for longer than a session lasts, in both directions or in one, while clients
// work on both sides (F10). The cut worker acknowledges nothing, answers no lookup after its lease, and its shards are
// served by others; nothing acknowledged is lost or doubled, and every key's history could have happened one after the
// other; when the cut ends, everybody takes part again by themselves.
//
// E2E_CLUSTER_CUTS is how many cuts there are.
func TestClusterPartitions(t *testing.T) {
	if !inNetwork(t) {
		return
	}
	seed := uint64(setting("E2E_CLUSTER_SEED", int(time.Now().UnixNano()%1_000_000)))
	t.Logf("E2E_CLUSTER_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	worker, nats := newIsland(t), newIsland(t)
	f := newFleetOn(t, terrain{host: mainland, worker1: worker, nats: natstest.Options{
		Hosts: []string{nats.address, mainland, mainland}, Under: [][]string{nats.there(), nil, nil},
	}})
	db := newDB(t, f.fronts[0])
	keyed := create(t, f.fronts[0], db, "keyed", "id BIGINT, v BIGINT", "id", 12)
	log := create(t, f.fronts[0], db, "log", "w BIGINT, n BIGINT", "", 12, obj{"bucket_key": []string{"w"}})

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	run := func(do func(r *rand.Rand)) {
		r := rand.New(rand.NewPCG(seed, random.Uint64()))
		wg.Go(func() { do(r) })
	}
	rows, in := newHistory(), &insider{}
	for n := range 4 {
		run(func(r *rand.Rand) { rows.client(ctx, n, f.doors, keyed.path(), r) })
	}
	for n := range 2 {
		run(func(r *rand.Rand) { in.run(ctx, rows, islander+n, worker, f.workers[0], keyed.path(), r) })
	}
	var appenders []*logWriter
	for n := range 6 {
		a := &logWriter{n: n, kind: []string{"sequence", "key", "plain"}[n%3]}
		appenders = append(appenders, a)
		run(func(r *rand.Rand) { a.run(ctx, f.doors, log.path(), r) })
	}

	cuts := []severance{{"worker", bothWays}, {"nats", inward}, {"worker", outward}, {"nats", bothWays}, {"worker", inward}, {"nats", outward}}
	for i := range setting("E2E_CLUSTER_CUTS", 2) {
		c := cuts[i%len(cuts)]
		is := map[string]*island{"worker": worker, "nats": nats}[c.what]
		t.Logf("%s the links of a %s are cut: %s", time.Now().Format("15:04:05.000"), c.what, c.way)
		refused := in.refused.Load()
		is.cut(t, c.way)
		if c.what == "worker" {
			in.cut.Store(int64(time.Since(rows.began)))
			f.without(t, "worker-1")
			time.Sleep(6 * time.Second) // somebody else has them, and those cut off still ask
			require.Greater(t, in.refused.Load(), refused, "what a worker that is cut off is asked is refused")
		} else {
			time.Sleep(time.Duration(20+random.IntN(5)) * time.Second)
		}
		in.cut.Store(0)
		is.join(t, c.way)
		t.Logf("%s the links are whole again", time.Now().Format("15:04:05.000"))
		f.settle(t, patience)
		t.Logf("%s everything is as it was", time.Now().Format("15:04:05.000"))
	}
	answers := in.answers.Load()
	require.Eventually(t, func() bool { return in.answers.Load() > answers }, patience, 50*time.Millisecond, "the worker answers again")
	stop()
	wg.Wait()

	rows.readAll(t, f.doors[1], keyed.path())
	sum := checkAppended(t, f.doors[0], log.path(), appenders)
	t.Logf("rows of keyed tables: %d operations answered, %d refused, %d of unknown outcome; longest gap of a client at a front %v, until %s",
		rows.count[done], rows.count[rejected], rows.count[unknown], rows.gaps.longest.Round(time.Millisecond), rows.gaps.at.Format("15:04:05"))
	for _, a := range appenders {
		t.Logf("writer %d (%s): %d batches, %d sent again; longest gap %v, until %s", a.n, a.kind, len(a.batches), a.resent, a.gaps.longest.Round(time.Millisecond), a.gaps.at.Format("15:04:05"))
	}
	t.Logf("beside the worker that was cut off: %d answers, %d refusals while it was", in.answers.Load(), in.refused.Load())
	t.Logf("appended rows: %+v", sum)
	require.Equal(t, tally{acknowledged: sum.acknowledged}, sum)
	require.Positive(t, sum.acknowledged)
	require.Zero(t, in.wrote.Load(), "writes that a worker acknowledged which nobody could reach")
	require.Zero(t, in.read.Load(), "lookups that a worker answered after its lease")
	rows.check(t)
}

// without waits until every shard is open at another worker than the one named.
func (f *fleet) without(t testing.TB, name string) {
	t.Helper()
	var why string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		shards, err := f.status()
		why = fmt.Sprintf("%+v %v", shards, err)
		free := err == nil && len(shards) == fleetShards
		for _, s := range shards {
			free = free && s.Owner != name && s.State == "open"
		}
		if free {
			return
		}
	}
	t.Fatalf("%s has shards still: %s", name, why)
}
