package flightsvc_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
)

// keyring lets in who shows one of its tokens, and takes what it is told for his name.
type keyring map[string]*auth.Principal

func (k keyring) Authenticate(_ context.Context, shown auth.Shown) (*auth.Principal, error) {
	if len(shown.Authorization) == 1 {
		if p, ok := k[shown.Authorization[0]]; ok {
			return p, nil
		}
	}
	return nil, auth.ErrUnauthenticated
}

func locked(o *flightsvc.Options) {
	o.Callers = keyring{"Bearer ann": auth.NewPrincipal("ann", nil, time.Time{})}
}

// Every call needs a caller; health is open.
func TestCallers(t *testing.T) {
	f := newFixture(t, locked)
	c := f.dial()
	for name, call := range map[string]func(context.Context) error{
		"GetFlightInfo": func(ctx context.Context) error {
			_, err := c.GetFlightInfo(ctx, &flight.FlightDescriptor{})
			return err
		},
		"GetSchema": func(ctx context.Context) error {
			_, err := c.GetSchema(ctx, &flight.FlightDescriptor{})
			return err
		},
		"DoGet": func(ctx context.Context) error {
			s, err := c.DoGet(ctx, &flight.Ticket{})
			require.NoError(t, err)
			_, err = s.Recv()
			return err
		},
		"DoPut": func(ctx context.Context) error {
			s, err := c.DoPut(ctx)
			require.NoError(t, err)
			_, err = s.Recv()
			return err
		},
		"DoExchange": func(ctx context.Context) error {
			s, err := c.DoExchange(ctx)
			require.NoError(t, err)
			_, err = s.Recv()
			return err
		},
		"DoAction": func(ctx context.Context) error {
			s, err := c.DoAction(ctx, &flight.Action{Type: "millrace.get_info"})
			require.NoError(t, err)
			_, err = s.Recv()
			return err
		},
		"ListActions": func(ctx context.Context) error {
			s, err := c.ListActions(ctx, &flight.Empty{})
			require.NoError(t, err)
			_, err = s.Recv()
			return err
		},
		"ListFlights": func(ctx context.Context) error {
			s, err := c.ListFlights(ctx, &flight.Criteria{})
			require.NoError(t, err)
			_, err = s.Recv()
			return err
		},
		"Handshake": func(ctx context.Context) error {
			s, err := c.Handshake(ctx)
			require.NoError(t, err)
			_, err = s.Recv()
			return err
		},
		"PollFlightInfo": func(ctx context.Context) error {
			_, err := c.PollFlightInfo(ctx, &flight.FlightDescriptor{})
			return err
		},
	} {
		for _, token := range []string{"", "Bearer bob"} {
			err := call(metadata.AppendToOutgoingContext(t.Context(), "authorization", token))
			refused(t, err, codes.Unauthenticated, errs.Unauthenticated)
			require.ErrorContains(t, err, "a valid token is needed", name)
		}
	}
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	h, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, h.Status)
	s, err := c.DoAction(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer ann"), &flight.Action{Type: "millrace.get_info"})
	require.NoError(t, err)
	_, err = s.Recv()
	require.NoError(t, err)
}

// tokens sends an authorization with every call.
type tokens string

func (t tokens) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(t)}, nil
}

func (tokens) RequireTransportSecurity() bool { return false }

// brief lets everyone in for two seconds from each call on.
type brief struct{}

func (brief) Authenticate(context.Context, auth.Shown) (*auth.Principal, error) {
	return auth.NewPrincipal("ann", nil, time.Now().Add(2*time.Second)), nil
}

// Streams that are open when their caller's token expires end then, each with what was taken
// before.
func TestExpiry(t *testing.T) {
	f := newFixture(t, func(o *flightsvc.Options) { o.Callers = brief{} })
	c := f.dial()
	f.table("t", true, 2)
	tail, err := f.open(c, jsonOf(obj{"table": "d.t$changelog", "until": "never"}))
	require.NoError(t, err)
	put := f.put(c, putCmd(obj{"acks": "stream"}), knSchema)
	require.NoError(t, put.w.Write(rows(0, 10, "a")))
	look, err := c.DoExchange(f.ctx())
	require.NoError(t, err)
	require.NoError(t, look.Send(&flight.FlightData{FlightDescriptor: lookupCmd(nil)}))
	silent, err := c.DoPut(f.ctx())
	require.NoError(t, err)
	require.NoError(t, silent.Send(&flight.FlightData{FlightDescriptor: pathOf("d.t")}))

	for err = nil; err == nil; {
		_, err = tail.next()
	}
	refused(t, err, codes.Unauthenticated, errs.Unauthenticated)
	acked := int64(0)
	for err = nil; err == nil; {
		var a result
		if a, err = put.recv(); err == nil {
			acked = max(acked, a.AckRows)
		}
	}
	info := refused(t, err, codes.Unauthenticated, errs.Unauthenticated)
	require.Equal(t, fmt.Sprint(acked), info.Metadata["rows"])
	_, err = look.Recv()
	refused(t, err, codes.Unauthenticated, errs.Unauthenticated)
	_, err = silent.Recv()
	refused(t, err, codes.Unauthenticated, errs.Unauthenticated)
}

// A client that knows users and passwords alone logs in with a token for its password, and
// gets the bearer that it sends from then on; one with a token gets it back.
func TestLogin(t *testing.T) {
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	handshake := func(c flight.Client, authorization string) (string, error) {
		s, err := c.Handshake(metadata.AppendToOutgoingContext(t.Context(), "authorization", authorization))
		require.NoError(t, err)
		require.NoError(t, s.CloseSend())
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			return "", err
		}
		h, err := s.Header()
		require.NoError(t, err)
		require.Equal(t, h.Get("authorization"), s.Trailer().Get("authorization"))
		return h.Get("authorization")[0], nil
	}
	f := newFixture(t, locked)
	c := f.dial()
	for _, shown := range []string{"Bearer ann", basic("token", "ann")} {
		got, err := handshake(c, shown)
		require.NoError(t, err)
		require.Equal(t, "Bearer ann", got)
	}
	for _, shown := range []string{"Bearer bob", basic("token", "bob"), basic("ann", "ann"), basic("", "ann"), basic("token", ""), "Basic ann", "Basic", "Basic !"} {
		_, err := handshake(c, shown)
		refused(t, err, codes.Unauthenticated, errs.Unauthenticated)
	}
	// Other calls take the password too: not every client looks for the bearer.
	s, err := f.dial(grpc.WithPerRPCCredentials(tokens(basic("token", "ann")))).DoAction(t.Context(), &flight.Action{Type: "millrace.get_info"})
	require.NoError(t, err)
	_, err = s.Recv()
	require.NoError(t, err)
	// The stock client's login.
	ctx, err := c.AuthenticateBasicToken(t.Context(), "token", "ann")
	require.NoError(t, err)
	s, err = c.DoAction(ctx, &flight.Action{Type: "millrace.get_info"})
	require.NoError(t, err)
	_, err = s.Recv()
	require.NoError(t, err)
	_, err = c.AuthenticateBasicToken(t.Context(), "token", "bob")
	require.Error(t, err)

	open := newFixture(t).dial()
	got, err := handshake(open, basic("ann", "secret"))
	require.NoError(t, err)
	require.Equal(t, "Bearer anonymous", got)
}
