package tier

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/trace"
)

// Catalog is what the manager needs of the catalog.
type Catalog interface {
	// AllTables are all tables.
	AllTables() []*millrace.Table
	// TableByID finds a table by number; errs.TableNotFound.
	TableByID(ctx context.Context, id millrace.TableID) (*millrace.Table, error)
	// Partitions are all partitions of a table.
	Partitions(ctx context.Context, table millrace.TableID) ([]*millrace.Partition, error)
	// PartitionByID finds a partition by number; errs.PartitionNotFound.
	PartitionByID(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error)
	// Purges are the dropped tables whose lake tables are to be removed, by number; Purged
	// forgets one.
	Purges() []*millrace.Purge
	Purged(ctx context.Context, table millrace.TableID) error
}

// Source is where rows come from: the router.
type Source interface {
	LogRange(ctx context.Context, t *millrace.Table, p *millrace.Partition, bucket uint16) (router.LogRange, error)
	LogRanges(ctx context.Context, t *millrace.Table, ps []*millrace.Partition) ([][]router.LogRange, error)
	WrittenAt(ctx context.Context, t *millrace.Table, at []router.LogPlace) ([]time.Time, error)
	OpenLog(t *millrace.Table, p *millrace.Partition, bucket uint16, from, until millrace.Offset) *router.Reader
	OpenState(ctx context.Context, t *millrace.Table, p *millrace.Partition, bucket uint16) (*router.Reader, millrace.Offset, error)
	// Foreground rises while clients are at work.
	Foreground() int64
}

var _ Source = (*router.Router)(nil)

// Shard is told how far its buckets are in the lake: below that the log may let go.
type Shard interface {
	Tiered(offsets map[millrace.BucketID]millrace.Offset)
}

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Options are a manager's settings and components.
type Options struct {
	// Concurrency is how many tables are tiered at once; 2 unless set.
	Concurrency int
	// RoundBytes and RoundTime bound what is lost when a round fails: about so many
	// stored bytes, and so long, make one commit. 1 GiB and 5 minutes unless set.
	RoundBytes int64
	RoundTime  time.Duration
	// FoldBytes bounds the memory in which the changes of a bucket are folded; 64 MiB
	// unless set.
	FoldBytes int64
	// LookTime bounds what a read, or who asks for the status, waits for the lake to say
	// what is newest; 3 seconds unless set.
	LookTime time.Duration

	Format     lake.Format
	Catalog    Catalog
	Shards     []Shard // by shard id
	Clock      Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Tracer     *trace.Tracer // nil: nothing is traced
	// Mine says of a table whether this process takes it to the lake; others do that in
	// their turn. Nil: all are. Two that take one at once do no harm (Invariants).
	Mine func(millrace.TableID) bool
	// Hook is asked at each Step of a round, in tests; an error ends the round as an
	// error of the lake would. Nil: nothing is asked.
	Hook func(Step) error
}

func (o *Options) ensureDefaults() {
	if o.Concurrency == 0 {
		o.Concurrency = 2
	}
	if o.RoundBytes == 0 {
		o.RoundBytes = 1 << 30
	}
	if o.RoundTime == 0 {
		o.RoundTime = 5 * time.Minute
	}
	if o.LookTime == 0 {
		o.LookTime = 3 * time.Second
	}
	if o.FoldBytes == 0 {
		o.FoldBytes = 64 << 20
	}
}

// Step is a moment of a round, or of the removal of a dropped table's lake table.
type Step string

// The steps, in order.
const (
	StepBegun        Step = "begun"         // nothing is written
	StepRead         Step = "read"          // a chunk was read and is not written yet
	StepWritten      Step = "written"       // a file or a delete was written
	StepBeforeCommit Step = "before-commit" // all is written, nothing committed
	StepAfterCommit  Step = "after-commit"  // committed, nobody knows of it
	StepTold         Step = "told"          // the shards know of it
	StepPurge        Step = "purge"         // the table is dropped, its lake table there
	StepPurged       Step = "purged"        // that is gone, the catalog does not know
)

// Steps are all steps, in order.
var Steps = []Step{StepBegun, StepRead, StepWritten, StepBeforeCommit, StepAfterCommit, StepTold, StepPurge, StepPurged}

// Manager tiers the tables of a catalog. See the package comment.
type Manager struct {
	o       Options
	source  atomic.Pointer[Source]
	metrics *metrics
	pacer   pacer

	life  context.Context // of all jobs
	end   context.CancelFunc
	jobs  sync.WaitGroup
	due   chan struct{} // a place for each job that may run because it is due
	asked chan struct{} // and because it was asked for
	looks chan struct{} // for each table of which the lake is asked where it is

	removals chan struct{} // for each lake table that is being removed

	mu      sync.Mutex
	tables  map[millrace.TableID]*table
	leaving map[millrace.TableID]*table // that were forgotten, and may be at something yet
	purges  map[millrace.TableID]*purging
	closed  bool
}

var _ router.Lake = (*Manager)(nil)

// New makes a manager. It reads nothing before Attach. What it does unasked it does with
// the values of ctx, which say who it is; Close ends it.
func New(ctx context.Context, o Options) *Manager {
	o.ensureDefaults()
	m := &Manager{
		o: o, tables: map[millrace.TableID]*table{}, leaving: map[millrace.TableID]*table{}, purges: map[millrace.TableID]*purging{},
		due: make(chan struct{}, o.Concurrency), asked: make(chan struct{}, o.Concurrency),
		looks: make(chan struct{}, maxLooks), removals: make(chan struct{}, maxPurging),
	}
	m.pacer.clock = o.Clock
	m.life, m.end = context.WithCancel(context.WithoutCancel(ctx))
	m.metrics = newMetrics(o.Registerer, m)
	return m
}

// Attach says where rows come from.
func (m *Manager) Attach(s Source) { m.source.Store(&s) }

// Start attaches the source, and tiers tables when they are due until Close.
func (m *Manager) Start(s Source) {
	m.Attach(s)
	m.spawn(m.run)
}

func (m *Manager) from() (Source, error) {
	s := m.source.Load()
	if s == nil {
		return nil, errs.New(errs.Unavailable, "tiering has not begun yet")
	}
	return *s, nil
}

// Close ends what is under way, as a crash would, and waits for it.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	m.jobs.Wait()
	return nil
}

// spawn runs f in a goroutine that Close waits for; false after Close.
func (m *Manager) spawn(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.jobs.Go(f)
	return true
}

// table is what is known of a table that has a lake table.
func (m *Manager) table(id millrace.TableID) *table {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[id]
	if t == nil {
		t = &table{m: m, id: id, busy: make(chan struct{}, 1), opening: make(chan struct{}, 1)}
		m.tables[id] = t
	}
	return t
}

// all are the tables that are known.
func (m *Manager) all() []*table {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*table, 0, len(m.tables))
	for _, t := range m.tables {
		out = append(out, t)
	}
	return out
}

// forget ends a table that the catalog has let go of: what is under way of it does not
// commit.
func (m *Manager) forget(id millrace.TableID) {
	m.mu.Lock()
	t := m.tables[id]
	delete(m.tables, id)
	// Who comes after the first finds that the table is gone, and begins nothing.
	if t != nil && m.leaving[id] == nil {
		m.leaving[id] = t
	}
	m.mu.Unlock()
	if t != nil {
		t.interrupt(errGone)
	}
}

// forgetLeft lets go of tables that were forgotten and are at nothing any more.
func (m *Manager) forgetLeft() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, t := range m.leaving {
		if len(t.busy) == 0 && len(t.opening) == 0 {
			delete(m.leaving, id)
		}
	}
}

func (m *Manager) step(s Step) error {
	if m.o.Hook == nil {
		return nil
	}
	return m.o.Hook(s)
}

func tableID(id millrace.TableID) slog.Attr { return slog.Int64("table_id", int64(id)) }

func tableAttr(t *millrace.Table) slog.Attr { return slog.String("table", t.Path.String()) }

func errAttr(err error) slog.Attr { return slog.Any("err", err) }
