package storage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// points are the named points of the write and checkpoint path and of a start.
var points = []string{
	"epoch:before", "epoch:after",
	"log:before", "log:appended", "apply:begin", "apply:done",
	"checkpoint:released", "checkpoint:segments", "checkpoint:tails", "checkpoint:state", "checkpoint:manifest", "checkpoint:purged", "checkpoint:removed",
}

// Shows that what a kill or a power loss leaves at each point between the steps of a
// write, a checkpoint and a start opens, holds what was acknowledged, and the write
// under way whole or not at all; and that what is not applied yet is seen by nobody
// (S1, F3).
func TestFailpoints(t *testing.T) {
	const each = 6 // times a point is passed that are looked at
	s := newScript(t, 2)
	passed := map[string]int{}
	type crash struct {
		moment
		what string
	}
	var crashes []crash
	s.Opts.Hook = func(point string) {
		s.mu.Lock()
		passed[point]++
		n := passed[point]
		s.mu.Unlock()
		if n > 4 && n%7 != 0 || n > 7*each {
			return
		}
		for _, percent := range []int{0, 50, 100} {
			c := crash{s.moment(percent), fmt.Sprintf("%s for the %dth time, %d %% kept", point, n, percent)}
			s.mu.Lock()
			crashes = append(crashes, c)
			s.mu.Unlock()
		}
		switch point {
		case "log:before", "log:appended", "apply:begin":
			s.mu.Lock()
			defer s.mu.Unlock()
			require.True(t, s.matches(0), "%s: a write is seen before it is applied", point)
		}
	}
	s.run()
	s.Check()
	s.Close()
	s.MustOpen()
	s.Close()
	for _, p := range points {
		require.Positive(t, passed[p], "nothing passes %s", p)
	}
	for _, c := range crashes {
		s.verify(c.moment, c.what)
	}
	t.Logf("%d crashes", len(crashes))
}
