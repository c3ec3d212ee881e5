package catalog

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

const (
	// syncTimeout bounds the wait for the store's end, before something is said to be absent.
	syncTimeout = 10 * time.Second
	// syncEvery is the least time between the beginnings of two.
	syncEvery = 5 * time.Millisecond
)

// look finds something in the newest snapshot. What is absent is looked for again in one
// that is as new as the store was after the call. What was found in a commit that
// not every process has seen yet is waited for: an answer that tells of it must not be
// followed by one, elsewhere, that does not. find returns what it has found and which
// key of the store tells of it.
func look[T any](ctx context.Context, c *Catalog, find func(*snapshot) (T, ref, error)) (T, error) {
	var none T
	if err := c.kv.Lease(ctx); err != nil {
		return none, err
	}
	s := c.current.Load()
	found, at, err := find(s)
	if isAbsent(err) {
		if err := c.refresh(ctx); err != nil {
			return none, err
		}
		if now := c.current.Load(); now != s {
			found, at, err = find(now)
		}
	}
	if err != nil {
		return none, err
	}
	return found, c.settleFound(ctx, at)
}

func (c *Catalog) settleFound(ctx context.Context, at ref) error {
	settled := c.kv.Settled()
	if c.unsettled.newest.Load() <= settled {
		return nil
	}
	if revision := c.unsettled.of(at, settled); at.table != 0 && revision > 0 {
		return c.kv.Settle(ctx, revision)
	}
	return nil
}

// ref names a table, or a partition of it: a key of the store.
type ref struct {
	table     millrace.TableID
	partition millrace.PartitionID // 0: the table
}

// parseRef is what a key of a table or partition names.
func parseRef(key string) (ref, bool) {
	rest, ok := strings.CutPrefix(key, prefixTable)
	if ok {
		n, err := strconv.ParseUint(rest, 10, 32)
		return ref{table: millrace.TableID(n)}, err == nil
	}
	rest, ok = strings.CutPrefix(key, prefixPartition)
	if !ok {
		return ref{}, false
	}
	table, partition, _ := strings.Cut(rest, "/")
	t, err := strconv.ParseUint(table, 10, 32)
	if err != nil {
		return ref{}, false
	}
	p, err := strconv.ParseUint(partition, 10, 32)
	return ref{millrace.TableID(t), millrace.PartitionID(p)}, err == nil
}

func isAbsent(err error) bool {
	code := errs.CodeOf(err)
	return code == errs.DatabaseNotFound || code == errs.TableNotFound || code == errs.PartitionNotFound
}

// refresh waits until the snapshot is as new as the store's end when it was called.
// Those who wait at a time wait for one call of Sync.
func (c *Catalog) refresh(ctx context.Context) error {
	if c.kv.Settled() == math.MaxUint64 {
		return nil // nobody else changes anything
	}
	return c.syncs.do(ctx, c.following.ctx, func(ctx context.Context) error {
		revision, err := c.kv.Sync(ctx)
		if err != nil {
			return err
		}
		return c.await(ctx, revision)
	})
}

// flights lets those who come while a call is under way wait together for the next one.
type flights struct {
	mu      sync.Mutex
	running bool
	next    *flight
}

type flight struct {
	done chan struct{}
	err  error
}

// do waits for a run of fn that begins after the call; life ends all of them.
func (f *flights) do(ctx, life context.Context, fn func(context.Context) error) error {
	f.mu.Lock()
	if f.next == nil {
		f.next = &flight{done: make(chan struct{})}
	}
	mine := f.next
	if !f.running {
		f.running = true
		go f.run(life, fn)
	}
	f.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return errs.Wrap(errs.Unavailable, "catalog.Sync", ctx.Err())
	}
}

// run runs fn as long as somebody waits for it.
func (f *flights) run(life context.Context, fn func(context.Context) error) {
	for {
		f.mu.Lock()
		mine := f.next
		f.next = nil
		if mine == nil {
			f.running = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		ctx, cancel := context.WithTimeout(life, syncTimeout)
		mine.err = fn(ctx)
		cancel()
		close(mine.done)
		pause := time.NewTimer(syncEvery)
		select {
		case <-pause.C:
		case <-life.Done():
		}
		pause.Stop()
	}
}

// unsettled are the tables and partitions that commits wrote which not every process
// is known to have seen.
type unsettled struct {
	newest atomic.Uint64 // the highest revision of refs, and of floor
	mu     sync.Mutex
	floor  uint64 // everything up to it may be unsettled
	refs   map[ref]uint64
}

// begin says that everything up to a revision may be unsettled.
func (u *unsettled) begin(revision uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.floor = max(u.floor, revision)
	u.newest.Store(max(u.newest.Load(), revision))
}

// add notes the writes of a commit, and forgets what is settled.
func (u *unsettled) add(writes []Write, revision, settled uint64) {
	if revision <= settled {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for at, r := range u.refs {
		if r <= settled {
			delete(u.refs, at)
		}
	}
	if u.refs == nil {
		u.refs = map[ref]uint64{}
	}
	for _, w := range writes {
		if at, ok := parseRef(w.Key); ok && w.Value != nil {
			u.refs[at] = revision
			u.newest.Store(max(u.newest.Load(), revision))
		}
	}
}

// of is the revision that has to be settled before an answer tells of something; 0: none.
func (u *unsettled) of(at ref, settled uint64) uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	revision := u.refs[at]
	if revision == 0 {
		revision = u.floor
	}
	if revision <= settled {
		return 0
	}
	return revision
}
