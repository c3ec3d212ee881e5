package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// X14: ninety daily partitions go to the lake and out of the workers' sight when the table keeps no day but today's;
// sums over all of them are complete to the second, with rows of today that are in the log alone. Writes to a day that
// has ended are refused, and a day that is dropped is gone from the lake, too.
func TestX14Expired(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	const days, customers = 90, 7
	tb := create(t, s, db, "sales", "cust_id BIGINT, cents BIGINT, dt DATE", "", 2, obj{"partition_by": []string{"dt"}, "bucket_key": []string{"cust_id"}},
		inLake("1h", "table.auto-partition.enabled", "true", "table.auto-partition.num-retention", "100", "table.auto-partition.num-precreate", "1"))
	const longest = 2 * time.Minute // the day must not end while this runs
	if next := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour); time.Until(next) < longest {
		time.Sleep(time.Until(next))
	}
	today := time.Now().UTC()
	day := func(ago int) string { return today.AddDate(0, 0, -ago).Format(time.DateOnly) }
	sold := func(ago int) string {
		var rows []string
		for c := range customers {
			rows = append(rows, fmt.Sprintf(`{"cust_id":%d,"cents":%d,"dt":%q}`, c, 100*ago+c, day(ago)))
		}
		return "[" + strings.Join(rows, ",") + "]"
	}
	sums := map[int64]int64{}
	for ago := range days + 1 {
		tb.write(t, sold(ago))
		for c := range int64(customers) {
			sums[c] += int64(100*ago) + c
		}
	}
	check := func() {
		t.Helper()
		var a struct{ Rows [][]json.Number }
		require.NoError(t, json.Unmarshal([]byte(s.sql(t, db, "SELECT cust_id, SUM(cents) FROM sales GROUP BY cust_id")), &a))
		got := map[int64]int64{}
		for _, r := range a.Rows {
			c, err := r[0].Int64()
			require.NoError(t, err)
			got[c], err = r[1].Int64()
			require.NoError(t, err)
		}
		require.Equal(t, sums, got)
	}
	check()
	tb.alter(t, obj{"op": "set_properties", "properties": obj{"table.auto-partition.num-retention": "0"}})
	expired := func() int {
		n := 0
		for _, p := range s.ok(t, "GET", tb.path()+"/partitions?limit=1000", nil)["partitions"].([]any) {
			if p.(map[string]any)["state"] == "expired" {
				n++
			}
		}
		return n
	}
	for expired() < days {
		check() // complete at every moment
		time.Sleep(50 * time.Millisecond)
	}
	tb.write(t, sold(0))
	for c := range int64(customers) {
		sums[c] += c
	}
	check()
	require.Equal(t, fmt.Sprint(customers*(days+2)), tb.count(t, ""))
	require.Len(t, tb.scan(t, of("hot")), 2*customers, "of the workers today alone is read")
	require.Len(t, tb.scan(t, obj{"filter": fmt.Sprintf("dt = DATE '%s'", day(40))}), customers)
	require.Len(t, tb.scan(t, obj{"partitions": []any{"dt=" + day(90)}}), customers)
	s.fails(t, 422, "partition_expired", "POST", tb.path()+"/records", recordsBody(sold(40)))
	require.Len(t, tb.partitions(t), days+1)

	s.kill()
	s.restart(t)
	check()
	require.Len(t, tb.scan(t, of("hot")), 2*customers)

	s.ok(t, "DELETE", tb.path()+"/partitions?name=dt%3D"+day(40), nil)
	for c := range int64(customers) {
		sums[c] -= 4000 + c
	}
	check()
	require.Len(t, tb.partitions(t), days)
	require.Empty(t, tb.scan(t, of("lake", obj{"filter": fmt.Sprintf("dt = DATE '%s'", day(40))})))
	tb.tier(t)
	check()
	require.Len(t, tb.scan(t, of("lake")), customers*(days+1))
}
