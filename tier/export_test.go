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

// Asked says whether a job of a table is asked for and has not begun.
func (m *Manager) Asked(id millrace.TableID) bool {
	t := m.table(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next != nil
}

// Known is how many tables are known.
func (m *Manager) Known() int { return len(m.all()) }
