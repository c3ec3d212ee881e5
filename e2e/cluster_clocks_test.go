package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clocks of a cluster's processes are an hour apart, either way. Small and large writes and reads, pages that go on at
// another front, and moves go on: nothing is refused, and nothing is gone early.
func TestClusterMistakeClocks(t *testing.T) {
	f := newFleetOn(t, terrain{host: "127.0.0.1", ahead: []time.Duration{time.Hour, -time.Hour, 0, -time.Hour, time.Hour}})
	slow, fast := f.fronts[0], f.fronts[1]
	db := newDB(t, slow)
	keyed := create(t, slow, db, "keyed", "id BIGINT, v STRING", "id", 12)
	create(t, fast, db, "log", "n BIGINT, v STRING", "", 12, obj{"properties": obj{"table.log.ttl": "3h"}})
	text := strings.Repeat("x", 4<<10)
	var want, keys []string
	n := 0
	write := func(rows int) {
		var of []string
		for range rows {
			of = append(of, fmt.Sprintf(`{"id":%d,"v":%q}`, n, text))
			keys = append(keys, fmt.Sprintf(`{"id":%d}`, n))
			n++
		}
		want = append(want, of...)
		batch := "[" + strings.Join(of, ",") + "]"
		front := []*server{slow, fast}[n%2]
		table{front, db, "keyed"}.write(t, batch)
		table{front, db, "log"}.write(t, strings.ReplaceAll(batch, `"id"`, `"n"`))
	}
	check := func() {
		t.Helper()
		for _, front := range []*server{slow, fast} {
			require.ElementsMatch(t, want, table{front, db, "keyed"}.scan(t, obj{}))
			last := max(0, n-500)
			require.Equal(t, want[last:], table{front, db, "keyed"}.lookup(t, "["+strings.Join(keys[last:], ",")+"]"))
			require.Equal(t, fmt.Sprint(n), table{front, db, "log"}.count(t, ""))
		}
	}
	for range 3 {
		write(1)
		write(500) // by HTTP between the processes
		check()
	}
	// Pages that one front began and the other goes on with.
	var pages []string
	request := obj{"page_size": 400}
	for i, token := 0, "first"; token != ""; i++ {
		a := []*server{slow, fast}[i%2].do(t, "POST", keyed.path()+"/scan", request, "Accept", mediaJSON)
		require.Equal(t, 200, a.status, "%s", a.body)
		pages = append(pages, rowsOf(t, a.body, "rows")...)
		token, _ = a.object(t)["next_page_token"].(string)
		request["page_token"] = token
	}
	require.ElementsMatch(t, want, pages)
	// Every shard is at a worker whose clock is another one.
	for _, w := range f.workers {
		f.leave(t, w)
		f.settle(t, time.Minute)
		write(10)
		check()
		f.back(t, w)
		f.settle(t, time.Minute)
	}
	write(500)
	check()
}
