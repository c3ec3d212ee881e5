package ownertest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/errs"
)

// Store holds keys in memory.
type Store struct {
	mu       sync.Mutex
	revision uint64
	entries  map[string]owner.Entry
	deleted  map[string]uint64 // the revisions of deletions
	changed  chan struct{}     // closed at the next change
}

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{entries: map[string]owner.Entry{}, deleted: map[string]uint64{}, changed: make(chan struct{})}
}

// Entries are all keys, in order, for checks from outside.
func (s *Store) Entries() []owner.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []owner.Entry
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		out = append(out, copied(s.entries[key]))
	}
	return out
}

// apply makes one change, unless the key has another revision; a nil value deletes.
func (s *Store) apply(key string, value []byte, expect uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.entries[key].Revision; got != expect {
		return 0, &owner.ConflictError{Key: key, Want: expect, Got: got}
	}
	s.revision++
	if value == nil {
		delete(s.entries, key)
		s.deleted[key] = s.revision
	} else {
		s.entries[key] = owner.Entry{Key: key, Value: bytes.Clone(value), Revision: s.revision}
		delete(s.deleted, key)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return s.revision, nil
}

func (s *Store) get(key string) (owner.Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	return copied(e), ok
}

// since is what is different under prefix from what a watcher was told, in the order of
// revisions, and a channel that is closed at the next change.
func (s *Store) since(prefix string, told map[string]uint64) ([]owner.Event, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []owner.Event
	for key, e := range s.entries {
		if strings.HasPrefix(key, prefix) && told[key] != e.Revision {
			events = append(events, owner.Event{Kind: owner.Put, Entry: copied(e)})
		}
	}
	for key := range told {
		if s.entries[key].Revision == 0 {
			events = append(events, owner.Event{Kind: owner.Deleted, Entry: owner.Entry{Key: key, Revision: s.deleted[key]}})
		}
	}
	slices.SortFunc(events, func(a, b owner.Event) int { return int(a.Revision) - int(b.Revision) })
	return events, s.changed
}

func copied(e owner.Entry) owner.Entry {
	e.Value = bytes.Clone(e.Value)
	return e
}

// Client is one process's way to a Store.
type Client struct {
	store *Store

	mu     sync.Mutex
	healed chan struct{} // closed when not cut off
	lose   int           // how many answers are to be lost
}

var _ owner.Keys = (*Client)(nil)

// Client makes a way to the store.
func (s *Store) Client() *Client {
	healed := make(chan struct{})
	close(healed)
	return &Client{store: s, healed: healed}
}

// Cut cuts the client off: calls wait until their context ends, watches are told nothing.
func (c *Client) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.healed:
		c.healed = make(chan struct{})
	default:
	}
}

// Heal ends Cut.
func (c *Client) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.healed:
	default:
		close(c.healed)
	}
}

// LoseAnswers makes the next n changes unknown_outcome, after they were made.
func (c *Client) LoseAnswers(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose = n
}

// reach waits until the store can be reached.
func (c *Client) reach(ctx context.Context) error {
	for {
		c.mu.Lock()
		healed := c.healed
		c.mu.Unlock()
		select {
		case <-healed:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Client) change(ctx context.Context, op, key string, value []byte, expect uint64) (uint64, error) {
	if err := owner.CheckKey(key); err != nil {
		return 0, err
	}
	if err := c.reach(ctx); err != nil {
		return 0, errs.Wrap(errs.Unavailable, op, err)
	}
	revision, err := c.store.apply(key, value, expect)
	c.mu.Lock()
	lost := c.lose > 0
	if lost {
		c.lose--
	}
	c.mu.Unlock()
	if lost {
		return 0, errs.New(errs.UnknownOutcome, "the answer was lost")
	}
	return revision, err
}

// Create gives a key its first value.
func (c *Client) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return c.Update(ctx, key, value, 0)
}

// Update replaces a value.
func (c *Client) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := owner.CheckValue(key, value); err != nil {
		return 0, err
	}
	return c.change(ctx, "keys.Update", key, value, revision)
}

// Delete removes a key.
func (c *Client) Delete(ctx context.Context, key string, revision uint64) error {
	if revision == 0 {
		return errs.New(errs.InvalidValue, "key %q is to be deleted at revision 0", key)
	}
	_, err := c.change(ctx, "keys.Delete", key, nil, revision)
	return err
}

// Get reads a key.
func (c *Client) Get(ctx context.Context, key string) (owner.Entry, bool, error) {
	if err := owner.CheckKey(key); err != nil {
		return owner.Entry{}, false, err
	}
	if err := c.reach(ctx); err != nil {
		return owner.Entry{}, false, errs.Wrap(errs.Unavailable, "keys.Get", err)
	}
	e, ok := c.store.get(key)
	return e, ok, nil
}

// Watch tells fn of the keys under prefix.
func (c *Client) Watch(ctx context.Context, prefix string, fn func(owner.Event) error) error {
	if err := owner.CheckPrefix(prefix); err != nil {
		return err
	}
	told := map[string]uint64{}
	for first := true; ; first = false {
		if err := c.reach(ctx); err != nil {
			return err
		}
		events, changed := c.store.since(prefix, told)
		for _, e := range events {
			if err := c.reach(ctx); err != nil {
				return err
			}
			if e.Kind == owner.Deleted {
				delete(told, e.Key)
			} else {
				told[e.Key] = e.Revision
			}
			if err := fn(e); err != nil {
				return err
			}
		}
		if first {
			if err := fn(owner.Event{Kind: owner.UpToDate}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
