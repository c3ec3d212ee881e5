package shard

import "sync"

// gate lets readers in until it is closed; then it waits until they have left.
type gate struct {
	mu     sync.RWMutex
	closed bool
}

// enter lets a reader in; false when the gate is closed. One that was let in leaves.
func (g *gate) enter() bool {
	g.mu.RLock()
	if g.closed {
		g.mu.RUnlock()
		return false
	}
	return true
}

func (g *gate) leave() { g.mu.RUnlock() }

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
