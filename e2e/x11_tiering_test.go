package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lakeTime is how long the lake tests run beside writers and tiering: E2E_LAKE_SECONDS.
func lakeTime() time.Duration { return time.Duration(setting("E2E_LAKE_SECONDS", 10)) * time.Second }

// ordersFrom are n orders, numbered from id on, of 3 cents each.
func ordersFrom(id int64, n int) string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"order_id":%d,"cust_id":%d,"amount":3}`, id+int64(i), (id+int64(i))%97)
	}
	return "[" + strings.Join(rows, ",") + "]"
}

// X11: what was tiered and has outlived its TTL is in the lake alone, the tail in the log alone, and the union is
// both, each row once.
func TestX11Tiering(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	tb := create(t, s, db, "orders_log", orderColumns, "", 4, inLake("1h", "table.log.ttl", "200ms"))
	for i := range 10 {
		tb.write(t, ordersFrom(int64(i)*100, 100))
	}
	time.Sleep(2 * time.Second)
	require.Equal(t, "1000", tb.count(t, ""), "what is not in the lake does not expire")
	require.Len(t, tb.numbers(t, "order_id", of("hot")), 1000)
	require.Equal(t, json.Number("1000"), tb.tier(t)["rows_tiered"])
	require.Eventually(t, func() bool { return len(tb.numbers(t, "order_id", of("hot"))) == 0 }, time.Minute, 100*time.Millisecond)
	tb.write(t, ordersFrom(1000, 50))
	time.Sleep(2 * time.Second)
	check := func() {
		t.Helper()
		for tier, want := range map[string][2]int64{"hot": {1000, 1050}, "lake": {0, 1000}, "union": {0, 1050}} {
			got := tb.numbers(t, "order_id", of(tier))
			require.Len(t, got, int(want[1]-want[0]), tier)
			for id := want[0]; id < want[1]; id++ {
				require.Equal(t, 1, got[id], "order %d in %s", id, tier)
			}
		}
		require.Equal(t, []int64{1050, 3150}, s.oneRow(t, db, "SELECT COUNT(*), SUM(amount) FROM orders_log"))
		require.Equal(t, []int64{1000, 3000}, s.oneRow(t, db, "SELECT COUNT(*), SUM(amount) FROM orders_log$lake"))
		require.Equal(t, "1050", tb.count(t, ""))
		require.Equal(t, "11", tb.count(t, "cust_id = 7 AND order_id > 0"))
		_, flown := s.dial(t).scan(t, pathOf(tb))
		require.Len(t, flown, 1050)
	}
	check()
	s.kill()
	s.restart(t)
	check()
}

// X11, under way: while two writers append, rounds go on, files are merged and the log lets go of what is tiered, every
// read of both tiers has each row once that was acknowledged before it began, and none that was not sent before it
// ended. So it is after a crash amid a round.
func TestX11UnderWay(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	tb := create(t, s, db, "orders_log", orderColumns, "", 4, inLake("1s", "table.log.ttl", "1s", "table.datalake.target-file-size", "1MiB"))
	const writers, batch, apart = 2, 100, int64(1) << 32
	var sent, acked [writers]atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for w := range writers {
		wg.Go(func() {
			for n := int64(0); ; n += batch {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				sent[w].Store(n + batch)
				if err := tb.tryWrite(ordersFrom(int64(w)*apart+n, batch)); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				acked[w].Store(n + batch)
			}
		})
	}
	check := func(tier string) (rows int) {
		t.Helper()
		var least [writers]int64
		for w := range writers {
			least[w] = acked[w].Load()
		}
		got := tb.numbers(t, "order_id", of(tier))
		for w := range int64(writers) {
			most := sent[w].Load()
			for n := range most {
				times := got[w*apart+n]
				require.LessOrEqual(t, times, 1, "order %d of writer %d is there %d times in %s", n, w, times, tier)
				if tier != "lake" && n < least[w] {
					require.Equal(t, 1, times, "order %d of writer %d is not there", n, w)
				}
				rows += times
			}
		}
		require.Len(t, got, rows, "rows that nobody sent")
		return rows
	}
	require.Eventually(t, func() bool { return acked[0].Load() > 0 }, time.Minute, time.Millisecond) // the sum of no rows is NULL
	lakeRows, rounds := 0, 0
	end := time.Now().Add(lakeTime())
	for late := end.Add(time.Minute); time.Now().Before(end) || lakeRows == 0 && time.Now().Before(late); rounds++ {
		union := check("union")
		now := check("lake")
		require.GreaterOrEqual(t, now, lakeRows, "rows left the lake")
		lakeRows = now
		sums := s.oneRow(t, db, "SELECT COUNT(*), SUM(amount) FROM orders_log")
		require.GreaterOrEqual(t, sums[0], int64(union))
		require.Equal(t, 3*sums[0], sums[1])
	}
	close(stop)
	wg.Wait()
	require.NoError(t, failed)
	total := int(acked[0].Load() + acked[1].Load())
	require.Equal(t, total, check("union"))
	t.Logf("%d rows, %d of them in the lake; %d reads of each tier; %v", total, lakeRows, rounds, tb.lake(t))
	require.Positive(t, lakeRows)

	// A crash amid a round: it is begun anew, and each row is there once.
	tb.write(t, ordersFrom(int64(writers)*apart, 1000))
	wg.Go(func() { _, _ = s.send("POST", tb.path()+"/lake/tier", nil) }) // the crash ends it
	time.Sleep(20 * time.Millisecond)
	s.kill()
	wg.Wait()
	s.restart(t)
	require.Equal(t, []int64{int64(total) + 1000, 3 * (int64(total) + 1000)}, s.oneRow(t, db, "SELECT COUNT(*), SUM(amount) FROM orders_log"))
	tb.tier(t)
	require.Len(t, tb.numbers(t, "order_id", of("lake")), total+1000)
	require.Eventually(t, func() bool { return len(tb.numbers(t, "order_id", of("hot"))) == 0 }, time.Minute, 100*time.Millisecond)
	require.Len(t, tb.numbers(t, "order_id", obj{}), total+1000)
}
