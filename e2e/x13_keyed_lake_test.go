package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// customerModel is a model of a keyed table: rows by key, as their text.
type customerModel map[int64]string

func (c customerModel) rows() []string {
	out := []string{}
	for _, row := range c {
		out = append(out, row)
	}
	slices.Sort(out)
	return out
}

// change draws a change of a key, and makes it here and in the table.
func (c customerModel) change(t testing.TB, rng *rand.Rand, tb table) {
	t.Helper()
	id := rng.Int64N(300)
	if _, there := c[id]; there && rng.IntN(4) == 0 {
		delete(c, id)
		tb.write(t, fmt.Sprintf(`[{"cust_id":%d}]`, id), `"mode":"delete"`)
		return
	}
	tiers := []string{"gold", "silver", "platinum"}
	c[id] = fmt.Sprintf(`{"cust_id":%d,"name":"c%d","tier":%q}`, id, rng.IntN(1000), tiers[rng.IntN(3)])
	tb.write(t, "["+c[id]+"]")
}

// X13: of a keyed table in the lake the union is the worker's state and what lookups say, key by key, with changes on
// top that are not tiered yet; the lake alone is the state as of its offsets. So it is after each of many rounds, in
// either way to delete, over restarts, and when the log no longer has what was tiered.
func TestX13KeyedLake(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	for _, mode := range []string{"position", "rewrite"} {
		rng := rand.New(rand.NewPCG(13, uint64(len(mode))))
		tb := create(t, s, db, "cust_"+mode, customerColumns, "cust_id", 4, inLake("1h", "table.datalake.iceberg.delete-mode", mode, "table.log.ttl", "1s"))
		now, tiered := customerModel{}, []string(nil)
		check := func() {
			t.Helper()
			want := now.rows()
			require.Equal(t, want, tb.sorted(t, of("union")))
			require.Equal(t, want, tb.sorted(t, of("hot")))
			require.Equal(t, tiered, tb.sorted(t, of("lake")))
			var keys, found []string
			for id := range int64(300) {
				keys = append(keys, fmt.Sprintf(`{"cust_id":%d}`, id))
				row, there := now[id]
				if !there {
					row = "null"
				}
				found = append(found, row)
			}
			require.Equal(t, found, tb.lookup(t, "["+strings.Join(keys, ",")+"]"))
			require.Equal(t, fmt.Sprint(len(want)), tb.count(t, ""))
		}
		for round := range 8 {
			for range 120 {
				now.change(t, rng, tb)
			}
			check()
			if round == 5 {
				s.kill()
				s.restart(t)
				check()
			}
			if round%2 == 0 {
				tb.tier(t)
				tiered = now.rows()
				check()
			}
		}
	}
}

// X13, under way: while money moves between accounts of one bucket, two of them a batch, its sum is the same in every
// read of the union and of the lake, and the union is the state at the end.
func TestX13UnderWay(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	const accounts, each = 500, 1000
	tb := create(t, s, db, "accounts", "id BIGINT, cents BIGINT", "id", 1, inLake("1s", "table.log.ttl", "2s"))
	cents := make([]int64, accounts)
	var first []string
	for id := range cents {
		cents[id] = each
		first = append(first, fmt.Sprintf(`{"id":%d,"cents":%d}`, id, each))
	}
	tb.write(t, "["+strings.Join(first, ",")+"]")
	stop := make(chan struct{})
	var failed error
	moves := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(13, 13))
		for ; failed == nil; moves++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			a, b, n := rng.IntN(accounts), rng.IntN(accounts), rng.Int64N(200)
			if a == b {
				continue
			}
			cents[a] -= n
			cents[b] += n
			failed = tb.tryWrite(fmt.Sprintf(`[{"id":%d,"cents":%d},{"id":%d,"cents":%d}]`, a, cents[a], b, cents[b]))
		}
	})
	reads, lakes, rounds := 0, 0, int64(0)
	end := time.Now().Add(lakeTime())
	for late := end.Add(time.Minute); time.Now().Before(end) || rounds < 4 && time.Now().Before(late); reads++ {
		require.Equal(t, []int64{accounts, accounts * each}, s.oneRow(t, db, "SELECT COUNT(*), SUM(cents) FROM accounts"))
		if st := tb.lake(t); st["snapshot_id"] != nil {
			var err error
			rounds, err = st["round"].(json.Number).Int64()
			require.NoError(t, err)
			require.Equal(t, []int64{accounts, accounts * each}, s.oneRow(t, db, "SELECT COUNT(*), SUM(cents) FROM accounts$lake"))
			lakes++
		}
	}
	close(stop)
	wg.Wait()
	require.NoError(t, failed)
	want := make([]string, accounts)
	for id, n := range cents {
		want[id] = fmt.Sprintf(`{"id":%d,"cents":%d}`, id, n)
	}
	slices.Sort(want)
	require.Equal(t, want, tb.sorted(t, of("union")))
	tb.tier(t)
	require.Equal(t, want, tb.sorted(t, of("lake")))
	t.Logf("%d moves, %d reads, %d of them of the lake; %v", moves, reads, lakes, tb.lake(t))
	require.GreaterOrEqual(t, rounds, int64(4))
}
