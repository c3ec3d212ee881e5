package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore/faultproxy"
)

// The object store of a cluster is away, then slow, then answers with errors, broken and lost answers, while clients of
// all kinds work, a worker leaves and comes back, and a table is tiered: no request fails, the lake says that it fails,
// every process stays ready, and afterwards all goes on by itself. Then all workers lose their disks at once: each row
// comes back from the object store and the log, once (F9).
//
// E2E_STORE_SECONDS is how long the object store is away; the other faults last ten seconds.
func TestClusterObjectStoreFaults(t *testing.T) {
	f := newFleetOn(t, terrain{host: "127.0.0.1", faulty: true})
	l := newLoad(t, f)
	defer l.halt()
	tiered := create(t, f.fronts[0], l.db, "tiered", "n BIGINT", "", 6, inLake("1s"))
	n := int64(0)
	l.begin(t)
	l.clients("append to the lake's table", 1, func(c *http.Client, _, round int) error {
		var rows strings.Builder
		for i := range int64(20) {
			fmt.Fprintf(&rows, "{\"n\":%d}\n", int64(round)*20+i)
		}
		err := l.want(c, round, "POST", tiered.path()+"/records", rows.String(), nil, "Content-Type", mediaNDJSON)
		if err == nil {
			n = int64(round+1) * 20
		}
		return err
	})
	state := func() (string, string) {
		st := tiered.lake(t)
		why, _ := st["error"].(obj)
		return fmt.Sprint(st["state"]), fmt.Sprint(why["code"])
	}
	is := func(want string) func() bool {
		return func() bool { got, _ := state(); return got == want }
	}
	require.Eventually(t, is("ok"), patience, 100*time.Millisecond)

	for _, c := range []struct {
		name  string
		long  time.Duration
		fault faultproxy.Schedule
		fails bool
	}{
		{"away", time.Duration(setting("E2E_STORE_SECONDS", 10)) * time.Second, faultproxy.Always(faultproxy.Reset), true},
		{"slow", 10 * time.Second, faultproxy.Always(faultproxy.Delay), false},
		{"refusing", 10 * time.Second, faultproxy.Seeded(1, faultproxy.Rates{
			faultproxy.SlowDown: 200, faultproxy.InternalError: 100, faultproxy.Reset: 50, faultproxy.Truncate: 50,
			faultproxy.LoseAnswer: 50, faultproxy.LoseAnswerSoftly: 50,
		}), false},
	} {
		t.Logf("%s the object store is %s", time.Now().Format("15:04:05.000"), c.name)
		began := time.Now()
		f.faults.Set(c.fault, time.Second)
		if c.fails {
			require.Eventually(t, is("failing"), patience, 100*time.Millisecond)
			_, code := state()
			require.Equal(t, "unavailable", code)
			f.leave(t, f.workers[1]) // its shards go to those that followed them
			f.back(t, f.workers[1])
			for _, s := range f.all() {
				a, err := ask(&http.Client{Timeout: 10 * time.Second}, "GET", s.base+"/readyz", nil)
				require.NoError(t, err)
				require.Equal(t, 200, a.status, "%s", a.body)
			}
		}
		time.Sleep(time.Until(began.Add(c.long)))
		f.faults.Set(nil, 0)
		t.Logf("%s it is well again", time.Now().Format("15:04:05.000"))
		require.Eventually(t, is("ok"), patience, 100*time.Millisecond)
		f.settle(t, patience)
	}
	l.end(t)
	require.Positive(t, f.faults.Met()[faultproxy.LoseAnswer])

	for _, w := range f.workers {
		w.kill()
	}
	for _, w := range f.workers {
		wipe(t, w)
	}
	for _, w := range f.workers {
		f.back(t, w)
	}
	f.settle(t, patience)
	l.isAll(t)
	require.Eventually(t, func() bool { return is("ok")() && len(tiered.numbers(t, "n", of("lake"))) == int(n) }, patience, 100*time.Millisecond)
	for _, tier := range []string{"lake", "union"} {
		tiered.once(t, "n", tier, n)
	}
}

// isAll checks that the tables have exactly what was acknowledged.
func (l *load) isAll(t *testing.T) {
	t.Helper()
	require.Equal(t, fmt.Sprint(stillRows), l.still.count(t, ""))
	require.Equal(t, fmt.Sprint(stillRows), l.fixed.count(t, ""))
	got := fold{}
	for _, r := range l.keyed.scan(t, obj{"page_size": 10_000}) {
		var row struct{ ID, V int64 }
		require.NoError(t, json.Unmarshal([]byte(r), &row))
		got[row.ID] = row.V
	}
	require.True(t, same(got, l.state), "%d rows where %d were written", len(got), len(l.state))
	next := map[int]int{}
	for _, r := range readAppended(t, l.f.doors[0], l.log.path()) {
		require.Equal(t, next[r.W], r.N, "writer %d", r.W)
		next[r.W]++
	}
	require.Equal(t, l.sent, next)
}
