package owner

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
)

// board is the keys as this process last saw them.
type board struct {
	sessions map[string]seenSession
	leases   map[millrace.ShardID]seenLease
	// synced says that all keys that were there when the watch began have been seen.
	synced bool
	// members are the workers that shards can be placed on, as of the last look, and
	// changedAt when they last changed; on the boot clock.
	members   []string
	changedAt time.Duration
}

type seenSession struct {
	Session
	revision uint64
	since    time.Duration // when this revision was first seen; on the boot clock
}

type seenLease struct {
	Lease
	revision uint64
}

func newBoard() *board {
	return &board{sessions: map[string]seenSession{}, leases: map[millrace.ShardID]seenLease{}}
}

// take notes what a watch tells.
func (b *board) take(e Event, now time.Duration, log *slog.Logger) {
	switch e.Kind {
	case UpToDate:
		b.synced = true
	case Deleted:
		b.put(Entry{Key: e.Key, Revision: e.Revision}, now, log)
	case Put:
		b.put(e.Entry, now, log)
	}
}

// put notes what a key is now; a nil value: it is deleted.
func (b *board) put(e Entry, now time.Duration, log *slog.Logger) {
	if worker, ok := strings.CutPrefix(e.Key, sessionPrefix); ok {
		if seen := b.sessions[worker]; e.Revision <= seen.revision && seen.revision != 0 {
			return // a watch that began again
		}
		if e.Value == nil {
			delete(b.sessions, worker) // and a later put has a higher revision
			return
		}
		s := seenSession{revision: e.Revision, since: now}
		if err := json.Unmarshal(e.Value, &s.Session); err != nil || s.Worker != worker {
			log.Error("session does not read", slog.String("key", e.Key), slog.Any("err", err))
			return
		}
		b.sessions[worker] = s
		return
	}
	id, ok := parseLeaseKey(e.Key)
	if !ok {
		return
	}
	if seen := b.leases[id]; e.Revision <= seen.revision && seen.revision != 0 {
		return
	}
	l := seenLease{revision: e.Revision}
	if e.Value != nil {
		if err := json.Unmarshal(e.Value, &l.Lease); err != nil {
			log.Error("lease does not read", slog.String("key", e.Key), slog.Any("err", err))
		}
	}
	b.leases[id] = l
}

// candidates are the workers that shards can be placed on, by name.
func (b *board) candidates() []candidate {
	var out []candidate
	for _, name := range slices.Sorted(maps.Keys(b.sessions)) {
		s := b.sessions[name]
		if s.Draining || !slices.Contains(s.Roles, RoleWorker) {
			continue
		}
		c := candidate{name: name}
		for _, id := range s.Unable {
			if c.unable == nil {
				c.unable = map[millrace.ShardID]bool{}
			}
			c.unable[id] = true
		}
		out = append(out, c)
	}
	return out
}

// look notes whether the members have changed, and returns them.
func (b *board) look(now time.Duration) []candidate {
	of := b.candidates()
	names := make([]string, len(of))
	for i, c := range of {
		names[i] = c.name
	}
	if !slices.Equal(names, b.members) {
		b.members, b.changedAt = names, now
	}
	return of
}

// holder is the live worker that has a shard, or that it was released to; "" when there
// is none. A worker that was started again has the shards of its name.
func (b *board) holder(id millrace.ShardID) string {
	l := b.leases[id]
	name := l.Worker
	if l.Released {
		name = l.To
	}
	if _, live := b.sessions[name]; !live {
		return ""
	}
	return name
}

// takeable says whether a lease may be taken.
func (b *board) takeable(id millrace.ShardID) bool {
	l := b.leases[id]
	if l.Worker == "" || l.Released {
		return true
	}
	// An earlier incarnation of a worker that is there is gone too.
	s, live := b.sessions[l.Worker]
	return !live || s.Incarnation != l.Incarnation
}
