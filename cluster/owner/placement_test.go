package owner

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
)

func candidates(names ...string) []candidate {
	out := make([]candidate, len(names))
	for i, n := range names {
		out[i].name = n
	}
	return out
}

// TestPlacement draws clusters and checks what a placement promises.
func TestPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 7).Draw(t, "workers")
		shards := rapid.IntRange(1, 64).Draw(t, "shards")
		var names []string
		for i := range workers {
			names = append(names, fmt.Sprintf("w%d", i))
		}
		now := make([]string, shards)
		for i := range now {
			now[i] = rapid.SampledFrom(append(names, "")).Draw(t, "now")
		}
		places := placement(candidates(names...), now, true)
		most := (shards + workers - 1) / workers
		count, kept := map[string]int{}, map[string]int{}
		for i, p := range places {
			require.NotEmpty(t, p.owner)
			count[p.owner]++
			if p.owner == now[i] {
				kept[p.owner]++
			}
			switch {
			case workers == 1:
				require.True(t, p.standby == "" || p.standby == p.owner)
			case now[i] != "" && now[i] != p.owner:
				require.Equal(t, p.owner, p.standby, "who is to have a shard follows it")
			default:
				require.NotEmpty(t, p.standby)
				require.NotEqual(t, p.owner, p.standby)
			}
		}
		had := map[string]int{}
		for _, w := range now {
			had[w]++
		}
		for _, w := range names {
			require.LessOrEqual(t, count[w], most)
			require.Equal(t, min(had[w], most), kept[w], "a shard stays unless its worker has too many")
		}
	})
}

func TestPlacementWithoutBalanceGoesToTheStandby(t *testing.T) {
	of := candidates("a", "b", "c")
	now := make([]string, 32)
	before := placement(of, now, true)
	for i := range now {
		now[i] = before[i].owner
	}
	before = placement(of, now, true)
	var left []candidate
	for _, c := range of {
		if c.name != "b" {
			left = append(left, c)
		}
	}
	for i := range now {
		if now[i] == "b" {
			now[i] = ""
		}
	}
	for i, p := range placement(left, now, false) {
		if now[i] == "" {
			require.Equal(t, before[i].standby, p.owner, "shard %d", i)
		} else {
			require.Equal(t, now[i], p.owner)
		}
	}
}

func TestPlacementPassesOverWhoIsUnable(t *testing.T) {
	of := candidates("a", "b")
	of[0].unable = map[millrace.ShardID]bool{0: true, 1: true, 2: true}
	places := placement(of, []string{"a", "", "b"}, true)
	for i, p := range places {
		require.Equal(t, "b", p.owner, "shard %d", i)
	}
	require.Equal(t, "b", places[0].standby)
	of[1].unable = of[0].unable
	require.Equal(t, place{}, placement(of, []string{"", "", ""}, true)[0], "nobody can")
}

// A placement that is kept is the one that would be computed, whatever changed since.
func TestKeptPlacement(t *testing.T) {
	var kept placed
	unable := candidates("a", "b", "c")
	unable[1].unable = map[millrace.ShardID]bool{2: true}
	for _, in := range []struct {
		of      []candidate
		now     []string
		balance bool
	}{
		{candidates("a", "b"), make([]string, 8), false},
		{candidates("a", "b"), make([]string, 8), false},
		{candidates("a", "b"), make([]string, 8), true},
		{candidates("a", "b", "c"), make([]string, 8), true},
		{unable, make([]string, 8), true},
		{unable, []string{"a", "a", "b", "", "", "", "", ""}, true},
		{unable, []string{"a", "a", "c", "", "", "", "", ""}, true},
		{unable, make([]string, 9), true},
		{nil, make([]string, 9), true},
	} {
		for range 2 {
			require.Equal(t, placement(in.of, in.now, in.balance), kept.get(in.of, in.now, in.balance))
		}
	}
}
