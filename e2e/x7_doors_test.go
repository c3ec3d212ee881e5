package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const eventColumns = "event_id BIGINT, user_id BIGINT, amount_cents BIGINT, url STRING, dt STRING"

// X7 through every door: thirty days in thirty partitions, made by the writes themselves. A read of one day by a filter covers one partition,
// and says so; with a further condition it gives exactly the rows that match. The server is the test's own, since its metrics are read.
func TestX7Doors(t *testing.T) {
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "events_by_day", eventColumns, "", 2, obj{"partition_by": []string{"dt"}})
	const days, each = 30, 200
	want := map[string][]string{}
	for day := range days {
		dt := fmt.Sprintf("2026-08-%02d", day+1)
		var rows []string
		for i := range each {
			id, cents := day*each+i, (i*37+day)%2000
			rows = append(rows, fmt.Sprintf(`{"event_id":%d,"user_id":%d,"amount_cents":%d,"url":"/p/%d","dt":%q}`, id, i%17, cents, i, dt))
			if cents > 1000 {
				want[dt] = append(want[dt], fmt.Sprintf(`{"event_id":%d,"user_id":%d,"amount_cents":%d}`, id, i%17, cents))
			}
		}
		if day%2 == 0 {
			tb.write(t, "["+strings.Join(rows, ",")+"]")
		} else {
			s.ok(t, "POST", tb.path()+"/records", strings.Join(rows, "\n"), "Content-Type", mediaNDJSON)
		}
	}
	list := s.ok(t, "GET", tb.path()+"/partitions", nil)
	require.Len(t, list["partitions"], days)
	require.Equal(t, "6000", tb.count(t, ""))
	require.Equal(t, fmt.Sprint(each), tb.count(t, "dt = '2026-08-26'"))

	columns := []string{"event_id", "user_id", "amount_cents"}
	ask := obj{"columns": columns, "filter": "dt = '2026-08-26' AND amount_cents > 1000", "page_size": 10_000}
	read, skipped := s.metric(t, "millrace_router_partitions_read_total"), s.metric(t, "millrace_router_partitions_skipped_total")
	buckets := s.metric(t, "millrace_router_buckets_read_total")
	a := s.do(t, "POST", tb.path()+"/scan", ask)
	require.Equal(t, 200, a.status)
	slices.Sort(want["2026-08-26"])
	got := rowsOf(t, a.body, "rows")
	slices.Sort(got)
	require.Equal(t, want["2026-08-26"], got)
	var stats struct {
		RowsRead, RowsSkipped, Partitions, PartitionsSkipped, Buckets int
	}
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(a.header.Get("X-Millrace-Stats"), "_", "")), &stats))
	require.Equal(t, 1, stats.Partitions)
	require.Equal(t, days-1, stats.PartitionsSkipped)
	require.LessOrEqual(t, stats.Buckets, 2)
	require.LessOrEqual(t, stats.RowsRead+stats.RowsSkipped, each)
	require.InDelta(t, read+1, s.metric(t, "millrace_router_partitions_read_total"), 0.1)
	require.InDelta(t, skipped+days-1, s.metric(t, "millrace_router_partitions_skipped_total"), 0.1)
	require.InDelta(t, buckets+2, s.metric(t, "millrace_router_buckets_read_total"), 0.1)

	// The same by the partition's name and by its values, over Flight, and with the command line.
	for _, partition := range []any{"dt=2026-08-26", obj{"dt": "2026-08-26"}} {
		ask := maps.Clone(ask)
		ask["filter"], ask["partitions"] = "amount_cents > 1000", []any{partition}
		got := tb.scan(t, ask)
		slices.Sort(got)
		require.Equal(t, want["2026-08-26"], got)
	}
	f := s.dial(t)
	info, err := f.GetFlightInfo(t.Context(), command(t, scanCommand(tb, obj{"filter": ask["filter"]})))
	require.NoError(t, err)
	require.Len(t, info.Endpoint, 2)
	require.Contains(t, string(info.AppMetadata), `"partitions_skipped":29`)
	require.Contains(t, string(info.Endpoint[0].AppMetadata), `"bucket_key":"dt=2026-08-26/0","partition":"dt=2026-08-26"`)
	_, rows := f.scan(t, command(t, scanCommand(tb, obj{"columns": columns, "filter": ask["filter"]})))
	require.Len(t, rows, len(want["2026-08-26"]))
	out := s.cliOK(t, "scan", tb.full(), "--columns", strings.Join(columns, ","), "--filter", "amount_cents > 1000", "--partitions", "dt=2026-08-26", "--format", "ndjson")
	slices.Sort(out)
	require.Equal(t, want["2026-08-26"], out)

	// Offsets and buckets name partitions, and pages of buckets go through all of them.
	offsets := s.ok(t, "GET", tb.path()+"/offsets", nil)["offsets"].(map[string]any)
	require.Len(t, offsets, 2*days)
	require.Contains(t, offsets, "dt=2026-08-01/1")
	n, token := 0, ""
	for page := 0; page == 0 || token != ""; page++ {
		list := s.ok(t, "GET", tb.path()+"/buckets?limit=7&page_token="+token, nil)
		n += len(list["buckets"].([]any))
		token, _ = list["next_page_token"].(string)
		token = strings.NewReplacer("=", "%3D", "/", "%2F").Replace(token)
	}
	require.Equal(t, 2*days, n)
}
