package flightsvc

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

const (
	// actionPrefix is in front of the id of an operation.
	actionPrefix = "millrace."
	// A result of an action has at most this many bytes, which stock clients take; an
	// answer that is longer comes in several, to be put together.
	maxResultBytes = 3 << 20
)

// flightActions are the actions of Flight itself, whose bodies are protobuf.
var flightActions = []*flight.ActionType{
	{Type: flight.CancelFlightInfoActionType, Description: "Let go of what the tickets of a FlightInfo stand on"},
	{Type: flight.RenewFlightEndpointActionType, Description: "Give the ticket of an endpoint another hour"},
}

// ListActions lists what DoAction does.
func (s *Service) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) error {
	for _, a := range flightActions {
		if err := stream.Send(a); err != nil {
			return err
		}
	}
	for _, op := range openapi.Operations() {
		if !op.Unary {
			continue
		}
		if err := stream.Send(&flight.ActionType{Type: actionPrefix + op.ID, Description: op.Summary}); err != nil {
			return err
		}
	}
	return nil
}

// DoAction runs a unary operation of the HTTP interface, or an action of Flight.
func (s *Service) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	ctx, cancel := unaryDeadline(stream.Context())
	defer cancel()
	body, err := s.act(ctx, a)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(body, maxResultBytes) {
		if err := stream.Send(&flight.Result{Body: part}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) act(ctx context.Context, a *flight.Action) ([]byte, error) {
	var answer proto.Message
	var err error
	switch a.GetType() {
	case flight.RenewFlightEndpointActionType:
		audit.Of(ctx).Operation(flight.RenewFlightEndpointActionType)
		answer, err = s.renew(ctx, a.Body)
	case flight.CancelFlightInfoActionType:
		audit.Of(ctx).Operation(flight.CancelFlightInfoActionType)
		answer, err = s.cancel(ctx, a.Body)
	default:
		return s.operate(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	return proto.Marshal(answer)
}

// operate runs an operation of the HTTP interface.
func (s *Service) operate(ctx context.Context, a *flight.Action) ([]byte, error) {
	id, ours := strings.CutPrefix(a.GetType(), actionPrefix)
	if !ours {
		return nil, errs.New(errs.NotImplemented, "there is no action %q; ListActions lists what there is", clipText(a.GetType(), 64))
	}
	if !slices.ContainsFunc(openapi.Operations(), func(o openapi.Operation) bool { return o.ID == id && o.Unary }) {
		return nil, errs.New(errs.RouteNotFound, "there is no action %q; ListActions lists what there is", clipText(a.GetType(), 64))
	}
	audit.Of(ctx).Operation(a.GetType())
	body := a.GetBody()
	if len(body) == 0 {
		body = []byte("{}")
	}
	return s.o.Actions.Do(ctx, id, body)
}
