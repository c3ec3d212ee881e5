package owner

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	millrace "github.com/millrace/millrace"
)

// candidate is a worker that shards can be placed on.
type candidate struct {
	name   string
	unable map[millrace.ShardID]bool
}

// place is where a shard should be.
type place struct {
	owner, standby string // "" when there is none
}

// rank is a worker's weight for a shard: the highest is first choice (rendezvous
// hashing), so that a worker that comes or goes changes its own shards only.
func rank(worker, what string, n uint64) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(worker) // never fails
	_, _ = d.WriteString("\x00" + what + "\x00")
	var b [8]byte
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
	_, _ = d.Write(b[:])
	return d.Sum64()
}

// ranked are the candidates that can have a shard, first choice first.
func ranked(of []candidate, id millrace.ShardID) []string {
	type weighed struct {
		name   string
		weight uint64
	}
	all := make([]weighed, 0, len(of))
	for _, c := range of {
		if !c.unable[id] {
			all = append(all, weighed{c.name, rank(c.name, "shard", uint64(id))})
		}
	}
	slices.SortFunc(all, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.name, b.name))
	})
	out := make([]string, len(all))
	for i, w := range all {
		out[i] = w.name
	}
	return out
}

// placement says where each shard should be. now are the workers that have the shards
// ("" when nobody has, or who had is gone). Everyone computes it from the same keys.
//
// A shard stays where it is. When balance is set no worker keeps or gets more than
// ceil(shards / workers); without it a shard that nobody has goes to its first choice,
// which followed it.
func placement(of []candidate, now []string, balance bool) []place {
	out := make([]place, len(now))
	if len(of) == 0 {
		return out
	}
	most := len(now)
	if balance {
		most = (len(now) + len(of) - 1) / len(of)
	}
	order := make([][]string, len(now))
	for i := range now {
		order[i] = ranked(of, millrace.ShardID(i))
	}
	count := map[string]int{}
	// Of a worker that has too many, those stay that prefer it most.
	stay := make([]int, len(now))
	for i := range stay {
		stay[i] = i
	}
	slices.SortStableFunc(stay, func(a, b int) int {
		return cmp.Compare(slices.Index(order[a], now[a]), slices.Index(order[b], now[b]))
	})
	for _, i := range stay {
		if w := now[i]; w != "" && slices.Contains(order[i], w) && count[w] < most {
			out[i].owner = w
			count[w]++
		}
	}
	for i := range out {
		if out[i].owner != "" {
			continue
		}
		for _, w := range order[i] {
			if count[w] < most {
				out[i].owner = w
				count[w]++
				break
			}
		}
		if out[i].owner == "" && len(order[i]) > 0 { // the others cannot have it
			out[i].owner = order[i][0]
			count[out[i].owner]++
		}
	}
	for i := range out {
		out[i].standby = standby(order[i], now[i], out[i].owner)
	}
	return out
}

// standby is who follows a shard: who is to have it, or else the first choice of those
// who do not have it.
func standby(order []string, now, owner string) string {
	if owner != now && now != "" {
		return owner
	}
	for _, w := range order {
		if w != owner {
			return w
		}
	}
	return ""
}

// placed is a placement and what it was computed from. Sessions are renewed all the time
// and change nothing of that, and with many workers and shards it takes long.
type placed struct {
	of      []candidate
	now     []string
	balance bool
	places  []place
}

// get is the placement, computed anew only when something of it has changed.
func (p *placed) get(of []candidate, now []string, balance bool) []place {
	same := func(a, b candidate) bool { return a.name == b.name && maps.Equal(a.unable, b.unable) }
	if p.places == nil || p.balance != balance || !slices.Equal(p.now, now) || !slices.EqualFunc(p.of, of, same) {
		*p = placed{of: of, now: now, balance: balance, places: placement(of, now, balance)}
	}
	return p.places
}
