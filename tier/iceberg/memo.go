package iceberg

import (
	"container/list"
	"context"
	"sync"
)

// memo remembers what was made of files that never change, up to a size in bytes. Of
// callers that want the same at once, one makes it.
type memo[K comparable, V any] struct {
	most int64
	mu   sync.Mutex
	held map[K]*list.Element // of entries, the last used ones in front
	used list.List
	size int64
	// making are channels that close when the value of a key was made, or not.
	making map[K]chan struct{}
}

type memoEntry[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

func newMemo[K comparable, V any](most int64) *memo[K, V] {
	return &memo[K, V]{most: most, held: map[K]*list.Element{}, making: map[K]chan struct{}{}}
}

// get gives the value of a key, which it makes when it is not held.
func (m *memo[K, V]) get(ctx context.Context, key K, build func(context.Context) (V, int64, error)) (V, error) {
	for {
		m.mu.Lock()
		if e := m.held[key]; e != nil {
			m.used.MoveToFront(e)
			m.mu.Unlock()
			return e.Value.(*memoEntry[K, V]).value, nil
		}
		other := m.making[key]
		if other == nil {
			done := make(chan struct{})
			m.making[key] = done
			m.mu.Unlock()
			return m.build(ctx, key, done, build)
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return *new(V), ctx.Err()
		}
	}
}

func (m *memo[K, V]) build(ctx context.Context, key K, done chan struct{}, build func(context.Context) (V, int64, error)) (V, error) {
	var size int64
	var v V
	made := false // neither when it panics
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.making, key)
		close(done)
		if made && size <= m.most {
			m.held[key] = m.used.PushFront(&memoEntry[K, V]{key, v, size})
			m.size += size
		}
		for m.size > m.most {
			last := m.used.Remove(m.used.Back()).(*memoEntry[K, V])
			delete(m.held, last.key)
			m.size -= last.size
		}
	}()
	var err error
	v, size, err = build(ctx)
	made = err == nil
	return v, err
}
