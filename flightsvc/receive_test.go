package flightsvc_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
)

const (
	flightService = "/arrow.flight.protocol.FlightService/"
	healthService = "/grpc.health.v1.Health/"
)

// promise begins a call with a message of so many bytes, of which few come, and tells the
// status that the call ends with.
func (f *fixture) promise(method, token string, bytes uint32, few int) string {
	f.t.Helper()
	tr := &http.Transport{Protocols: &http.Protocols{}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	pr, pw := io.Pipe()
	defer pw.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.addr+method, pr)
	require.NoError(f.t, err)
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("Authorization", token)
	go func() {
		head := binary.BigEndian.AppendUint32([]byte{0}, bytes)
		_, _ = pw.Write(append(head, make([]byte, few)...))
	}()
	resp, err := tr.RoundTrip(req)
	require.NoError(f.t, err, "the call %s waits for its message", method)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.NoError(f.t, err, "the call %s waits for its message", method)
	if s := resp.Trailer.Get("Grpc-Status"); s != "" {
		return s
	}
	return resp.Header.Get("Grpc-Status")
}

// Nothing of a message is waited for where nobody is known to call, nor where it is too long.
func TestMessagesOfStrangers(t *testing.T) {
	f := newFixture(t, locked)
	for _, method := range []string{"GetFlightInfo", "GetSchema", "PollFlightInfo", "DoGet", "DoPut", "DoExchange", "DoAction", "ListFlights", "Handshake"} {
		require.Equal(t, fmt.Sprint(uint32(codes.Unauthenticated)), f.promise(flightService+method, "Bearer bob", 64<<20, 100), method)
	}
	for _, method := range []string{"GetFlightInfo", "GetSchema", "DoGet", "DoAction", "Handshake"} {
		require.Equal(t, fmt.Sprint(uint32(codes.InvalidArgument)), f.promise(flightService+method, "Bearer ann", 63<<20, 100), method)
	}
	for _, method := range []string{"Check", "List", "Watch"} {
		require.Equal(t, fmt.Sprint(uint32(codes.InvalidArgument)), f.promise(healthService+method, "", 5<<10, 100), method)
	}
}

// A message that does not come ends its call, in every method, and gives its room back.
func TestMessagesThatDoNotCome(t *testing.T) {
	f := newFixture(t, stallAfter(200*time.Millisecond))
	for _, method := range []string{flightService + "GetSchema", flightService + "DoGet", flightService + "DoAction", flightService + "DoPut", flightService + "DoExchange", flightService + "Handshake", healthService + "Check", healthService + "Watch"} {
		require.Equal(t, fmt.Sprint(uint32(codes.Unavailable)), f.promise(method, "", 3<<10, 100), method)
	}
	require.Eventually(t, func() bool { return f.metric("millrace_admit_held_bytes") == 0 }, time.Minute, time.Millisecond)
}

// What is compressed is taken, within the bounds of what is not.
func TestMessagesWithinBounds(t *testing.T) {
	f := newFixture(t)
	f.table("t", true, 1)
	c := f.dial(grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	_, err := c.GetSchema(f.ctx(), pathOf("d.t"))
	require.NoError(t, err)
	_, err = c.GetSchema(f.ctx(), &flight.FlightDescriptor{Cmd: make([]byte, 5<<20)})
	refused(t, err, codes.InvalidArgument, errs.TooLarge)
	require.Eventually(t, func() bool { return f.metric("millrace_admit_held_bytes") == 0 }, time.Minute, time.Millisecond)
}

// An exchange asks the room for what it receives.
func TestExchangeTakesRoom(t *testing.T) {
	var room *admit.Room
	f := newFixture(t, func(o *flightsvc.Options) {
		room = admit.New(admit.Received, 1<<20, o.Clock.Now, o.Registerer)
		o.Room = room
	})
	f.table("t", true, 1)
	require.NoError(t, room.Take(t.Context(), 1<<20, time.Second))
	st, err := f.dial().DoExchange(f.ctx())
	require.NoError(t, err)
	require.NoError(t, st.Send(&flight.FlightData{FlightDescriptor: lookupCmd(nil), DataBody: make([]byte, 256<<10)}))
	require.Eventually(t, room.Contended, time.Minute, time.Millisecond)
	room.Give(1 << 20)
	require.NoError(t, st.CloseSend())
	_, err = st.Recv()
	refused(t, err, codes.InvalidArgument, errs.InvalidRequest)
}
