package flightsvc_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/millrace/millrace/errs"
)

func (f *fixture) expire() {
	for _, s := range f.worker.Shards() {
		require.NoError(f.t, s.Expire(context.Background()))
		require.NoError(f.t, s.Checkpoint(context.Background()))
	}
}

// Records that expire are gone for reads that begin, which are told where the log
// begins, and are there for tickets as long as these live; a ticket of what has expired
// is not renewed.
func TestExpiredRecords(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	tbl := f.table("t", false, 1)
	tbl.Options.LogTTL = time.Minute
	f.mustWrite(c, pathOf("d.t"), rows(0, 10, "a"))
	info, err := c.GetFlightInfo(f.ctx(), pathOf("d.t"))
	require.NoError(t, err)
	f.clock.forward(2 * time.Minute)
	f.expire()

	require.Empty(t, f.scan(c, pathOf("d.t")))
	for _, until := range []string{"latest", "never"} {
		_, err = f.open(c, jsonOf(obj{"op": "scan", "table": "d.t", "from": obj{"0": 9}, "until": until}))
		refused(t, err, codes.OutOfRange, errs.OffsetOutOfRange)
	}
	require.Contains(t, err.Error(), "expired")
	_, err = c.RenewFlightEndpoint(f.ctx(), &flight.RenewFlightEndpointRequest{Endpoint: info.Endpoint[0]})
	refused(t, err, codes.OutOfRange, errs.OffsetOutOfRange)

	f.clock.forward(57 * time.Minute)
	f.expire()
	r, err := f.open(c, info.Endpoint[0].Ticket.Ticket)
	require.NoError(t, err)
	got, _ := r.drain()
	require.Len(t, got, 10)
}

// A tail's ticket reads on in what has expired, as long as it lives.
func TestTailOfExpiredRecords(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1).Options.LogTTL = time.Minute
	info, err := c.GetFlightInfo(f.ctx(), commandOf(obj{"op": "scan", "table": "d.t", "from": "earliest", "until": "never"}))
	require.NoError(t, err)
	f.mustWrite(c, pathOf("d.t"), rows(0, 10, "a"))
	ticket := info.Endpoint[0].Ticket.Ticket
	f.clock.forward(2 * time.Minute)
	f.expire()
	read := func() error {
		r, err := f.open(c, ticket)
		require.NoError(t, err)
		defer r.cancel()
		for {
			g, err := r.next()
			if err != nil || g.rec.NumRows() == 10 {
				return err
			}
		}
	}
	require.NoError(t, read())
	f.clock.forward(58*time.Minute - time.Second)
	f.expire()
	require.NoError(t, read(), "as long as the ticket lives")
}
