package flightsvc

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/metadata"
)

// Handshake gives a client its token, with which it came: as a bearer, or as the password of
// the user "token". It stands in the header and in the trailer, since clients look there for
// what to send from then on. Who comes without one, while authentication is off, gets a word
// to send.
func (s *Service) Handshake(stream flight.FlightService_HandshakeServer) error {
	token := "Bearer anonymous"
	for _, v := range shown(stream.Context()).Authorization {
		if scheme, _, _ := strings.Cut(v, " "); strings.EqualFold(scheme, "Bearer") {
			token = v
		}
	}
	give := metadata.Pairs(authorizationKey, token)
	if err := stream.SendHeader(give); err != nil {
		return err
	}
	stream.SetTrailer(give)
	for {
		req, err := stream.Recv()
		if ended(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&flight.HandshakeResponse{ProtocolVersion: req.ProtocolVersion}); err != nil {
			return err
		}
	}
}
