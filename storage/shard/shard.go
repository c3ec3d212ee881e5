package shard

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/trace"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Options are a shard's settings and components.
type Options struct {
	// Settings.
	ID              millrace.ShardID
	Dir             string
	Cluster         [16]byte
	CheckpointBytes int64         // log bytes that trigger a checkpoint; default 64 MiB
	CheckpointEvery time.Duration // age that triggers one; default 60 s
	SealBytes       int64         // size at which a segment file is sealed; default 64 MiB
	TailBytes       int64         // batches kept in memory before they are moved to segments; default 8 MiB
	BucketTailBytes int64         // the same for one bucket; default 3 MiB
	QueueBytes      int64         // writes waiting; default 16 MiB
	MemTableBytes   uint64        // of the state store; default 8 MiB
	RowCacheBytes   int64         // of the state store
	Codec           segment.Codec
	MaxSnapshots    int // snapshots held for readers; default 256
	// KeepExpired is how long reads that began before can read on in what has expired;
	// default 1 h. It is no less than the life of what says where to read.
	KeepExpired time.Duration
	// MinEpoch is a lower bound of the epoch that Open begins; in a cluster, that of the
	// lease.
	MinEpoch millrace.Epoch
	// FollowEvery is how often a follower looks for more; default 200 ms.
	FollowEvery time.Duration
	// Components.
	FS      vfs.FS
	Log     wal.Log
	Cache   *pebble.Cache
	Clock   Clock
	Logger  *slog.Logger
	Metrics *Metrics
	// Tracer is for what a shard does unasked; nil: it is not traced.
	Tracer *trace.Tracer
	// Remote is where checkpoints also go; nil: nowhere.
	Remote Remote
	// Lease says why the shard must not answer at this moment; nil, or its nil error,
	// when it may. It is called for every answer.
	Lease func() error
	// InLake is what the lake has of the shard's buckets; of Rebuild, Renew, Reclaim and
	// Repair.
	InLake    []InLake
	repairing bool // files and log need not match
	// Hook is called at named points of the write and checkpoint path, so that
	// tests can stop there; nil in production.
	Hook func(point string)
}

func (o *Options) ensureDefaults() {
	def := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.CheckpointBytes, 64<<20)
	def(&o.SealBytes, 64<<20)
	def(&o.TailBytes, 8<<20)
	def(&o.BucketTailBytes, 3<<20)
	def(&o.QueueBytes, 16<<20)
	if o.CheckpointEvery == 0 {
		o.CheckpointEvery = time.Minute
	}
	if o.MaxSnapshots == 0 {
		o.MaxSnapshots = 256
	}
	if o.KeepExpired == 0 {
		o.KeepExpired = time.Hour
	}
	if o.FollowEvery == 0 {
		o.FollowEvery = 200 * time.Millisecond
	}
	if o.Hook == nil {
		o.Hook = func(string) {}
	}
	if o.Metrics == nil { // a command, which nobody looks into
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
}

// Shard is an open shard.
type Shard struct {
	o   Options
	kv  *kv.Store
	log wal.Log

	queue     chan *pending
	queueRoom *semaphore.Weighted

	// The loop's own.
	scratch  []byte
	reading  gathering
	inFlight *group
	unborn   map[millrace.BucketID]*bucketState // opened by a group that is not applied yet
	dropped  map[partitionRef]struct{}          // since the start: late writes must not open them again
	idle     idleSweep

	// applyMu is held for writing while a group is applied, for reading while a
	// snapshot is taken or a checkpoint begins: what they see is of one record.
	applyMu sync.RWMutex

	bucketsMu sync.RWMutex
	buckets   map[millrace.BucketID]*bucketState
	tables    map[millrace.TableID]*tableState
	// byPartition are the same buckets; sealed takes no more writes. Changed by the loop
	// alone, which needs no lock to read them.
	byPartition map[partitionRef][]*bucketState
	sealed      map[partitionRef]struct{}

	queued, queuedBytes atomic.Int64 // writes, and bytes of them, that are not answered

	tailBytes atomic.Int64
	applied   atomic.Pointer[appliedAt]
	unflushed chan struct{} // wakes the flusher; capacity 1
	flushed   chan struct{} // wakes a loop that waits for room; capacity 1

	replayer     *replayer     // of who recovers or follows; nobody else is there then
	mismatch     error         // of files and log, of who repairs
	following    bool          // checkpoints purge nothing; changes when nobody else is there
	manifest     manifestInfo  // the flush loop's own
	checkpointed atomic.Uint64 // LSN of the newest manifest
	sinceBytes   atomic.Int64  // logged since the last checkpoint
	checkNow     chan chan error
	sweep        chan struct{}         // asks the loop to forget idle writers; capacity 1
	stuck        atomic.Pointer[error] // why the last flush or checkpoint failed; nil when it did not
	doomed       doomedDirs
	uploads      uploads
	expiry       expiry

	reads     gate
	snapshots snapshotTable
	subs      subscribers

	failure   atomic.Pointer[error] // why the shard serves nothing any more
	stopped   chan struct{}         // closed when there is one
	leaving   atomic.Pointer[error] // why it takes no more writes: it resigns or closes
	closing   atomic.Bool
	closed    chan struct{}      // closed when nothing is open any more
	endLoop   context.CancelFunc // of the loop
	endFlush  context.CancelFunc // of the flush loop
	wg        sync.WaitGroup
	loopDone  chan struct{}
	flushDone chan struct{}
}

// appliedAt is where the log stands, as applied.
type appliedAt struct {
	lsn  millrace.LSN
	tail wal.Tail
}

// bucketState is a bucket of the shard.
type bucketState struct {
	id millrace.BucketID
	of *tableState
	// The version of the table that the bucket goes by, as prepared; the loop's own.
	*tableVersion
	log *bucket.Log

	oldest oldest       // the flush loop's own
	tiered atomic.Int64 // the offset up to which the log is in the lake, as told since the start

	done kv.Meta // as applied
	prep kv.Meta // as prepared; the loop's own
}

// bucket finds an open bucket; nil when nothing was ever written to it.
func (s *Shard) bucket(id millrace.BucketID) *bucketState {
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	return s.buckets[id]
}

func (s *Shard) allBuckets() []*bucketState {
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	return values(s.buckets)
}

// Err is why the shard serves nothing any more; nil while it does.
func (s *Shard) Err() error {
	if p := s.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fail makes the shard serve nothing any more; the first cause stays.
func (s *Shard) fail(err error) {
	if s.end(err) {
		s.o.Logger.Error("shard stopped", slog.Int("shard", int(s.o.ID)), slog.Any("err", err))
	}
}

// end makes the shard serve nothing any more, and those know who wait for changes; it
// says whether the cause is the first.
func (s *Shard) end(err error) bool {
	if !s.failure.CompareAndSwap(nil, &err) {
		return false
	}
	close(s.stopped)
	s.subs.notifyAll()
	return true
}

// Stopped is closed when the shard serves nothing any more; Err then tells why. A shard
// whose log failed is to be closed and opened again: what is in the log decides what
// was written.
func (s *Shard) Stopped() <-chan struct{} { return s.stopped }

// refusal is why nothing may be answered at this moment; nil when it may.
func (s *Shard) refusal() error {
	if err := s.Err(); err != nil {
		return err
	}
	return s.lapsed()
}

// lapsed is why the lease does not let the shard answer; nil when it does.
func (s *Shard) lapsed() error {
	if s.o.Lease == nil {
		return nil
	}
	return s.o.Lease()
}

// Trouble is why something is not as it should be in a shard that serves: the last
// flush or checkpoint failed, so that the log cannot be purged, or damage was met. It
// is nil when all is well, and Err when the shard serves nothing.
func (s *Shard) Trouble() error {
	if err := s.Err(); err != nil || s.kv == nil {
		return err
	}
	if err := s.kv.Err(); err != nil {
		return err
	}
	if p := s.stuck.Load(); p != nil {
		return *p
	}
	return nil
}

// Damaged is a shard that could not be opened: it answers everything with the
// reason, so that the other shards of a table can go on.
func Damaged(id millrace.ShardID, cause error, logger *slog.Logger) *Shard {
	s := &Shard{o: Options{ID: id, Logger: logger}, stopped: make(chan struct{}), closed: make(chan struct{})}
	s.subs.init()
	s.fail(cause)
	return s
}

func (s *Shard) failed() bool { return s.Err() != nil }

// Tables lists the tables that have buckets here.
func (s *Shard) Tables() []millrace.TableID {
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	return keys(s.tables)
}

func keys[K comparable, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

func values[K comparable, V any](m map[K]V) []V {
	out := make([]V, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

func slogBucket(id millrace.BucketID) slog.Attr { return slog.String("bucket", id.String()) }

func slogErr(err error) slog.Attr { return slog.Any("err", err) }
