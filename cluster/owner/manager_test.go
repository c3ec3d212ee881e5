package owner_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/cluster/owner/ownertest"
)

const simShards = 12

// world is a cluster in a bubble: the keys, and what stands for the logs of the shards.
type world struct {
	t     *testing.T
	rnd   *rand.Rand
	store *ownertest.Store
	began time.Time
	log   *slog.Logger

	mu    sync.Mutex
	logs  [simShards]fence
	procs map[string]*process
	last  map[string]string // incarnation in a process's data directory
}

// fence is the log of a shard: who wrote the newest epoch record.
type fence struct {
	epoch millrace.Epoch
	by    *process
}

// process is a worker process: a manager, and a host that opens shards in no time or some.
type process struct {
	w       *world
	name    string
	m       *owner.Manager
	keys    *ownertest.Client
	skew    time.Duration // of its clock
	end     context.CancelFunc
	run     context.Context
	mu      sync.Mutex
	led     map[millrace.ShardID]led
	follows map[millrace.ShardID]time.Time // since when
	broken  map[millrace.ShardID]bool
	short   map[millrace.ShardID]bool // stop by themselves before Lead, or Follow, has returned
	slow    bool                      // Follow does not return
}

type led struct {
	epoch millrace.Epoch
	valid func() error
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), store: ownertest.NewStore(), began: time.Now(),
		log: slog.New(slog.DiscardHandler), procs: map[string]*process{}, last: map[string]string{},
	}
}

// start starts a process in the data directory that it had before.
func (w *world) start(name string) *process {
	p := w.process(name)
	p.m = owner.New(p.options(w.last[name]))
	w.procs[name] = p
	require.NoError(w.t, p.m.Start(p.run))
	return p
}

func (w *world) process(name string) *process {
	p := &process{
		w: w, name: name, keys: w.store.Client(), skew: time.Duration(w.rnd.IntN(7200)) * time.Second,
		led: map[millrace.ShardID]led{}, follows: map[millrace.ShardID]time.Time{}, broken: map[millrace.ShardID]bool{}, short: map[millrace.ShardID]bool{},
	}
	p.run, p.end = context.WithCancel(context.Background())
	return p
}

func (p *process) options(last string) owner.Options {
	n := 0
	return owner.Options{
		Worker: p.name, Info: owner.Info{Roles: []string{owner.RoleWorker}}, Keys: p.keys, Host: p,
		Shards: func() int { return simShards }, Clock: p, Logger: p.w.log,
		Random: func() string { n++; return fmt.Sprintf("%s-%p-%d", p.name, p, n) },
		Last:   last,
		Remember: func(incarnation string) error {
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			p.w.last[p.name] = incarnation
			return nil
		},
	}
}

// crash ends a process without a word.
func (p *process) crash() {
	p.keys.Cut()
	p.mu.Lock()
	p.led, p.follows = map[millrace.ShardID]led{}, map[millrace.ShardID]time.Time{}
	p.mu.Unlock()
	p.end()
	p.m.Kill()
	delete(p.w.procs, p.name)
}

// Boot implements owner.Clock: no two machines agree on it.
func (p *process) Boot() time.Duration { return time.Since(p.w.began) + p.skew }

func (p *process) takes(ctx context.Context, most time.Duration) error {
	p.w.mu.Lock()
	d := time.Duration(p.w.rnd.Int64N(int64(most)))
	p.w.mu.Unlock()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.run.Done():
		return errors.New("the process is gone")
	}
}

// Lead implements owner.Host.
func (p *process) Lead(ctx context.Context, id millrace.ShardID, least millrace.Epoch, valid func() error) (millrace.Epoch, error) {
	if err := p.takes(ctx, time.Second); err != nil {
		return 0, err
	}
	p.mu.Lock()
	broken := p.broken[id]
	p.mu.Unlock()
	if broken {
		return 0, errors.New("the disk is damaged")
	}
	p.w.mu.Lock()
	f := &p.w.logs[id]
	f.epoch, f.by = max(f.epoch+1, least), p
	epoch := f.epoch
	p.w.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run.Err() != nil {
		return 0, p.run.Err()
	}
	delete(p.follows, id)
	if p.short[id] {
		delete(p.short, id)
		p.m.Stopped(id, errors.New("fenced"))
		return epoch, nil
	}
	p.led[id] = led{epoch, valid}
	return epoch, nil
}

// Resign implements owner.Host.
func (p *process) Resign(ctx context.Context, id millrace.ShardID) error {
	err := p.takes(ctx, 300*time.Millisecond)
	p.Abandon(id)
	return err
}

// Abandon implements owner.Host.
func (p *process) Abandon(id millrace.ShardID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.led, id)
	delete(p.follows, id)
}

// Follow implements owner.Host.
func (p *process) Follow(ctx context.Context, id millrace.ShardID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slow {
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		return ctx.Err()
	}
	if p.short[id] {
		delete(p.short, id)
		p.m.Stopped(id, errors.New("purged"))
		return nil
	}
	p.follows[id] = time.Now()
	return nil
}

// Standings implements owner.Host.
func (p *process) Standings() map[millrace.ShardID]owner.Standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[millrace.ShardID]owner.Standing{}
	for id, since := range p.follows {
		out[id] = owner.Standing{Ready: time.Since(since) > 2*time.Second}
	}
	return out
}

// answers says whether the process would answer reads of a shard now.
func (p *process) answers(id millrace.ShardID) bool {
	p.mu.Lock()
	l, ok := p.led[id]
	p.mu.Unlock()
	return ok && l.valid() == nil
}

// check looks at one moment: of a shard at most one process answers, and if one does, nobody
// has begun a later epoch.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range millrace.ShardID(simShards) {
		var who []string
		for _, p := range w.procs {
			if p.answers(id) {
				who = append(who, p.name)
				require.Same(w.t, w.logs[id].by, p, "shard %d is answered for by %s, and another has begun an epoch", id, p.name)
			}
		}
		require.LessOrEqual(w.t, len(who), 1, "shard %d is answered for by %v", id, who)
	}
}

// served is how many shards somebody answers for, and by whom.
func (w *world) served() (n int, by map[string]int) {
	by = map[string]int{}
	for id := range millrace.ShardID(simShards) {
		for _, p := range w.procs {
			if p.answers(id) {
				n++
				by[p.name]++
			}
		}
	}
	return n, by
}

// pass lets time pass, checking at every step.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		w.check()
	}
}

// until lets time pass until something holds, and returns how long it took.
func (w *world) until(most time.Duration, what string, holds func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) >= most {
			for _, e := range w.store.Entries() {
				w.t.Log(e.Key, e.Revision, string(e.Value))
			}
		}
		require.Less(w.t, time.Since(began), most, "waited for: %s", what)
		w.pass(25 * time.Millisecond)
	}
	return time.Since(began)
}

func (w *world) allServed() bool { n, _ := w.served(); return n == simShards }

func (w *world) balanced() bool {
	n, by := w.served()
	for _, p := range by {
		if p > (simShards+len(w.procs)-1)/len(w.procs) {
			return false
		}
	}
	return n == simShards
}

func (w *world) stopAll() {
	for _, p := range w.procs {
		require.NoError(w.t, p.m.Stop(context.Background()))
		p.end()
	}
}

func TestWorkersShareShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.start("a")
		w.start("b")
		w.start("c")
		w.until(30*time.Second, "all shards are served, evenly", w.balanced)
		d := w.until(30*time.Second, "every shard has a standby that is ready", func() bool {
			for _, s := range w.procs["a"].m.View().Shards {
				if s.Standby == "" || !s.Ready || s.Standby == s.Owner {
					return false
				}
			}
			return true
		})
		t.Log("standbys ready after", d)
		w.stopAll()
	})
}

func TestDeadWorkerIsReplacedInTwentySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		for _, n := range []string{"a", "b", "c"} {
			w.start(n)
		}
		w.until(30*time.Second, "balance", w.balanced)
		w.pass(10 * time.Second)
		w.procs["b"].crash()
		d := w.until(20*time.Second, "the others serve all", w.allServed)
		require.Greater(t, d, 10*time.Second, "a session lives for fifteen seconds")
		t.Log("took over after", d)
		w.until(time.Minute, "balance", w.balanced)
		w.stopAll()
	})
}

func TestRestartedWorkerTakesItsShardsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for _, n := range []string{"a", "b", "c"} {
			w.start(n)
		}
		w.until(30*time.Second, "balance", w.balanced)
		_, before := w.served()
		w.procs["b"].crash()
		w.pass(2 * time.Second)
		w.start("b")
		d := w.until(5*time.Second, "it serves again", w.allServed)
		_, after := w.served()
		require.Equal(t, before, after)
		t.Log("back after", d)
		w.stopAll()
	})
}

// TestDrainMovesShards: while a worker drains, a shard is unserved only for as long as one
// hand-over takes.
func TestDrainMovesShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		for _, n := range []string{"a", "b", "c"} {
			w.start(n)
		}
		w.until(30*time.Second, "balance", w.balanced)
		w.pass(5 * time.Second)
		done := make(chan struct{})
		p := w.procs["b"]
		go func() {
			defer close(done)
			p.m.Drain(p.run)
			require.NoError(t, p.m.Stop(p.run))
		}()
		var gap [simShards]time.Duration
		w.until(30*time.Second, "the worker is drained", func() bool {
			for id := range millrace.ShardID(simShards) {
				answered := false
				for _, p := range w.procs {
					answered = answered || p.answers(id)
				}
				if !answered {
					gap[id] += 25 * time.Millisecond
				}
			}
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		for id, g := range gap {
			require.LessOrEqual(t, g, 3*time.Second, "shard %d", id)
		}
		p.end()
		delete(w.procs, "b")
		require.Eventually(t, w.allServed, 5*time.Second, 10*time.Millisecond)
		w.stopAll()
	})
}

// TestShardThatStopsWhileItIsTaken: that a shard stopped, or is followed no more, is not
// forgotten when the task that began it ends after that.
func TestShardThatStopsWhileItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 7)
		a := w.start("a")
		a.mu.Lock()
		a.short[3] = true
		a.mu.Unlock()
		w.until(20*time.Second, "all shards are served", w.allServed)
		b := w.start("b")
		b.mu.Lock()
		for id := range millrace.ShardID(simShards) {
			b.short[id] = true
		}
		b.mu.Unlock()
		w.until(time.Minute, "balance", w.balanced)
		w.stopAll()
	})
}

// TestTakingDoesNotWaitForFollowing: a worker that fetches shards to follow them, however
// long that takes, serves others meanwhile when their owners die.
func TestTakingDoesNotWaitForFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.start("a")
		w.until(20*time.Second, "all shards are served", w.allServed)
		b := w.start("b")
		b.mu.Lock()
		b.slow = true
		b.mu.Unlock()
		w.pass(5 * time.Second)
		w.procs["a"].crash()
		w.until(20*time.Second, "those that are not being fetched are served", func() bool {
			n, _ := w.served()
			return n >= simShards-4
		})
		w.stopAll()
	})
}

// TestKeysAreAwayForAll: when nobody could renew a session, nobody takes the others for dead
// as soon as it can again: all go on with what they had.
func TestKeysAreAwayForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 9)
		for _, n := range []string{"a", "b", "c"} {
			w.start(n)
		}
		w.until(30*time.Second, "balance", w.balanced)
		w.pass(5 * time.Second)
		w.mu.Lock()
		before := w.logs
		w.mu.Unlock()
		for _, p := range w.procs {
			p.keys.Cut()
		}
		w.pass(30 * time.Second)
		n, _ := w.served()
		require.Zero(t, n, "no session is sure")
		for i, name := range []string{"a", "b", "c"} {
			time.Sleep(time.Duration(i) * time.Second) // one is back before the others
			w.procs[name].keys.Heal()
		}
		w.until(10*time.Second, "all are served again", w.allServed)
		w.pass(20 * time.Second)
		w.mu.Lock()
		require.Equal(t, before, w.logs, "a shard has another owner, or was opened anew")
		w.mu.Unlock()
		w.stopAll()
	})
}

func TestTwoProcessesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		first := w.start("a")
		w.until(10*time.Second, "served", w.allServed)
		second := w.process("a")
		second.m = owner.New(second.options(""))
		require.ErrorContains(t, second.m.Start(second.run), "another process runs as worker a")
		second.end()
		require.True(t, w.allServed(), "by the first")
		require.NoError(t, first.m.Err())
		w.stopAll()
	})
}

// A process that is cut off answers while its session could be its own, so one of its name
// that was started elsewhere has to wait for that to end.
func TestCutOffTwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 7)
		first := w.start("a")
		w.until(10*time.Second, "served", w.allServed)
		first.keys.Cut()
		second := w.process("a")
		second.m = owner.New(second.options(""))
		var begun atomic.Bool
		go func() {
			assert.NoError(t, second.m.Start(second.run))
			begun.Store(true)
		}()
		for !begun.Load() {
			w.pass(100 * time.Millisecond)
		}
		for id := range millrace.ShardID(simShards) {
			require.False(t, first.answers(id), "shard %d is answered for by both", id)
		}
		first.end()
		first.m.Kill()
		w.procs["a"] = second
		w.until(10*time.Second, "served by the second", w.allServed)
		w.stopAll()
	})
}

// A process that is started again in its data directory has not to wait for itself.
func TestRestartInPlaceIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.start("a")
		w.until(10*time.Second, "served", w.allServed)
		w.procs["a"].crash()
		crashed := time.Now() // in the bubble
		w.start("a")
		w.until(5*time.Second, "served again", w.allServed)
		require.Less(t, time.Since(crashed), 5*time.Second)
		w.stopAll()
	})
}

func TestWorkerThatCannotOpenAShardGivesItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		a := w.start("a")
		w.start("b")
		w.until(30*time.Second, "balance", w.balanced)
		w.pass(5 * time.Second)
		var id millrace.ShardID
		for id = range millrace.ShardID(simShards) {
			if a.answers(id) {
				break
			}
		}
		a.mu.Lock()
		a.broken[id] = true
		delete(a.led, id)
		a.mu.Unlock()
		a.m.Stopped(id, errors.New("damage"))
		w.until(20*time.Second, "another serves it", func() bool { return w.procs["b"].answers(id) })
		w.stopAll()
	})
}

// TestFaults draws crashes, cuts, lost answers, restarts and drains; whatever happens, one
// process answers for a shard, and when it is over all shards are served evenly.
func TestFaults(t *testing.T) {
	runs := 25
	if testing.Short() {
		runs = 5
	}
	for seed := range runs {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, uint64(seed)+100)
			names := []string{"a", "b", "c", "d"}
			for _, n := range names[:3] {
				w.start(n)
			}
			for range 25 {
				n := names[w.rnd.IntN(len(names))]
				p := w.procs[n]
				switch k := w.rnd.IntN(6); {
				case p == nil:
					w.start(n)
				case k == 0 && len(w.procs) > 1:
					p.crash()
				case k == 1:
					p.keys.Cut()
				case k == 2:
					p.keys.Heal()
				case k == 3:
					p.keys.LoseAnswers(1 + w.rnd.IntN(3))
				case k == 4:
					id := millrace.ShardID(w.rnd.IntN(simShards))
					p.Abandon(id)
					p.m.Stopped(id, errors.New("an unknown outcome"))
				case k == 5 && len(w.procs) > 1:
					ctx, cancel := context.WithTimeout(p.run, 8*time.Second)
					p.m.Drain(ctx)
					cancel()
					require.NoError(t, p.m.Stop(context.Background()), "seed %d", seed)
					p.end()
					delete(w.procs, n)
				}
				w.pass(time.Duration(w.rnd.IntN(12)) * time.Second)
			}
			for _, p := range w.procs {
				p.keys.Heal()
			}
			w.until(2*time.Minute, fmt.Sprintf("balance after seed %d", seed), w.balanced)
			w.stopAll()
		})
	}
}
