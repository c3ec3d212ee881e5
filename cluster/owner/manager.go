package owner

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Roles of a process.
const (
	RoleFront  = "front"
	RoleWorker = "worker"
	RoleTier   = "tier"
)

// Times of the protocol.
const (
	// TTL is how long a session lives without a renewal.
	TTL = 15 * time.Second
	// renewEvery is how often a session is renewed.
	renewEvery = 3 * time.Second
	// margin is what a challenger waits beyond the TTL.
	margin = time.Second
	// quiet is how long the members have to be the same before shards are moved to
	// balance them, and settle before shards are placed that nobody ever had.
	quiet  = 10 * time.Second
	settle = time.Second
	// lookEvery bounds how long something that depends on time alone is not seen.
	lookEvery = 500 * time.Millisecond
	// keyTimeout bounds one operation on the keys.
	keyTimeout = 5 * time.Second
	// atOnce is how many shards are opened or handed over at a time, and how many are begun
	// to be followed: that may take as long as to fetch them, and the former do not wait for it.
	atOnce = 4
	// unableAfter is how many times in a row a shard fails to open before others are
	// asked to have it, and unableFor how long.
	unableAfter = 3
	unableFor   = time.Minute
)

// Clock is the time since the machine was started, which goes on while it is suspended.
type Clock interface {
	Boot() time.Duration
}

// Host has the shards. Calls for one shard come one at a time.
type Host interface {
	// Lead makes this process serve a shard, in an epoch of at least min; it promotes
	// the follower when there is one. It returns the epoch. The shard answers nothing
	// while valid gives an error.
	Lead(ctx context.Context, id millrace.ShardID, min millrace.Epoch, valid func() error) (millrace.Epoch, error)
	// Resign ends that in order: what was begun is answered, and a checkpoint taken. The
	// shard is not served any more when it returns, whatever the error.
	Resign(ctx context.Context, id millrace.ShardID) error
	// Abandon ends that, or the following, at once.
	Abandon(id millrace.ShardID)
	// Follow begins to follow a shard; Abandon ends it.
	Follow(ctx context.Context, id millrace.ShardID) error
	// Standings is how far the shards are that are followed.
	Standings() map[millrace.ShardID]Standing
}

// Options are a manager's settings and components.
type Options struct {
	Worker string // its name; see CheckWorkerName
	Info   Info
	Keys   Keys
	Host   Host // nil without the role worker
	// Shards is how many shards there are now; the number may grow.
	Shards func() int
	Clock  Clock
	Random func() string // a new incarnation
	// Last is the incarnation that Remember, if it is set, kept in the data directory last.
	Last       string
	Remember   func(incarnation string) error
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Manager keeps the session of this process, and the shards that it should have.
type Manager struct {
	o       Options
	metrics *metrics
	// deadline is until when the session is sure to be ours, on the boot clock; 0 when
	// there is none.
	deadline atomic.Int64
	// generation counts the sessions that this process has had.
	generation atomic.Int64

	// soundSince is since when the session has been ours without a break: who could not
	// renew it has not seen others fail to. The loop's own; on the boot clock.
	soundSince time.Duration

	mu      sync.Mutex
	board   *board
	session held
	shards  map[millrace.ShardID]*shardState
	running int // tasks, but those that begin to follow
	joining int // those
	placed  placed

	wake    chan struct{}
	renew   chan struct{}
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	failure atomic.Pointer[error]
}

// held is the session of this process.
type held struct {
	Session
	revision uint64
}

// New makes a manager; Start begins.
func New(o Options) *Manager {
	return &Manager{
		o: o, board: newBoard(), shards: map[millrace.ShardID]*shardState{}, metrics: newMetrics(o.Registerer),
		wake: make(chan struct{}, 1), renew: make(chan struct{}, 1),
	}
}

// Start opens the session, waits until it has seen all keys, and begins to take shards.
func (m *Manager) Start(ctx context.Context) error {
	if err := CheckWorkerName(m.o.Worker); err != nil {
		return err
	}
	if err := m.openSession(ctx); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	synced := make(chan struct{})
	m.wg.Go(func() { m.watch(run, synced) })
	m.wg.Go(func() { m.keepSession(run) })
	select {
	case <-synced:
	case <-ctx.Done():
		cancel()
		m.wg.Wait()
		return ctx.Err()
	}
	m.wg.Go(func() { m.loop(run) })
	return nil
}

// watch keeps the board, beginning anew when the watch breaks.
func (m *Manager) watch(ctx context.Context, synced chan struct{}) {
	first := sync.OnceFunc(func() { close(synced) })
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		err := m.o.Keys.Watch(ctx, "", func(e Event) error {
			m.change(func(b *board, now time.Duration) { b.take(e, now, m.o.Logger) })
			if e.Kind == UpToDate {
				first()
			}
			return nil
		})
		if ctx.Err() == nil {
			m.o.Logger.WarnContext(ctx, "watch of sessions and leases ended; beginning anew", slog.Any("err", err))
			sleep(ctx, wait)
		}
	}
}

func (m *Manager) change(fn func(b *board, now time.Duration)) {
	now := m.o.Clock.Boot()
	m.mu.Lock()
	fn(m.board, now)
	m.mu.Unlock()
	poke(m.wake)
}

// loop looks at everything whenever something changed, and now and then.
func (m *Manager) loop(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		m.challenge(ctx)
		if m.o.Host != nil {
			m.decide(ctx)
		}
		select {
		case <-m.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// challenge ends the sessions of others that were not renewed for too long, while ours was:
// when NATS comes back from being away, nobody has had the time to renew.
func (m *Manager) challenge(ctx context.Context) {
	now := m.o.Clock.Boot()
	if !m.valid() {
		m.soundSince = now
	}
	m.mu.Lock()
	var dead []seenSession
	for name, s := range m.board.sessions {
		if name != m.o.Worker && now-max(s.since, m.soundSince) > TTL+margin {
			dead = append(dead, s)
		}
	}
	m.mu.Unlock()
	for _, s := range dead {
		kctx, cancel := context.WithTimeout(ctx, keyTimeout)
		err := m.o.Keys.Delete(kctx, sessionKey(s.Worker), s.revision)
		cancel()
		if err == nil {
			m.metrics.expired.Inc()
			m.o.Logger.WarnContext(ctx, "session ended: it was not renewed", slog.String("worker", s.Worker))
		}
		// A conflict: it was renewed, or somebody else was first; the watch tells.
	}
}

// Err is why the manager cannot go on, nil while it can.
func (m *Manager) Err() error {
	if p := m.failure.Load(); p != nil {
		return *p
	}
	return nil
}

func (m *Manager) fail(err error) { m.failure.CompareAndSwap(nil, &err) }

// valid says whether the session is sure to be ours now.
func (m *Manager) valid() bool { return int64(m.o.Clock.Boot()) < m.deadline.Load() }

// validLocked makes what says, before every answer of a shard, whether the session is
// sure to be ours still; the error is of code errs.NotOwner. It is over for good with
// this session: a shard that was taken in an earlier one may be another's by now.
// REQUIRES: m.mu is held.
func (m *Manager) validLocked() func() error {
	generation := m.generation.Load()
	return func() error {
		if m.valid() && m.generation.Load() == generation {
			return nil
		}
		return errNoSession
	}
}

var errNoSession = errs.New(errs.NotOwner, "this worker's session could not be renewed in time: another may have its shards")

// Mine says whether thing n of a kind of work is this process's, among those that have a role.
func (m *Manager) Mine(role string, n uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	best, weight := "", uint64(0)
	for name, s := range m.board.sessions {
		if s.Draining || !slices.Contains(s.Roles, role) {
			continue
		}
		if w := rank(name, role, n); best == "" || w > weight || w == weight && name < best {
			best, weight = name, w
		}
	}
	return best == m.o.Worker
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
