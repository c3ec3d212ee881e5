package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore/objstoretest"
)

// The server is killed at each step of a round of tiering (F12), over a log table and a keyed one: whatever was
// written before, and goes on being written, is in the lake once when it is back, and the hot rows never miss any. So it
// is in a folder and in S3.
func TestKillTiering(t *testing.T) {
	t.Parallel()
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		killTiering(t, newServer(t))
	})
	t.Run("S3", func(t *testing.T) {
		t.Parallel()
		killTiering(t, newServerOnS3(t, objstoretest.StartGateway(t)))
	})
}

func killTiering(t *testing.T, s *server) {
	db := newDB(t, s)
	lake := obj{"properties": obj{"table.datalake.enabled": "true", "table.datalake.freshness": "2s"}}
	log := create(t, s, db, "events", "n BIGINT, v STRING", "", 2, lake)
	keyed := create(t, s, db, "state", "k BIGINT, n BIGINT", "k", 2, lake)
	var events []string
	state := map[int]int{}
	n := 0
	write := func() {
		for range 3 {
			rows, upserts := "[", "["
			for range 20 {
				n++
				event := fmt.Sprintf(`{"n":%d,"v":"%d"}`, n, n%7)
				events = append(events, event)
				rows += event + ","
				state[n%50] = n
				upserts += fmt.Sprintf(`{"k":%d,"n":%d},`, n%50, n)
			}
			log.write(t, rows[:len(rows)-1]+"]")
			keyed.write(t, upserts[:len(upserts)-1]+"]")
		}
	}
	check := func(step string) {
		t.Helper()
		var current []string
		for k, v := range state {
			current = append(current, fmt.Sprintf(`{"k":%d,"n":%d}`, k, v))
		}
		slices.Sort(current)
		slices.Sort(events)
		sorted := func(tb table, tier string) []string {
			out := tb.scan(t, obj{"tier": tier})
			slices.Sort(out)
			return out
		}
		for _, tier := range []string{"hot", "union"} {
			require.Equal(t, events, sorted(log, tier), "after %s", step)
			require.Equal(t, current, sorted(keyed, tier), "after %s", step)
		}
		require.Eventually(t, func() bool {
			return slices.Equal(events, sorted(log, "lake")) && slices.Equal(current, sorted(keyed, "lake"))
		}, patience, 100*time.Millisecond, "the lake after %s", step)
	}
	write()
	check("the start")
	for _, step := range []string{"begun", "read", "written", "before-commit", "after-commit", "told"} {
		s.kill()
		env := s.env
		s.env = append(slices.Clip(env), "MILLRACE_FAILPOINT=tier."+step+":kill")
		s.restart(t)
		write()
		select {
		case <-s.done:
		case <-time.After(patience):
			t.Fatalf("no round came to step %s", step)
		}
		s.disconnect()
		s.env = env
		s.restart(t)
		check(step)
	}
}
