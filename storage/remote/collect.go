package remote

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/shard"
)

const (
	// KeepSuperseded is how long a checkpoint can be restored after the next one came.
	KeepSuperseded = 24 * time.Hour
	// KeepOrphans is how long an object stays that no manifest names.
	KeepOrphans = 7 * 24 * time.Hour

	// How often it is looked for either.
	collectEvery = time.Hour
	sweepEvery   = 24 * time.Hour
	// Objects removed with one call.
	removeAtOnce = 500
)

// collector is when a shard looked last for what can go.
type collector struct {
	collected, swept time.Time
}

// Collect is part of shard.Remote.
func (r *Shard) Collect(ctx context.Context, epoch millrace.Epoch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.s.o.Clock.Now()
	if d := now.Sub(r.gc.collected); d >= 0 && d < collectEvery {
		return nil
	}
	c := &collection{r: r, now: now}
	var err error
	if c.all, err = r.numbers(ctx); err != nil || len(c.all) == 0 {
		return err
	}
	newest, err := c.manifest(ctx, c.all[len(c.all)-1])
	if err != nil {
		return err
	}
	// Who was deposed takes nothing away; nor is anything, while the newest is damaged.
	if newest == nil || newest.Tail.Epoch != epoch {
		return nil
	}
	if err := c.superseded(ctx, newest); err != nil {
		return err
	}
	r.gc.collected = now
	if d := now.Sub(r.gc.swept); d >= 0 && d < sweepEvery {
		return nil
	}
	if err := c.orphans(ctx); err != nil {
		return err
	}
	r.gc.swept = now
	return nil
}

// collection is one look for what can go.
type collection struct {
	r   *Shard
	now time.Time
	all []uint64 // the manifests there are, rising
}

// manifest reads a manifest; nil when it is damaged.
func (c *collection) manifest(ctx context.Context, number uint64) (*shard.Manifest, error) {
	m, err := c.r.manifest(ctx, number)
	if passOver(err) {
		return nil, nil
	}
	return m, err
}

// due says whether a manifest has superseded the one before long enough ago.
func (c *collection) due(m *shard.Manifest) bool {
	return c.now.Sub(time.UnixMicro(m.Remote.Micros)) >= KeepSuperseded
}

// superseded removes, from the oldest manifest on, what it names and no later one does
// (R4): the objects, then the manifest. A crash between the two leaves a manifest that
// cannot be restored, which is about to go. Among manifests of one owner the next one
// alone tells what no later one names (R3).
func (c *collection) superseded(ctx context.Context, newest *shard.Manifest) error {
	if len(c.all) < 2 {
		return nil
	}
	m, err := c.manifest(ctx, c.all[0])
	for ; err == nil && len(c.all) > 1; c.all = c.all[1:] {
		var next *shard.Manifest
		if next, err = c.manifest(ctx, c.all[1]); err != nil {
			break
		}
		if m == nil || next == nil || m.Tail.Epoch != newest.Tail.Epoch {
			return c.supersededOfMany(ctx)
		}
		if !c.due(next) {
			return nil
		}
		garbage := m.ObjectKeys()
		for _, kept := range []*shard.Manifest{next, newest} {
			for key := range kept.ObjectKeys() {
				delete(garbage, key)
			}
		}
		if err = c.remove(ctx, slices.Collect(maps.Keys(garbage))...); err == nil {
			err = c.remove(ctx, c.r.manifestKey(c.all[0]))
		}
		m = next
	}
	return err
}

// supersededOfMany does the same for manifests of several owners: it asks all of them
// which is the last one that names an object. A damaged one names nothing.
func (c *collection) supersededOfMany(ctx context.Context) error {
	seen := map[string]struct{}{}
	garbage := map[uint64][]string{}
	due := false // what is at hand was superseded long enough ago
	var going []uint64
	for _, n := range slices.Backward(c.all) {
		m, err := c.manifest(ctx, n)
		if err != nil {
			return err
		}
		if m != nil {
			for key := range m.ObjectKeys() {
				if _, ok := seen[key]; ok {
					continue
				}
				seen[key] = struct{}{}
				if due {
					garbage[n] = append(garbage[n], key)
				}
			}
		}
		if due {
			going = append(going, n)
		}
		due = due || m != nil && c.due(m)
	}
	for _, n := range slices.Backward(going) {
		if err := c.remove(ctx, garbage[n]...); err != nil {
			return err
		}
		if err := c.remove(ctx, c.r.manifestKey(n)); err != nil {
			return err
		}
		c.all = c.all[1:]
	}
	return nil
}

// orphans removes what no manifest names and was written long ago: by owners that were
// deposed, or died, before they published.
func (c *collection) orphans(ctx context.Context) error {
	var old []string
	err := c.r.s.o.Objects.List(ctx, c.r.key(), func(i objstore.Info) error {
		if c.now.Sub(i.Modified) >= KeepOrphans {
			old = append(old, i.Key)
		}
		return nil
	})
	if err != nil || len(old) == 0 {
		return err
	}
	named := c.r.unpublished()
	for _, n := range c.all {
		m, err := c.manifest(ctx, n)
		if err != nil {
			return err
		}
		named[c.r.manifestKey(n)] = struct{}{}
		if m == nil {
			continue
		}
		for key := range m.ObjectKeys() {
			named[key] = struct{}{}
		}
	}
	var keys []string
	for _, key := range old {
		if _, ok := named[key]; !ok {
			keys = append(keys, key)
		}
	}
	return c.remove(ctx, keys...)
}

func (c *collection) remove(ctx context.Context, keys ...string) error {
	for at := 0; at < len(keys); at += removeAtOnce {
		some := keys[at:min(at+removeAtOnce, len(keys))]
		if err := c.r.s.o.Objects.Remove(ctx, some...); err != nil {
			return fmt.Errorf("remote.Collect: %w", err)
		}
		c.r.s.m.removed.Add(float64(len(some)))
	}
	return nil
}
