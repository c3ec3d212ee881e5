package token

import (
	"crypto/sha256"
	"sync"

	"github.com/millrace/millrace/auth"
)

// maxRemembered is how many tokens are remembered at most.
const maxRemembered = 20_000

// verified is a token that was good: who it is for, and the key that signed it.
type verified struct {
	principal *auth.Principal
	key       *key
}

// memory remembers verified tokens by their hash, in two halves: when the young one is
// full, it becomes the old one, whose place is free then. What is used moves to the young.
type memory struct {
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]verified
}

func (m *memory) get(token string) (v verified, ok bool) {
	sum := sha256.Sum256([]byte(token))
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok = m.young[sum]; ok {
		return v, true
	}
	if v, ok = m.old[sum]; ok {
		m.add(sum, v)
	}
	return v, ok
}

func (m *memory) put(token string, v verified) {
	sum := sha256.Sum256([]byte(token))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(sum, v)
}

func (m *memory) add(sum [sha256.Size]byte, v verified) {
	if m.young == nil || len(m.young) >= maxRemembered/2 {
		m.young, m.old = map[[sha256.Size]byte]verified{}, m.young
	}
	m.young[sum] = v
}

func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.young) + len(m.old)
}
