package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const x11Columns = "order_id BIGINT, cust_id BIGINT, amount_cents BIGINT"

// tiered are the properties of a table in the lake, whose rounds the test asks for.
func tiered(more ...string) obj {
	p := obj{"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}
	for i := 0; i < len(more); i += 2 {
		p[more[i]] = more[i+1]
	}
	return obj{"properties": p}
}

func orders(from, to int) string {
	var rows []string
	for i := from; i < to; i++ {
		rows = append(rows, fmt.Sprintf(`{"order_id":%d,"cust_id":%d,"amount_cents":%d}`, i, i%7, i*3))
	}
	return "[" + strings.Join(rows, ",") + "]"
}

func orUnion(tier string) string {
	if tier == "" {
		return "union"
	}
	return tier
}

// total is the count and the sum of a table, by SQL.
func (tb table) total(t testing.TB, from string) [2]string {
	t.Helper()
	a := tb.s.ok(t, "POST", "/v1/sql", obj{"sql": "SELECT COUNT(*), SUM(amount_cents) FROM " + from, "database": tb.db})
	row := a["rows"].([]any)[0].([]any)
	return [2]string{fmt.Sprint(row[0]), fmt.Sprint(row[1])}
}

// X11: history in the lake, a tail in the log, both as one table, through every door; the lake alone says how far it lags.
func TestX11Tiers(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	for name, buckets := range map[string]int{"one": 1, "four": 4} {
		tb := create(t, s, db, "orders_log_"+name, x11Columns, "", buckets, tiered())
		require.Empty(t, tb.suffixed("$lake").scan(t, obj{}), "nothing was tiered yet")
		tb.write(t, orders(0, 300))
		tb.tier(t)
		tb.write(t, orders(300, 350))
		f := s.dial(t)
		for tier, want := range map[string]int{"union": 350, "": 350, "hot": 350, "lake": 300} {
			ask := obj{"page_size": 10_000, "filter": "order_id >= 100"}
			if tier != "" {
				ask["tier"] = tier
			}
			require.Len(t, tb.scan(t, ask), want-100, tier)
			ask["page_size"] = 60
			require.Len(t, tb.scan(t, ask), want-100, tier)
			_, rows := f.scan(t, command(t, scanCommand(tb, obj{"tier": orUnion(tier), "columns": []string{"order_id"}})))
			require.Len(t, rows, want, tier)
			args := []string{"scan", tb.full(), "--format", "ndjson", "--columns", "order_id"}
			if tier != "" {
				args = append(args, "--tier", tier)
			}
			got := s.cliOK(t, args...)
			slices.Sort(got)
			require.Len(t, slices.Compact(got), want, tier)
		}
		require.Len(t, tb.suffixed("$lake").scan(t, obj{}), 300)
		require.Equal(t, "350", tb.count(t, ""))
		require.Equal(t, "300", tb.suffixed("$lake").count(t, ""))
		require.Equal(t, "30", tb.count(t, "order_id >= 290 AND order_id < 320"))
		require.Equal(t, [2]string{"350", fmt.Sprint(3 * 350 * 349 / 2)}, tb.total(t, tb.name))
		require.Equal(t, [2]string{"300", fmt.Sprint(3 * 300 * 299 / 2)}, tb.total(t, tb.name+"$lake"))

		a := s.do(t, "GET", tb.suffixed("$lake").path()+"/scan", nil)
		require.Equal(t, 200, a.status)
		var stats struct {
			Snapshot string `json:"lake_snapshot"`
			Lag      *int64 `json:"lake_lag_ms"`
			Files    int    `json:"lake_files"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.header.Get("X-Millrace-Stats")), &stats))
		require.NotEmpty(t, stats.Snapshot)
		require.NotNil(t, stats.Lag)
		require.Positive(t, *stats.Lag)
		require.Positive(t, stats.Files)
		info, err := f.GetFlightInfo(t.Context(), command(t, obj{"op": "scan", "table": tb.full() + "$lake"}))
		require.NoError(t, err)
		require.Contains(t, string(info.AppMetadata), `"lake_lag_ms":`)
		if buckets > 1 {
			require.Contains(t, string(info.Endpoint[0].AppMetadata), `"bucket_key":null`)
			require.Contains(t, string(info.Endpoint[0].AppMetadata), `"files":1`)
		}

		// From full: the history without offsets, then the log from exactly there.
		var history, log int
		for _, c := range tb.allChanges(t, "full") {
			if c.Offset < 0 {
				history++
			} else {
				log++
			}
		}
		require.Equal(t, [2]int{300, 50}, [2]int{history, log})
		require.Len(t, tb.allChanges(t, "earliest"), 350, "a place in the log is one in the log")
		s.fails(t, 422, "invalid_value", "POST", tb.suffixed("$lake").path()+"/scan", obj{"tier": "hot"})
	}
	bare := create(t, s, db, "bare", x11Columns, "", 1)
	p := s.fails(t, 422, "invalid_value", "POST", bare.path()+"/scan", obj{"tier": "lake"})
	require.Contains(t, p.Detail, "table.datalake.enabled")
}
