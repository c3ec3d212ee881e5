package flightsvc

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/errs"
)

// renew gives an endpoint's ticket another hour, and what it stands on.
func (s *Service) renew(ctx context.Context, body []byte) (proto.Message, error) {
	var req flight.RenewFlightEndpointRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, errs.New(errs.InvalidRequest, "the body is not a RenewFlightEndpointRequest: %v", err)
	}
	ticket := req.GetEndpoint().GetTicket().GetTicket()
	if isJSON(ticket) {
		return nil, errs.New(errs.InvalidValue, "a ticket in JSON never expires, so it need not be renewed")
	}
	renewed, expires, err := s.o.Router.RenewTicket(ctx, string(ticket))
	if err != nil {
		return nil, err
	}
	return &flight.FlightEndpoint{
		Ticket: &flight.Ticket{Ticket: []byte(renewed)}, Location: s.locations(),
		ExpirationTime: timestamppb.New(expires), AppMetadata: req.Endpoint.AppMetadata,
	}, nil
}

// cancel lets go of what the tickets of a FlightInfo stand on.
func (s *Service) cancel(ctx context.Context, body []byte) (proto.Message, error) {
	var req flight.CancelFlightInfoRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, errs.New(errs.InvalidRequest, "the body is not a CancelFlightInfoRequest: %v", err)
	}
	status := flight.CancelStatusNotCancellable // nothing is held for JSON
	for _, ep := range req.GetInfo().GetEndpoint() {
		ticket := ep.GetTicket().GetTicket()
		if isJSON(ticket) {
			continue
		}
		if err := s.o.Router.CancelTicket(ctx, string(ticket)); err != nil {
			return nil, err
		}
		status = flight.CancelStatusCancelled
	}
	return &flight.CancelFlightInfoResult{Status: status}, nil
}
