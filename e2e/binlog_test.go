package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each change of a keyed table is one record of its binlog, with the row before and
// after it, through pages, lines, the long poll, events and Flight.
func TestBinlog(t *testing.T) {
	s := shared(t)
	tb := create(t, s, newDB(t, s), "orders", "id BIGINT, status STRING, cents INT", "id", 1)
	for _, status := range []string{"pending", "paid"} {
		tb.write(t, fmt.Sprintf(`[{"id":1,"status":%q,"cents":5}]`, status))
	}
	s.ok(t, "DELETE", tb.path()+"/rows/1", nil)
	want := []string{
		`insert 0 null {"status":"pending"}`,
		`update 1 {"status":"pending"} {"status":"paid"}`,
		`delete 3 {"status":"paid"} null`,
	}
	say := func(text []byte) string {
		var r struct {
			Type   string          `json:"_change_type"`
			Offset json.RawMessage `json:"_log_offset"`
			Time   string          `json:"_commit_timestamp"`
			Before json.RawMessage `json:"before"`
			After  json.RawMessage `json:"after"`
			Bucket int             `json:"_bucket"`
		}
		require.NoError(t, json.Unmarshal(text, &r), "%s", text)
		require.NotEmpty(t, r.Time)
		return fmt.Sprintf("%s %s %s %s", r.Type, r.Offset, r.Before, r.After)
	}
	all := func(rows []any) []string {
		var out []string
		for _, r := range rows {
			b, err := json.Marshal(r)
			require.NoError(t, err)
			out = append(out, say(b))
		}
		return out
	}
	require.Equal(t, want, all(s.ok(t, "GET", tb.path()+"$binlog/scan?columns=status", nil)["rows"].([]any)))
	require.Equal(t, want, all(s.ok(t, "POST", tb.path()+"/scan", obj{"view": "binlog", "columns": []string{"status"}})["rows"].([]any)))
	require.Equal(t, want[1:], all(s.ok(t, "POST", tb.path()+"/scan", obj{"view": "binlog", "columns": []string{"status"}, "filter": "status = 'paid'"})["rows"].([]any)))
	first := s.ok(t, "GET", tb.path()+"/changelog?view=binlog&columns=status&from=earliest&limit=1", nil)
	require.Equal(t, want[:1], all(first["rows"].([]any)))
	rest := s.ok(t, "GET", tb.path()+"$binlog/changelog?columns=status&from="+first["next"].(string), nil)
	require.Equal(t, want[1:], all(rest["rows"].([]any)))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sub, err := tb.subscribe(ctx, url.Values{"view": {"binlog"}, "columns": {"status"}, "from": {"earliest"}}, "")
	require.NoError(t, err)
	defer sub.close()
	var events []string
	for len(events) < len(want) {
		ev, err := sub.next()
		require.NoError(t, err)
		if ev.name != "" {
			require.NotEmpty(t, ev.id, "every change is a group of its own")
			events = append(events, say([]byte(ev.data)))
			require.Equal(t, ev.name, events[len(events)-1][:6])
		}
	}
	require.Equal(t, want, events)

	c := s.dial(t)
	defer c.close()
	schema, rows := c.scan(t, command(t, scanCommand(tb, obj{"view": "binlog", "columns": []string{"status"}})), "_change_type", "before", "after")
	require.Equal(t, "_change_type,_log_offset,_commit_timestamp,before,after,_partition,_bucket", names(schema))
	require.Len(t, rows, 3)
	s.fails(t, 422, "invalid_value", "GET", tb.path()+"$binlog/scan?view=changelog", nil)
	s.fails(t, 422, "invalid_value", "GET", tb.path()+"$changelog/changelog?view=binlog", nil)
	s.fails(t, 422, "unknown_column", "GET", tb.path()+"$binlog/scan?columns=before", nil)
	s.fails(t, 422, "read_only_table", "POST", tb.path()+"$binlog/records", recordsBody(`[{"id":1}]`))
}
