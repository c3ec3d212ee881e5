package catalog

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// DefaultShards is the number of shards of a new single-node cluster.
const DefaultShards = 4

// Options opens a catalog.
type Options struct {
	// Dir is where the catalog's files are; the directory above it exists.
	Dir string
	// Shards is how many shards there are; 0 keeps the stored number, and gives a new
	// catalog NewShards. It may grow from one start to the next, and never shrink.
	Shards int
	// NewShards is how many shards a new catalog has; 0: DefaultShards.
	NewShards int
	// Oldest says which process that follows the catalog knows the lowest feature level, and
	// that level; nil when this process alone does.
	Oldest func() (process string, level FeatureLevel)

	FS     vfs.FS
	Clock  func() time.Time
	Logger *slog.Logger
}

// Catalog is what exists. See the package comment.
type Catalog struct {
	kv    KV
	clock func() time.Time
	log   *slog.Logger

	oldest    func() (string, FeatureLevel)
	clusterID [16]byte
	current   atomic.Pointer[snapshot]
	// change is held while a change is decided and made durable.
	change sync.Mutex

	rotation  rotation
	following following
	unsettled unsettled
	syncs     flights
}

// Open opens the catalog in opts.Dir, and creates it when there is none.
func Open(ctx context.Context, opts Options) (*Catalog, error) {
	kv, err := openPebble(opts.FS, opts.Dir, opts.Logger)
	if err != nil {
		return nil, err
	}
	c, err := OpenKV(ctx, kv, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("catalog in %s: %w", opts.Dir, err), kv.Close())
	}
	return c, nil
}

// OpenKV opens the catalog kept in kv, which it closes at Close; of opts it uses
// Shards, NewShards, Oldest, Clock and Logger.
func OpenKV(ctx context.Context, kv KV, opts Options) (*Catalog, error) {
	c := &Catalog{kv: kv, clock: opts.Clock, log: opts.Logger, oldest: opts.Oldest}
	entries, revision, err := kv.Load(ctx)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		if err := c.create(ctx, cmp.Or(opts.Shards, opts.NewShards, DefaultShards)); err != nil {
			return nil, err
		}
		if entries, revision, err = kv.Load(ctx); err != nil {
			return nil, err
		}
	}
	if err := unfinished(entries); err != nil {
		return nil, err
	}
	s, err := loadSnapshot(entries)
	if err != nil {
		return nil, err
	}
	if c.clusterID, err = parseClusterID(s.head.ClusterID); err != nil {
		return nil, err
	}
	c.current.Store(s)
	c.unsettled.begin(revision)
	c.following.mu.advanced = make(chan struct{})
	c.following.mu.seen = revision
	c.following.ended = make(chan struct{})
	c.following.ctx, c.following.cancel = context.WithCancel(context.WithoutCancel(ctx)) //nolint:fatcontext // the catalog's life, not this call's
	c.following.told = newTold(s)                                                        // before anything is changed
	go c.follow(s.headRevision)
	if err := c.growShards(ctx, opts.Shards); err != nil {
		c.unfollow()
		return nil, err
	}
	return c, nil
}

// create writes the first head. Two processes that create at the same time end
// with one cluster id: the loser's head is refused, and it reads the winner's.
func (c *Catalog) create(ctx context.Context, shards int) error {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("catalog.Open: making a cluster id: %w", err)
	}
	head := headRecord{
		FeatureLevel: FeatureBase, ClusterID: hex.EncodeToString(id[:]), Shards: shards,
		NextDatabase: 1, NextTable: 1, NextPartition: 1, CreatedMicros: c.clock().UnixMicro(),
	}
	_, err := c.kv.Commit(ctx, 0, Write{Key: keyHead, Value: encodeRecord(head)})
	if _, lost := errors.AsType[*ConflictError](err); lost {
		return nil
	}
	return err
}

func (c *Catalog) growShards(ctx context.Context, shards int) error {
	have := c.current.Load().head.Shards
	switch {
	case shards == 0 || shards == have:
		return nil
	case shards < have:
		return errs.New(errs.InvalidRequest, "the cluster has %d shards; their number may grow, and cannot become %d", have, shards)
	}
	return c.commit(ctx, func(s *snapshot) ([]Write, error) {
		s.head.Shards = shards
		return nil, nil
	})
}

func parseClusterID(s string) (id [16]byte, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, corrupt("key %q holds the cluster id %q", keyHead, s)
	}
	copy(id[:], b)
	return id, nil
}

// maxConflicts is how often a change is decided anew because another process
// changed the catalog meanwhile.
const maxConflicts = 50

// commit makes one change: decide is given a private copy of the current
// snapshot, edits it and returns the writes that say the same, without "head".
// Readers see the edited copy when the writes are durable. On a conflict decide is
// called again on what others made. When commit returns, the change is what every
// process answers from.
func (c *Catalog) commit(ctx context.Context, decide func(*snapshot) ([]Write, error)) error {
	revision, err := c.store(ctx, decide)
	if err != nil {
		return err
	}
	return c.kv.Settle(ctx, revision)
}

// store makes one change durable, as commit does, and does not wait for others to see it.
func (c *Catalog) store(ctx context.Context, decide func(*snapshot) ([]Write, error)) (uint64, error) {
	c.change.Lock()
	defer c.change.Unlock()
	synced := false
	for range maxConflicts {
		next := c.current.Load().edit()
		writes, err := decide(next)
		if err != nil && !synced && isAbsent(err) {
			// What it needs may have been made elsewhere.
			if err := c.refresh(ctx); err != nil {
				return 0, err
			}
			synced = true
			continue
		}
		if err == nil {
			err = c.mayRaise(next.head.FeatureLevel)
		}
		if err != nil {
			return 0, err
		}
		next.head.Revision++
		head := Write{Key: keyHead, Value: encodeRecord(next.head)}
		revision, err := c.kv.Commit(ctx, next.headRevision, append([]Write{head}, writes...)...)
		if conflict, ok := errors.AsType[*ConflictError](err); ok {
			if err := c.await(ctx, conflict.Got); err != nil {
				return 0, err
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		next.headRevision = revision
		c.following.stored(next.head.Revision)
		c.unsettled.add(writes, revision, c.kv.Settled())
		c.publish(next)
		return revision, nil
	}
	return 0, errs.New(errs.Unavailable, "the catalog is being changed by others too often; try again")
}

// mayRaise refuses a change that a process could not follow which is there now; one that
// comes later is refused when it opens the catalog.
func (c *Catalog) mayRaise(level FeatureLevel) error {
	if c.oldest == nil || level == c.FeatureLevel() {
		return nil
	}
	if process, knows := c.oldest(); knows < level {
		return errs.New(errs.Unavailable, "process %s runs an older release, which does not know what this change needs (feature level %d, and it knows up to %d): upgrade or stop it first", process, level, knows)
	}
	return nil
}

// ClusterID is the id that the cluster got when its catalog was created.
func (c *Catalog) ClusterID() [16]byte { return c.clusterID }

// FeatureLevel is what the cluster may write.
func (c *Catalog) FeatureLevel() FeatureLevel { return c.current.Load().head.FeatureLevel }

// Shards is the number of shards.
func (c *Catalog) Shards() int { return c.current.Load().head.Shards }

// Revision counts the changes made so far.
func (c *Catalog) Revision() int64 { return c.current.Load().head.Revision }

// Err is the error after which the catalog takes no more changes, if there was
// one, or after which it does not see those of other processes; reads go on.
func (c *Catalog) Err() error {
	c.following.mu.Lock()
	err := c.following.mu.failed
	c.following.mu.Unlock()
	if err != nil {
		return err
	}
	return c.kv.Err()
}

// Close waits for a change under way and releases the store.
func (c *Catalog) Close() error {
	c.change.Lock()
	defer c.change.Unlock()
	c.unfollow()
	return c.kv.Close()
}

func (c *Catalog) unfollow() {
	c.following.cancel()
	<-c.following.ended
}

// AllTables returns every table by id, for the owners of data at start: what a
// store holds of other tables has been dropped and may go.
func (c *Catalog) AllTables() []*millrace.Table {
	tables := c.current.Load().tables
	out := make([]*millrace.Table, 0, len(tables))
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		out = append(out, tables[id].Table)
	}
	return out
}

func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
