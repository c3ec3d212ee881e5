package catalog

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Bounds of what a Feed keeps for followers that are behind.
const (
	maxFeedCommits = 1024
	maxFeedBytes   = 8 << 20
)

// Feed hands commits to followers, for implementations of KV. It keeps the newest
// ones; a follower that is further behind gets everything instead. So neither does a slow
// follower hold up commits nor is there a queue without a bound.
type Feed struct {
	mu        sync.Mutex
	commits   []Committed
	before    uint64 // the revision before the oldest of commits
	newest    uint64
	bytes     int
	grown     chan struct{} // closed when something is added
	followers map[*uint64]struct{}
	failed    error
	advanced  func() // called when a follower has got on; may be nil
}

// NewFeed makes a feed of the commits after a revision.
func NewFeed(revision uint64) *Feed {
	return &Feed{before: revision, newest: revision, grown: make(chan struct{}), followers: map[*uint64]struct{}{}}
}

// OnSeen sets what is called, without a lock, each time when Seen may have risen. It
// is to be set before Follow is called.
func (f *Feed) OnSeen(fn func()) { f.advanced = fn }

// Add hands on the commit that follows the newest one.
func (f *Feed) Add(c Committed) {
	f.mu.Lock()
	f.commits = append(f.commits, c)
	f.newest = c.Revision
	f.bytes += weight(c)
	drop := 0
	for len(f.commits)-drop > maxFeedCommits || len(f.commits)-drop > 1 && f.bytes > maxFeedBytes {
		f.bytes -= weight(f.commits[drop])
		f.before = f.commits[drop].Revision
		drop++
	}
	f.commits = slices.Delete(f.commits, 0, drop)
	f.wake()
	f.mu.Unlock()
	f.told()
}

// Reset says that commits up to a revision were missed.
func (f *Feed) Reset(revision uint64) {
	f.mu.Lock()
	f.commits, f.before, f.newest, f.bytes = nil, revision, revision, 0
	f.wake()
	f.mu.Unlock()
	f.told()
}

// Fail ends all followers with an error. What was added before it is handed on still.
func (f *Feed) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
		f.wake()
	}
}

// Followed says whether there is a follower.
func (f *Feed) Followed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.followers) > 0
}

// Seen is the revision that every follower has seen, the newest one when there is none.
func (f *Feed) Seen() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.newest
	for at := range f.followers {
		seen = min(seen, *at)
	}
	return seen
}

// Follow is KV.Follow; load is KV.Load.
func (f *Feed) Follow(ctx context.Context, after uint64, load func(context.Context) ([]Entry, uint64, error), fn func(Committed) error) error {
	at := &after
	f.mu.Lock()
	f.followers[at] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.followers, at)
		f.mu.Unlock()
		f.told()
	}()
	for {
		commits, whole, err := f.next(ctx, *at)
		if err != nil {
			return err
		}
		if whole {
			entries, revision, err := load(ctx)
			if err != nil {
				return err
			}
			commits = []Committed{{Revision: revision, Whole: true, Entries: entries}}
		}
		for _, c := range commits {
			if err := fn(c); err != nil {
				return err
			}
			f.mu.Lock()
			*at = c.Revision
			f.mu.Unlock()
			f.told()
		}
	}
}

// next waits for commits after a revision; whole says that some are gone.
func (f *Feed) next(ctx context.Context, after uint64) (commits []Committed, whole bool, err error) {
	for {
		f.mu.Lock()
		grown, failed := f.grown, f.failed
		switch {
		case after < f.before:
			whole = true
		default:
			i, _ := slices.BinarySearchFunc(f.commits, after+1, func(c Committed, r uint64) int { return cmp.Compare(c.Revision, r) })
			commits = slices.Clone(f.commits[i:])
		}
		f.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, false, ctx.Err()
		case len(commits) > 0 || whole && failed == nil:
			return commits, whole, nil
		case failed != nil:
			return nil, false, failed
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// REQUIRES: f.mu held.
func (f *Feed) wake() {
	close(f.grown)
	f.grown = make(chan struct{})
}

func (f *Feed) told() {
	if f.advanced != nil {
		f.advanced()
	}
}

func weight(c Committed) int {
	n := 64
	for _, w := range c.Writes {
		n += 64 + len(w.Key) + len(w.Value)
	}
	return n
}
