package owner

import (
	"cmp"
	"maps"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
)

// View is the cluster as this process sees it.
type View struct {
	Workers []WorkerView
	Shards  []ShardView
}

// WorkerView is a process of the cluster.
type WorkerView struct {
	Session
	Leads int           // shards
	Age   time.Duration // since it was last seen to renew
}

// ShardView is who has a shard.
type ShardView struct {
	Shard millrace.ShardID
	Lease
	Owner   string // "" while nobody has it
	Moving  string // who is to have it, when that is not the owner
	Standby string
	Standing
}

// View is the cluster as this process sees it now.
func (m *Manager) View() View {
	now := m.o.Clock.Boot()
	m.mu.Lock()
	defer m.mu.Unlock()
	var v View
	leads := map[string]int{}
	holders := make([]string, m.o.Shards())
	for i := range holders {
		holders[i] = m.board.holder(millrace.ShardID(i))
		leads[holders[i]]++
	}
	places := m.placed.get(m.board.candidates(), holders, now-m.board.changedAt >= quiet)
	names := slices.Sorted(maps.Keys(m.board.sessions))
	for i, p := range places {
		id := millrace.ShardID(i)
		s := ShardView{Shard: id, Lease: m.board.leases[id].Lease}
		if !s.Released {
			s.Owner = holders[i]
		}
		if p.owner != s.Owner {
			s.Moving = p.owner
		}
		// Who follows: the chosen one, or whoever has it furthest.
		for _, name := range names {
			if st, ok := m.board.sessions[name].Standbys[id]; ok && (s.Standby == "" || name == p.standby) {
				s.Standby, s.Standing = name, st
			}
		}
		v.Shards = append(v.Shards, s)
	}
	for name, s := range m.board.sessions {
		v.Workers = append(v.Workers, WorkerView{Session: s.Session, Leads: leads[name], Age: now - s.since})
	}
	slices.SortFunc(v.Workers, func(a, b WorkerView) int { return cmp.Compare(a.Worker, b.Worker) })
	return v
}
