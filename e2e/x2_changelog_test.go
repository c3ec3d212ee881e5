package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// orderOne writes X2: one order is pending, paid, deleted. All three writes go to one bucket.
func orderOne(t *testing.T, s *server) (tb table, bucket string) {
	t.Helper()
	tb = create(t, s, newDB(t, s), "order_status", "order_id BIGINT, status STRING", "order_id", 4)
	offsets := tb.write(t, `[{"order_id":1,"status":"pending"}]`)["offsets"].(obj)
	require.Len(t, offsets, 1)
	for bucket = range offsets {
	}
	tb.write(t, `[{"order_id":1,"status":"paid"}]`)
	tb.write(t, `[{"order_id":1}]`, `"mode":"delete"`)
	return tb, bucket
}

var orderOneChanges = []string{
	`+I 0 {"order_id":1,"status":"pending"}`, `-U 1 {"order_id":1,"status":"pending"}`,
	`+U 2 {"order_id":1,"status":"paid"}`, `-D 3 {"order_id":1,"status":"paid"}`,
}

// X2 through REST: pages, NDJSON scan and event stream of the changelog say the same four changes.
func TestX2REST(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb, bucket := orderOne(t, s)
	changes := tb.allChanges(t, "earliest")
	require.Equal(t, orderOneChanges, lines(changes))
	for _, c := range changes {
		require.Equal(t, bucket, fmt.Sprint(c.Bucket))
		at, err := time.Parse(time.RFC3339Nano, c.Time)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
	}

	a := s.do(t, "POST", tb.path()+"/scan", obj{"view": "changelog"}, "Accept", mediaNDJSON)
	require.Equal(t, 200, a.status, "%s", a.body)
	var got []string
	for l := range strings.Lines(string(a.body)) {
		got = append(got, parseChange(t, []byte(l)).String())
	}
	require.Equal(t, orderOneChanges, got)
	a = s.do(t, "GET", tb.suffixed("$changelog").path()+"/scan?columns=order_id,status", nil, "Accept", mediaJSON)
	require.Equal(t, 200, a.status, "%s", a.body)
	require.Len(t, rowsOf(t, a.body, "rows"), 4)

	sub, err := tb.subscribe(within(t, patience), url.Values{"from": {"earliest"}}, "")
	require.NoError(t, err)
	defer sub.close()
	require.Equal(t, orderOneChanges, lines(sub.take(t, 4)))
}

// X2 through Flight: $changelog by path and view by command give the four changes, with the batch's own offsets agreeing.
func TestX2Flight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb, _ := orderOne(t, s)
	c := s.dial(t)
	want := []string{"+I|0|1|pending", "-U|1|1|pending", "+U|2|1|paid", "-D|3|1|paid"}
	shown := []string{"_change_type", "_log_offset", "order_id", "status"}
	schema, rows := c.scan(t, command(t, scanCommand(tb, obj{"view": "changelog", "columns": []string{"status", "order_id"}})), shown...)
	require.Equal(t, want, rows)
	require.True(t, strings.HasPrefix(names(schema), "_change_type,_log_offset,_commit_timestamp,status,order_id"), names(schema))

	_, rows = c.scan(t, pathOf(tb.suffixed("$changelog")), shown...)
	require.Equal(t, want, rows)

	ticket, err := json.Marshal(scanCommand(tb, obj{"view": "changelog", "from": "earliest"}))
	require.NoError(t, err)
	b, err := c.get(within(t, patience), ticket)
	require.NoError(t, err)
	require.Equal(t, want, b.drain(t, shown...), "the scan's JSON is a ticket too")
}

// X2 through the command line: tail shows the changelog, scan the empty table.
func TestX2CLI(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb, _ := orderOne(t, s)
	var got []string
	for _, l := range s.cliOK(t, "tail", tb.full(), "--from", "earliest", "--until", "latest", "--format", "ndjson") {
		got = append(got, parseChange(t, []byte(l)).String())
	}
	require.Equal(t, orderOneChanges, got)
	require.Empty(t, s.cliOK(t, "scan", tb.full(), "--format", "ndjson"))
}

// X3: a fold that adds on + and subtracts on - equals a count over the table after every step.
func TestX3CountFromChangelog(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "order_status", "order_id BIGINT, status STRING", "order_id", 4)
	counts := map[string]int{}
	from := "earliest"
	var history [][2]int
	for _, step := range []struct{ rows, mode string }{
		{`[{"order_id":1,"status":"pending"}]`, `"mode":"upsert"`},
		{`[{"order_id":1,"status":"paid"}]`, `"mode":"upsert"`},
		{`[{"order_id":1}]`, `"mode":"delete"`},
		{`[{"order_id":2,"status":"pending"},{"order_id":3,"status":"paid"},{"order_id":2,"status":"paid"}]`, `"mode":"upsert"`},
	} {
		tb.write(t, step.rows, step.mode)
		p := tb.changelog(t, "from="+url.QueryEscape(from))
		from = p.next
		for _, c := range p.changes {
			var row struct{ Status string }
			require.NoError(t, json.Unmarshal([]byte(c.Row), &row))
			switch c.Type {
			case "+I", "+U":
				counts[row.Status]++
			default:
				counts[row.Status]--
			}
			history = append(history, [2]int{counts["pending"], counts["paid"]})
		}
		for _, status := range []string{"pending", "paid"} {
			require.Equal(t, tb.count(t, "status = '"+status+"'"), fmt.Sprint(counts[status]), status)
		}
	}
	require.Equal(t, [][2]int{{1, 0}, {0, 0}, {0, 1}, {0, 0}}, history[:4])
}
