package e2e

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
)

// Readers that stop reading cost nobody else: while scans, tails and event streams stand still, with far more to send
// than buffers hold, writes and lookups go on as before and memory stays bounded.
func TestStalledReaders(t *testing.T) {
	s := newServer(t)
	db := newDB(t, s)
	big := create(t, s, db, "big", "a BIGINT, b BIGINT, c BIGINT, d BIGINT", "", 2)
	small := create(t, s, db, "small", "id BIGINT, v BIGINT", "id", 2)
	x := uint64(1)
	random := func(int, int) int64 { x = x*6364136223846793005 + 1442695040888963407; return int64(x) }
	for range 10 {
		recs := make([]arrow.RecordBatch, 10)
		for i := range recs {
			recs[i] = longs("a,b,c,d", 10_000, random)
		}
		s.ok(t, "POST", big.path()+"/records", stream(t, recs), "Content-Type", mediaArrow)
	}
	busy := func() time.Duration {
		n := 0
		return median(51, func() {
			n++
			small.write(t, fmt.Sprintf(`[{"id":1,"v":%d}]`, n))
			require.Equal(t, []string{fmt.Sprintf(`{"id":1,"v":%d}`, n)}, small.lookup(t, `[{"id":1}]`))
		})
	}
	quiet := busy()

	for range 8 { // plain connections, so that nothing reads ahead for us
		conn, err := net.Dial("tcp", s.base[len("http://"):])
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "GET %s/scan HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\n\r\n", big.path(), mediaArrow)
		require.NoError(t, err)
		first := make([]byte, 1)
		_, err = io.ReadFull(conn, first)
		require.NoError(t, err, "the answer has begun")
	}
	for range 8 {
		sub, err := big.subscribe(t.Context(), url.Values{"from": {"earliest"}}, "")
		require.NoError(t, err)
		defer sub.close()
	}
	c := s.dial(t)
	for range 8 {
		info, err := c.GetFlightInfo(t.Context(), pathOf(big))
		require.NoError(t, err)
		st, err := c.DoGet(t.Context(), &flight.Ticket{Ticket: info.Endpoint[0].Ticket.Ticket})
		require.NoError(t, err)
		_, err = st.Recv()
		require.NoError(t, err)
	}
	p, err := c.put(t.Context(), command(t, obj{"op": "put", "table": small.full(), "acks": "stream"}), schemaOf("id long, v long"))
	require.NoError(t, err)
	for i := range 500 { // a writer that never reads its acknowledgements
		require.NoError(t, p.send(longs("id,v", 10, func(r, _ int) int64 { return int64(10 + r + i) }), ""))
	}
	// Others on the machine may slow it down for a while; what stalled readers cost would stay. They are
	// dropped when they have stood still for 30 s.
	require.Eventually(t, func() bool {
		stalled := busy()
		t.Logf("a write and a lookup: %v alone, %v beside 25 stalled streams", quiet, stalled)
		return stalled < 5*quiet+20*time.Millisecond
	}, 25*time.Second, time.Millisecond)
	_, peak := s.rssMB(t)
	require.Less(t, peak, setting("E2E_RSS_MB", 400))
	_, err = p.finish()
	require.NoError(t, err)
	require.Equal(t, "1000000", big.count(t, ""))
}
