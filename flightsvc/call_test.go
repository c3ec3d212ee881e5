package flightsvc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

func (f *fixture) action(c flight.Client, name, body string) (string, int, error) {
	st, err := c.DoAction(f.ctx(), &flight.Action{Type: name, Body: []byte(body)})
	require.NoError(f.t, err)
	var out strings.Builder
	for n := 0; ; n++ {
		r, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return out.String(), n, nil
		}
		if err != nil {
			return "", 0, err
		}
		out.Write(r.Body)
	}
}

// ListActions lists the unary operations that there are, and DoAction runs them
// through the same code; what is not there says so.
func TestActions(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	st, err := c.ListActions(f.ctx(), &flight.Empty{})
	require.NoError(t, err)
	listed := map[string]bool{}
	for {
		a, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.NotEmpty(t, a.Description)
		listed[a.Type] = true
	}
	for _, op := range openapi.Operations() {
		require.Equal(t, op.Unary, listed["millrace."+op.ID], op.ID)
	}
	require.True(t, listed["RenewFlightEndpoint"])

	got, n, err := f.action(c, "millrace.create_table", `{"database":"d"}`)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.JSONEq(t, `{"did":"create_table","with":{"database":"d"}}`, got)
	got, _, err = f.action(c, "millrace.get_info", "")
	require.NoError(t, err)
	require.JSONEq(t, `{"did":"get_info","with":{}}`, got)
	got, n, err = f.action(c, "millrace.drop_table", "{}")
	require.NoError(t, err)
	require.Zero(t, n, "no answer, no result")
	require.Empty(t, got)
	got, n, err = f.action(c, "millrace.list_tables", "{}")
	require.NoError(t, err)
	require.Equal(t, 3, n, "what a message does not take comes in several")
	require.Len(t, got, 7<<20)

	_, _, err = f.action(c, "millrace.get_database", "{}")
	refused(t, err, codes.NotFound, errs.DatabaseNotFound)
	_, _, err = f.action(c, "millrace.make_coffee", "{}")
	refused(t, err, codes.NotFound, errs.RouteNotFound)
	_, _, err = f.action(c, "millrace.healthz", "{}")
	refused(t, err, codes.NotFound, errs.RouteNotFound)
	_, _, err = f.action(c, "CreatePreparedStatement", "")
	refused(t, err, codes.Unimplemented, errs.NotImplemented)
	_, _, err = f.action(c, "CancelFlightInfo", "\xff")
	refused(t, err, codes.InvalidArgument, errs.InvalidRequest)
}

// A bug ends one call with internal; what happened is in the log, under the
// request id that the client got, and not in the answer.
func TestPanics(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	_, _, err := f.action(c, "millrace.get_cluster", `{"secret":"canary"}`)
	info := refused(t, err, codes.Internal, errs.Internal)
	require.NotContains(t, err.Error(), "a bug")
	require.Contains(t, err.Error(), info.Metadata["request_id"])
	require.NotContains(t, f.logs.String(), "a bug", "the value may be a caller's")
	require.Contains(t, f.logs.String(), "panic: a value of type string")
	require.Contains(t, f.logs.String(), "fixture_test.go:", "where it was")
	require.Contains(t, f.logs.String(), info.Metadata["request_id"])
	require.NotContains(t, f.logs.String(), "canary")
	require.EqualValues(t, 1, f.metric("millrace_flight_panics_total"))
	_, _, err = f.action(c, "millrace.get_info", "")
	require.NoError(t, err)
}

// A request id comes back in the header, or is made.
func TestRequestID(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1)
	for sent, kept := range map[string]bool{"abc-123": true, "": false, strings.Repeat("x", 200): false} {
		ctx := f.ctx()
		if sent != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-request-id", sent)
		}
		var header metadata.MD
		_, err := c.GetSchema(ctx, pathOf("d.t"), grpc.Header(&header))
		require.NoError(t, err)
		require.Equal(t, kept, header.Get("x-request-id")[0] == sent)
		require.NotEmpty(t, header.Get("x-request-id")[0])
		st, err := c.DoGet(ctx, &flight.Ticket{Ticket: jsonOf(obj{"table": "d.t"})})
		require.NoError(t, err)
		header, err = st.Header()
		require.NoError(t, err)
		require.Equal(t, kept, header.Get("x-request-id")[0] == sent)
		for err == nil {
			_, err = st.Recv()
		}
	}
}

// Everyone is let in: a bearer token is taken on every call and given back by
// Handshake, and a name and a password get one.
func TestHandshake(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1)
	ctx, err := c.AuthenticateBasicToken(f.ctx(), "name", "password")
	require.NoError(t, err)
	md, _ := metadata.FromOutgoingContext(ctx)
	require.Contains(t, md.Get("authorization")[0], "Bearer ")
	_, err = c.GetSchema(ctx, pathOf("d.t"))
	require.NoError(t, err)

	st, err := c.Handshake(metadata.AppendToOutgoingContext(f.ctx(), "authorization", "Bearer mine"))
	require.NoError(t, err)
	require.NoError(t, st.Send(&flight.HandshakeRequest{Payload: []byte("x")}))
	_, err = st.Recv()
	require.NoError(t, err)
	require.NoError(t, st.CloseSend())
	_, err = st.Recv()
	require.ErrorIs(t, err, io.EOF)
	header, err := st.Header()
	require.NoError(t, err)
	require.Equal(t, []string{"Bearer mine"}, header.Get("authorization"))
	require.Equal(t, []string{"Bearer mine"}, st.Trailer().Get("authorization"))
}

// While draining, health says so, new calls are refused, streams end with
// Unavailable, and a write that was received is finished and acknowledged first.
func TestDrain(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	health := func() string {
		res, err := grpc_health_v1.NewHealthClient(conn).Check(f.ctx(), &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		return res.Status.String()
	}
	require.Equal(t, "SERVING", health())

	tail, err := f.open(c, jsonOf(obj{"table": "d.t$changelog", "until": "never"}))
	require.NoError(t, err)
	tail.must()
	put := f.put(c, putCmd(obj{"acks": "stream"}), knSchema)
	require.NoError(t, put.w.Write(rows(0, 10, "a")))
	for a := (result{}); a.AckRows < 10; {
		a, err = put.recv()
		require.NoError(t, err)
	}
	look := f.exchange(c, lookupCmd(nil), schemaOf(field("k", int64s)))
	require.Len(t, look.answers(`[{"k":1}]`), 1)
	silent, err := c.DoPut(f.ctx())
	require.NoError(t, err)
	require.NoError(t, silent.Send(&flight.FlightData{FlightDescriptor: pathOf("d.t")}))
	require.Eventually(t, func() bool { return f.metric("millrace_flight_open_streams") == 4 }, time.Minute, time.Millisecond)

	start := time.Now()
	f.svc.Drain()
	require.Equal(t, "NOT_SERVING", health())
	_, err = c.GetSchema(f.ctx(), pathOf("d.t"))
	refused(t, err, codes.Unavailable, errs.Draining)
	_, err = f.open(c, jsonOf(obj{"table": "d.t"}))
	refused(t, err, codes.Unavailable, errs.Draining)
	for err = nil; err == nil; {
		_, err = tail.next()
	}
	refused(t, err, codes.Unavailable, errs.Draining)
	for err = nil; err == nil; {
		_, err = put.recv()
	}
	info := refused(t, err, codes.Unavailable, errs.Draining)
	require.Equal(t, "10", info.Metadata["rows"])
	require.False(t, look.r.Next())
	refused(t, look.r.Err(), codes.Unavailable, errs.Draining)
	require.Less(t, time.Since(start), 30*time.Second)
	_, err = silent.Recv()
	refused(t, err, codes.Unavailable, errs.Draining)
	stopped := make(chan struct{})
	go func() { f.server.GracefulStop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Fatal("calls are left")
	}
}

// A stream that never begins is ended.
func TestStreamThatNeverBegins(t *testing.T) {
	f := newFixture(t, stallAfter(200*time.Millisecond))
	st, err := f.dial().DoPut(f.ctx())
	require.NoError(t, err)
	_, err = st.Recv()
	refused(t, err, codes.Unavailable, errs.Unavailable)
}

// A call whose deadline has passed ends with that.
func TestDeadline(t *testing.T) {
	f := newFixture(t)
	f.table("t", false, 1)
	c := f.dial()
	_, err := c.GetSchema(f.ctx(), pathOf("d.t")) // there is a connection
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	st, err := c.DoGet(ctx, &flight.Ticket{Ticket: jsonOf(obj{"table": "d.t", "until": "never"})})
	require.NoError(t, err)
	for err == nil {
		_, err = st.Recv()
	}
	require.Equal(t, codes.DeadlineExceeded.String(), codeOf(err).String())
	require.Eventually(t, func() bool { return f.metric("millrace_flight_open_streams") == 0 }, time.Minute, time.Millisecond)
}
