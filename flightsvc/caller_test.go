package flightsvc_test

import (
	"context"
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
