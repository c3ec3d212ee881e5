package catalog

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Changes are what was different after a commit, of this process or another.
type Changes struct {
	// Dropped are tables that are gone, as they were.
	Dropped []*millrace.Table
	// Altered are tables that are new or have another version, as they are.
	Altered []*millrace.Table
	// Partitions are those that are new or have changed, as they are, and RemovedPartitions
	// those that are gone from tables that are not.
	Partitions        []*millrace.Partition
	RemovedPartitions []*millrace.Partition
	// Grants says that there are other grants than before.
	Grants bool
}

// following is what a Catalog has to do with the commits of its store.
type following struct {
	ctx    context.Context // of the catalog's life
	cancel context.CancelFunc
	ended  chan struct{}

	mu struct {
		sync.Mutex
		advanced chan struct{} // closed when seen rises
		seen     uint64        // the revision that current is as of; the store has commits of its own too
		failed   error
		changed  []func(Changes)
	}
	made atomic.Pointer[func(revision int64)]
	told told // belongs to the goroutine
}

// Changed makes fn be called after changes, those of other processes too: one call at
// a time, in order, and several changes may come as one. What it does before it returns is
// done before the change is acknowledged to whoever made it, which waits for it: fn
// hands over what takes time. What came before the call of Changed is not told.
func (c *Catalog) Changed(fn func(Changes)) {
	c.following.mu.Lock()
	defer c.following.mu.Unlock()
	c.following.mu.changed = append(c.following.mu.changed, fn)
}

// Made makes fn be called after each change that this process made, with the number
// of changes then; fn does not wait for anything.
func (c *Catalog) Made(fn func(revision int64)) { c.following.made.Store(&fn) }

func (f *following) stored(revision int64) {
	if fn := f.made.Load(); fn != nil {
		(*fn)(revision)
	}
}

// follow goes along with the commits of the store after a revision until the catalog is
// closed.
func (c *Catalog) follow(after uint64) {
	defer close(c.following.ended)
	err := c.kv.Follow(c.following.ctx, after, c.followed)
	if c.following.ctx.Err() != nil || errs.Is(err, errs.Draining) {
		return
	}
	c.log.Error("catalog not followed any more", slog.Any("err", err))
	c.following.mu.Lock()
	defer c.following.mu.Unlock()
	c.following.mu.failed = err
	close(c.following.mu.advanced)
	c.following.mu.advanced = make(chan struct{})
}

// followed takes over a commit, unless it is known already.
func (c *Catalog) followed(commit Committed) error {
	if s := c.current.Load(); commit.Revision > s.headRevision && (commit.Whole || len(commit.Writes) > 0) {
		var next *snapshot
		var err error
		if commit.Whole {
			next, err = loadSnapshot(commit.Entries)
		} else {
			next, err = s.apply(commit.Revision, commit.Writes)
		}
		if err != nil {
			return err
		}
		if commit.Whole {
			c.unsettled.begin(commit.Revision)
		}
		c.unsettled.add(commit.Writes, commit.Revision, c.kv.Settled())
		c.publish(next)
	}
	c.tell(commit)
	c.following.mu.Lock()
	defer c.following.mu.Unlock()
	c.seenLocked(commit.Revision)
	return nil
}

// seenLocked notes up to which revision everything is in current.
// REQUIRES: c.following.mu is held.
func (c *Catalog) seenLocked(revision uint64) {
	f := &c.following
	if revision <= f.mu.seen {
		return
	}
	f.mu.seen = revision
	close(f.mu.advanced)
	f.mu.advanced = make(chan struct{})
}

// publish makes a newer snapshot the current one.
func (c *Catalog) publish(next *snapshot) {
	f := &c.following
	f.mu.Lock()
	defer f.mu.Unlock()
	if next.headRevision <= c.current.Load().headRevision {
		return
	}
	c.current.Store(next)
	c.seenLocked(next.headRevision)
}

// await waits until the snapshot has a revision.
func (c *Catalog) await(ctx context.Context, revision uint64) error {
	for {
		c.following.mu.Lock()
		advanced, seen, err := c.following.mu.advanced, c.following.mu.seen, c.following.mu.failed
		c.following.mu.Unlock()
		switch {
		case seen >= revision:
			return nil
		case err != nil:
			return errs.Wrap(errs.Unavailable, "catalog.follow", err)
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return errs.Wrap(errs.Unavailable, "catalog.follow", ctx.Err())
		case <-c.following.ctx.Done():
			return errs.New(errs.Draining, "the catalog is closed")
		}
	}
}

// told is what the functions of Changed know.
type told struct {
	tables     map[millrace.TableID]*table
	partitions map[millrace.TableID]*partitions
}

func newTold(s *snapshot) told {
	return told{tables: maps.Clone(s.tables), partitions: maps.Clone(s.partitions)}
}

// tell tells the functions of Changed what is different of the things that the commit
// wrote. The snapshot may be newer than the commit: what later commits wrote too is then
// told now, and not again.
func (c *Catalog) tell(commit Committed) {
	c.following.mu.Lock()
	fns := slices.Clone(c.following.mu.changed)
	c.following.mu.Unlock()
	now := c.current.Load()
	var ch Changes
	if commit.Whole {
		c.following.told.all(now, &ch)
	} else {
		c.following.told.written(now, commit.Writes, &ch)
	}
	ch.Grants = commit.Whole || slices.ContainsFunc(commit.Writes, func(w Write) bool { return strings.HasPrefix(w.Key, prefixGrant) })
	if !ch.Grants && len(ch.Dropped)+len(ch.Altered)+len(ch.Partitions)+len(ch.RemovedPartitions) == 0 {
		return
	}
	for _, fn := range fns {
		fn(ch)
	}
}

// all compares everything.
func (t *told) all(now *snapshot, ch *Changes) {
	tables := maps.Clone(t.tables)
	maps.Copy(tables, now.tables)
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		before, after := t.partitions[id], now.partitions[id]
		t.table(now, id, ch)
		if now.tables[id] == nil || before == after {
			continue
		}
		for _, p := range before.all() {
			comparePartition(p.ID, before, after, ch)
		}
		for _, p := range after.all() {
			if before.withID(p.ID) == nil {
				comparePartition(p.ID, before, after, ch)
			}
		}
	}
}

// written compares what a commit wrote.
func (t *told) written(now *snapshot, writes []Write, ch *Changes) {
	before := map[millrace.TableID]*partitions{}
	for _, w := range writes {
		if r, ok := parseRef(w.Key); ok {
			if _, met := before[r.table]; !met {
				before[r.table] = t.partitions[r.table]
				t.table(now, r.table, ch)
			}
		}
	}
	for _, w := range writes {
		if r, ok := parseRef(w.Key); ok && r.partition != 0 && now.tables[r.table] != nil {
			comparePartition(r.partition, before[r.table], now.partitions[r.table], ch)
		}
	}
}

// table compares a table, and takes over how it and its partitions are.
func (t *told) table(now *snapshot, id millrace.TableID, ch *Changes) {
	was, is := t.tables[id], now.tables[id]
	if is == nil {
		delete(t.tables, id)
		delete(t.partitions, id)
		if was != nil {
			ch.Dropped = append(ch.Dropped, was.Table)
		}
		return
	}
	t.tables[id] = is
	if ps := now.partitions[id]; ps != nil {
		t.partitions[id] = ps
	}
	if was == nil || was.Version != is.Version {
		ch.Altered = append(ch.Altered, is.Table)
	}
}

func comparePartition(id millrace.PartitionID, before, after *partitions, ch *Changes) {
	switch was, is := before.withID(id), after.withID(id); {
	case is == nil && was != nil:
		ch.RemovedPartitions = append(ch.RemovedPartitions, was)
	case is != nil && is != was:
		ch.Partitions = append(ch.Partitions, is)
	}
}
