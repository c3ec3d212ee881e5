package tier

import millrace "github.com/millrace/millrace"

// Idle says whether nothing is under way of a table.
func (m *Manager) Idle(id millrace.TableID) bool {
	m.mu.Lock()
	t := m.tables[id]
	m.mu.Unlock()
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.running && t.next == nil
}
