package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// A bounded scan has an endpoint a bucket, each says its range; a ticket gives the same rows in the same order as often
// as it is used, whatever is written meanwhile, and on a log table also after a restart.
func TestTicketsAreRepeatable(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	for _, key := range []string{"", "id"} {
		tb := create(t, s, db, "t"+key, "id BIGINT, v BIGINT", key, 3, obj{"bucket_key": []string{"id"}})
		var rows string
		for i := range 300 {
			rows += fmt.Sprintf(`,{"id":%d,"v":0}`, i)
		}
		tb.write(t, "["+rows[1:]+"]")
		c := s.dial(t)
		info, err := c.GetFlightInfo(within(t, patience), pathOf(tb))
		require.NoError(t, err)
		require.Len(t, info.Endpoint, 3)
		first, total := make([][]string, 3), 0
		for i, ep := range info.Endpoint {
			var m struct {
				BucketKey  string `json:"bucket_key"`
				Bucket     int
				Start, End *int64
			}
			require.NoError(t, json.Unmarshal(ep.AppMetadata, &m))
			require.Equal(t, fmt.Sprint(i), m.BucketKey)
			require.Equal(t, i, m.Bucket)
			require.NotNil(t, m.End, "%s", ep.AppMetadata)
			require.WithinDuration(t, time.Now().Add(time.Hour), ep.ExpirationTime.AsTime(), 2*time.Minute)
			require.Empty(t, ep.Location, "the same connection, unless an address is advertised")
			b, err := c.get(within(t, patience), ep.Ticket.Ticket)
			require.NoError(t, err)
			first[i] = b.drain(t)
			require.EqualValues(t, *m.End-func() int64 {
				if m.Start != nil {
					return *m.Start
				}
				return 0
			}(), len(first[i]))
			total += len(first[i])
		}
		require.Equal(t, 300, total)
		again := func() {
			for i, ep := range info.Endpoint {
				b, err := s.dial(t).get(within(t, patience), ep.Ticket.Ticket)
				require.NoError(t, err)
				require.Equal(t, first[i], b.drain(t))
			}
		}
		tb.write(t, `[{"id":0,"v":1},{"id":1,"v":1},{"id":1000,"v":1}]`)
		again()
		s.kill()
		s.restart(t)
		if key == "" {
			again() // offsets are self-contained
			continue
		}
		b, err := s.dial(t).get(within(t, patience), info.Endpoint[0].Ticket.Ticket)
		if err == nil {
			_, err = b.next()
		}
		refused(t, err, codes.Aborted, "snapshot_gone")
	}
}

// Ordered and limited reads have one endpoint; a limit is of rows in all.
func TestOneEndpointWhenOrderMatters(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 3)
	for i := range 9 {
		tb.write(t, fmt.Sprintf(`[{"id":%d}]`, i))
	}
	c := s.dial(t)
	info, err := c.GetFlightInfo(within(t, patience), command(t, scanCommand(tb, obj{"limit": 5})))
	require.NoError(t, err)
	require.Len(t, info.Endpoint, 1)
	b, err := c.get(within(t, patience), info.Endpoint[0].Ticket.Ticket)
	require.NoError(t, err)
	require.Len(t, b.drain(t), 5)
	info, err = c.GetFlightInfo(within(t, patience), command(t, scanCommand(tb, obj{"buckets": []int{1}})))
	require.NoError(t, err)
	require.Len(t, info.Endpoint, 1)

	renewed, err := c.RenewFlightEndpoint(within(t, patience), &flight.RenewFlightEndpointRequest{Endpoint: info.Endpoint[0]})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), renewed.ExpirationTime.AsTime(), 2*time.Minute)
	_, err = c.CancelFlightInfo(within(t, patience), &flight.CancelFlightInfoRequest{Info: info})
	require.NoError(t, err)
}
