package e2e

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Records older than table.log.ttl leave a table while it is served: the earliest offset moves, counts and scans go by
// it, and a reader below it is told what the log holds, in every form. The state of a keyed table stays. After a
// restart, and when the TTL was altered, it is the same.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	ttl := obj{"properties": obj{"table.log.ttl": "0"}}
	log := create(t, s, db, "events", "id BIGINT", "", 1, ttl)
	keyed := create(t, s, db, "customers", "id BIGINT, v STRING", "id", 1, ttl)
	log.write(t, `[{"id":1},{"id":2},{"id":3}]`)
	keyed.write(t, `[{"id":1,"v":"a"}]`)
	keyed.write(t, `[{"id":1,"v":"b"}]`)
	cursor := log.changelog(t, "from=earliest&limit=1").next
	flights := s.dial(t)
	info, err := flights.GetFlightInfo(within(t, patience), pathOf(log))
	require.NoError(t, err)

	time.Sleep(time.Second)
	for _, tb := range []table{log, keyed} {
		tb.alter(t, obj{"op": "set_properties", "properties": obj{"table.log.ttl": "500ms"}})
		require.Eventually(t, func() bool { return tb.at(t, "earliest") == `{"0":3}` }, patience, 50*time.Millisecond)
	}
	gone := func() {
		t.Helper()
		require.Empty(t, log.scan(t, obj{}))
		require.Equal(t, "0", log.count(t, ""))
		require.Equal(t, `{"0":3}`, log.at(t, "2020-01-01T00:00:00Z"))
		require.Equal(t, []string{`{"id":1,"v":"b"}`}, keyed.scan(t, obj{}))
		require.Equal(t, []string{`{"id":1,"v":"b"}`}, keyed.lookup(t, `[{"id":1}]`))
		require.Equal(t, "1", keyed.count(t, ""))
		require.Empty(t, keyed.allChanges(t, "earliest"))
		for _, from := range []string{cursor, `{"0":2}`} {
			for _, accept := range []string{mediaJSON, mediaNDJSON, mediaArrow, mediaSSE} {
				a := s.do(t, "GET", log.path()+"/changelog?from="+url.QueryEscape(from), nil, "Accept", accept)
				a.problem(t, 410, "offset_out_of_range")
				var p struct {
					Offsets map[string]struct{ Start, End int }
				}
				require.NoError(t, json.Unmarshal(a.body, &p))
				require.Equal(t, 3, p.Offsets["0"].Start, "%s", a.body)
				require.Equal(t, 3, p.Offsets["0"].End)
			}
		}
		s.fails(t, 410, "offset_out_of_range", "GET", log.path()+"/changelog", nil, "Accept", mediaSSE, "Last-Event-ID", cursor)
		s.fails(t, 410, "offset_out_of_range", "GET", log.path()+"/offsets?at="+url.QueryEscape(`{"0":0}`), nil)
		for _, until := range []string{"latest", "never"} {
			b, err := s.dial(t).get(within(t, patience), command(t, scanCommand(log, obj{"from": obj{"0": 0}, "until": until})).Cmd)
			if err == nil {
				_, err = b.next()
			}
			require.Equal(t, codes.OutOfRange, status.Code(err), "%v", err)
		}
	}
	gone()
	b, err := flights.get(within(t, patience), info.Endpoint[0].Ticket.Ticket)
	require.NoError(t, err)
	require.Len(t, b.drain(t), 3, "a ticket reads on")

	s.kill()
	s.restart(t)
	gone()
	for _, tb := range []table{log, keyed} {
		tb.alter(t, obj{"op": "reset_properties", "keys": []string{"table.log.ttl"}})
	}
	log.write(t, `[{"id":4}]`)
	s.kill()
	s.restart(t)
	require.Equal(t, []string{`{"id":4}`}, log.scan(t, obj{}))
	require.Equal(t, `{"0":3}`, log.at(t, "earliest"))
}
