package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// X7: thirty days of events; a read of one day opens no file of the other days, and
// says so; with a condition on the amount it gives exactly the rows that match.
func TestX7PartitionsAndFilters(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "events_by_day", "event_id BIGINT, user_id BIGINT, amount_cents BIGINT, url STRING, dt STRING", "", 2,
		obj{"partition_by": []string{"dt"}, "bucket_key": []string{"user_id"}})
	want := 0
	for day := 1; day <= 30; day++ {
		var rows []string
		for i := range 200 {
			if day == 26 && i*13%3000 > 1000 {
				want++
			}
			rows = append(rows, fmt.Sprintf(`{"event_id":%d,"user_id":%d,"amount_cents":%d,"url":"/%d","dt":"2026-08-%02d"}`, day*1000+i, i%50, i*13%3000, i, day))
		}
		tb.write(t, "["+strings.Join(rows, ",")+"]")
	}
	require.Zero(t, s.drain(t))
	require.NoError(t, s.launch()) // everything is in files now
	type stats struct {
		Buckets   int   `json:"buckets"`
		BytesRead int64 `json:"bytes_read"`
	}
	read := func(filter string) (rows []string, st stats) {
		a := s.do(t, "POST", tb.path()+"/scan", obj{"columns": []string{"event_id", "amount_cents", "dt"}, "filter": filter, "page_size": 10000})
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		require.NoError(t, json.Unmarshal([]byte(a.header.Get("X-Millrace-Stats")), &st))
		return rowsOf(t, a.body, "rows"), st
	}
	all, whole := read("dt >= '2026-08-01'")
	require.Len(t, all, 6000)
	day, narrow := read("dt = '2026-08-26'")
	require.Len(t, day, 200)
	require.Equal(t, 2, narrow.Buckets, "the two buckets of one partition")
	require.LessOrEqual(t, 15*narrow.BytesRead, whole.BytesRead)
	some, _ := read("dt = '2026-08-26' AND amount_cents > 1000")
	require.Len(t, some, want)
	for _, r := range some {
		require.Contains(t, r, `"dt":"2026-08-26"`)
	}
	c := s.dial(t)
	defer c.close()
	_, rows := c.scan(t, command(t, scanCommand(tb, obj{"columns": []string{"event_id"}, "filter": "dt = '2026-08-26' AND amount_cents > 1000"})))
	require.Len(t, rows, want)
	require.Equal(t, strconv.Itoa(want), tb.count(t, "dt = '2026-08-26' AND amount_cents > 1000"))
}
