package iceberg

import (
	"context"
	"encoding/hex"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/iceberg-go/table"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Options are a format's components.
type Options struct {
	// Store holds the folders of all lake tables; its URI is how stock readers find them.
	Store objstore.Store
	// Catalog keeps the pointers of all lake tables; nil: the lake itself does.
	Catalog Catalog
	// Cluster is the id of the cluster, whose folder in the store is ours.
	Cluster [16]byte
	Clock   Clock
	Logger  *slog.Logger
}

// Format keeps lake tables as Iceberg tables in an object store.
type Format struct {
	o       Options
	cluster string // the id in hex digits
	wait    func(context.Context, time.Duration) error

	// What files that never change were read to, of all tables.
	contents  *memo[string, *contents] // by manifest list
	positions *memo[string, positions] // by path
	referred  *memo[string, []string]  // by manifest list or manifest: what it refers to

	mu struct {
		sync.Mutex
		swept map[millrace.TableID]time.Time // when the folder was looked through
	}
}

// How much of each is remembered, in bytes.
const (
	maxContentsBytes  = 64 << 20
	maxPositionsBytes = 64 << 20
	maxReferredBytes  = 16 << 20
)

// New makes a format.
func New(o Options) *Format {
	f := &Format{
		o: o, cluster: hex.EncodeToString(o.Cluster[:]), wait: pause,
		contents: newMemo[string, *contents](maxContentsBytes), positions: newMemo[string, positions](maxPositionsBytes),
		referred: newMemo[string, []string](maxReferredBytes),
	}
	f.mu.swept = map[millrace.TableID]time.Time{}
	return f
}

// folder is the key of a table's folder: numbers only, so that nothing a user names
// reaches a path, and a table that is created again has another one.
func (f *Format) folder(id millrace.TableID) string {
	return f.cluster + "/" + strconv.FormatUint(uint64(id), 10)
}

// lakeTable is the lake table of one table.
type lakeTable struct {
	f        *Format
	id       millrace.TableID
	folder   string // key in the store
	location string // URI of the folder
	pointer  pointer
	// desc is any version of the table: what is read of it, its partition columns, bucket
	// key and buckets, does not change.
	desc *millrace.Table

	mu struct {
		sync.Mutex
		seen   *version  // that was loaded or made last
		newest *snapshot // of seen; nil when it has none, or nobody asked yet
		damage *damage   // found first of what is not mended; nil: none
	}
}

// Location implements lake.Table.
func (t *lakeTable) Location() string { return t.location }

// version is one version of a lake table's metadata. Its metadata is immutable.
type version struct {
	number   int64  // of the file, with a pointer of ours
	location string // URI of the file
	meta     table.Metadata
	file     *versionFile // with a pointer of ours
}

// versionFile tells the file of a version from another one of its number, which somebody
// made when it was lost.
type versionFile struct {
	bytes    int64
	modified atomic.Int64 // µs, as the store said first; 0: nobody asked yet
}

// is says whether a file that the store describes is the one.
func (f *versionFile) is(i objstore.Info) bool {
	at := i.Modified.UnixMicro()
	return f.bytes == i.Bytes && (f.modified.CompareAndSwap(0, at) || f.modified.Load() == at)
}

// snapshot is a snapshot of a lake table. It is immutable.
type snapshot struct {
	t    *lakeTable
	meta table.Metadata // a version that has it
	snap table.Snapshot
	progress
}

// ID implements lake.Snapshot.
func (s *snapshot) ID() int64 { return s.snap.SnapshotID }

// CommittedAt implements lake.Snapshot.
func (s *snapshot) CommittedAt() time.Time { return time.UnixMilli(s.snap.TimestampMs).UTC() }

// Round implements lake.Snapshot.
func (s *snapshot) Round() int64 { return s.round }

// Schema implements lake.Snapshot.
func (s *snapshot) Schema() millrace.SchemaID { return s.schema }

// Offsets implements lake.Snapshot.
func (s *snapshot) Offsets() lake.Offsets { return s.offsets }
