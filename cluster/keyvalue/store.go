package keyvalue

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/errs"
)

const (
	// apiTimeout bounds a request to JetStream that changes or lists something, and
	// readTimeout one that reads a message: a stream without a leader answers nothing, and
	// is asked again.
	apiTimeout  = 3 * time.Second
	readTimeout = time.Second
	// commitTimeout bounds a commit whose caller has no deadline, settling included.
	commitTimeout = 30 * time.Second
	// pollEvery is how often the stream's end is asked for, to find commits of which
	// nobody told.
	pollEvery = time.Second
	// backwardsAfter is how long the stream's end may be before what was read, as a
	// leader says that does not know yet that it was deposed.
	backwardsAfter = 30 * time.Second
	// headroom is what a message leaves of the servers' max_payload: for NATS's headers,
	// and for what a snapshot says of an entry besides.
	headroom = 1 << 10
)

// streamBytes is the most that the catalog's stream may hold: two snapshots and the
// commits since the older.
const streamBytes = 1 << 30

// Clock is the time since the machine was started, which goes on while it is suspended.
type Clock interface {
	Boot() time.Duration
}

// Options open a store.
type Options struct {
	// Cluster is the cluster's name.
	Cluster string
	// Process names this process in the catalog's list of readers: one that is started
	// again by its old name need not be waited for. "" draws a name.
	Process string
	// Replicas of the stream; as cluster.Check found.
	Replicas int

	Conn       *cluster.Conn
	Clock      Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// Store is the catalog.KV of a cluster.
type Store struct {
	opts    Options
	conn    *cluster.Conn
	stream  jetstream.Stream
	names   names
	process string
	coder   *coder
	feed    *catalog.Feed
	log     *slog.Logger
	metrics *metrics

	ctx     context.Context // of the store's life
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	closing sync.Once
	subs    []*nats.Subscription
	kick    chan struct{} // asks for the stream's end

	commits  chan struct{} // one commit of this process at a time
	catching chan struct{} // one reader of the stream at a time

	mu struct {
		sync.Mutex
		entries  map[string]catalog.Entry
		position uint64              // the sequence of the last commit that is in entries
		ours     map[[16]byte]uint64 // commits that are being made, and their revisions once met
		broken   error
		closed   bool
		moved    chan struct{} // closed when position moves

		backSince time.Duration // since when the stream ends before position; 0: it does not
		// How much was committed since the snapshot that the stream is known to have.
		snapshot     uint64
		loaded       uint64 // the snapshot that this process last began with
		sinceCommits int
		sinceBytes   int
	}
	reader  reader
	compact compactor
	ends    atomic.Int64 // how often the stream's end was asked for
	// lose is asked whether an answer is to be taken for lost, by tests.
	lose func() bool
}

var _ catalog.KV = (*Store)(nil)

// names are the subjects of a catalog.
type names struct {
	stream             string
	commit, snapshot   string
	heartbeat          string
	told, ask, settled string
}

func namesOf(name string) names {
	p := "mr." + name + ".catalog."
	q := "mr." + name + ".told."
	return names{
		stream: cluster.CatalogStream(name), commit: p + "commit", snapshot: p + "snapshot", heartbeat: p + "reader",
		told: q + "commit", ask: q + "ask", settled: q + "settled",
	}
}

// Open opens the store of a cluster's catalog, and makes it where there is none.
func Open(ctx context.Context, opts Options) (*Store, error) {
	if err := cluster.CheckName(opts.Cluster); err != nil {
		return nil, err
	}
	if strings.ContainsAny(opts.Process, ".*> \t\r\n") {
		return nil, errs.New(errs.InvalidName, "%q is not the name of a process: it has no spaces and no dots", opts.Process)
	}
	if opts.Process == "" {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, errs.Wrap(errs.Internal, "keyvalue.Open", err)
		}
		opts.Process = hex.EncodeToString(b[:])
	}
	n := namesOf(opts.Cluster)
	stream, err := opts.Conn.OpenStream(ctx, jetstream.StreamConfig{
		Name: n.stream, Description: "the catalog of a Millrace cluster",
		Subjects: []string{n.commit, n.snapshot + ".>", n.heartbeat + ".*"},
		Storage:  jetstream.FileStorage, Discard: jetstream.DiscardNew, MaxBytes: streamBytes,
		Replicas: max(1, opts.Replicas), AllowRollup: true,
	})
	if err != nil {
		return nil, err
	}
	c, err := newCoder()
	if err != nil {
		return nil, err
	}
	s := &Store{
		opts: opts, conn: opts.Conn, stream: stream, names: n, process: opts.Process, coder: c, log: opts.Logger,
		feed: catalog.NewFeed(0), kick: make(chan struct{}, 1), commits: make(chan struct{}, 1), catching: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.mu.entries, s.mu.ours, s.mu.moved = map[string]catalog.Entry{}, map[[16]byte]uint64{}, make(chan struct{})
	s.reader.init(s)
	s.metrics = newMetrics(s)
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(s.metrics.all...)
	}
	return s, nil
}

// start reads everything, and begins to follow.
func (s *Store) start(ctx context.Context) error {
	for subject, handle := range map[string]nats.MsgHandler{s.names.told: s.toldCommit, s.names.ask: s.asked, s.names.settled: s.toldSettled} {
		sub, err := s.conn.NATS().Subscribe(subject, handle)
		if err != nil {
			return errs.Wrap(errs.Unavailable, "keyvalue.Open", err)
		}
		s.subs = append(s.subs, sub)
	}
	for {
		err := s.reload(ctx)
		if err == nil {
			err = s.catchUp(ctx)
		}
		if err == nil {
			s.tasks.Go(s.poll)
			return nil
		}
		if !errs.Is(err, errs.Unavailable) || pause(ctx, s.ctx.Done(), 100*time.Millisecond) != nil {
			return err
		}
	}
}

// Load returns what has been read of the stream.
func (s *Store) Load(ctx context.Context) ([]catalog.Entry, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, errs.Wrap(errs.Unavailable, "catalog.Load", err)
	}
	entries, position := s.sorted()
	return slices.DeleteFunc(entries, func(e catalog.Entry) bool { return strings.HasPrefix(e.Key, prefixReader) }), position, s.Err()
}

// sorted is every entry, those of readers too, and the revision.
func (s *Store) sorted() ([]catalog.Entry, uint64) {
	s.mu.Lock()
	entries := make([]catalog.Entry, 0, len(s.mu.entries))
	for _, e := range s.mu.entries {
		entries = append(entries, e)
	}
	position := s.mu.position
	s.mu.Unlock()
	slices.SortFunc(entries, func(a, b catalog.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries, position
}

// Follow hands over the commits of all processes.
func (s *Store) Follow(ctx context.Context, after uint64, fn func(catalog.Committed) error) error {
	s.reader.begin(s)
	defer s.reader.end()
	return s.feed.Follow(ctx, after, s.Load, fn)
}

// Err says that the stream cannot be followed any more.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.broken
}

// fail ends following: something is wrong that does not pass.
func (s *Store) fail(err error) {
	s.mu.Lock()
	first := s.mu.broken == nil
	if first {
		s.mu.broken = err
	}
	s.mu.Unlock()
	if first {
		s.log.Error("catalog store failed", slog.Any("err", err))
		s.feed.Fail(err)
	}
}

// Close leaves the list of readers, and ends everything; the connection is the caller's.
func (s *Store) Close() error {
	s.closing.Do(s.close)
	return nil
}

func (s *Store) close() {
	s.reader.leave()
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.cancel()
	s.feed.Fail(errs.New(errs.Draining, "the catalog's store is closed"))
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // the connection may be gone
	}
	s.tasks.Wait()
	s.coder.close()
}

// unavailable says that NATS did not answer.
func (s *Store) unavailable(doing string, err error) error {
	return errs.New(errs.Unavailable, "%s stream %s: %v", doing, s.names.stream, err)
}

// take takes a lock that is a channel, unless ctx ends first.
func take(ctx context.Context, lock chan struct{}) error {
	select {
	case lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.Unavailable, "keyvalue", ctx.Err())
	}
}
