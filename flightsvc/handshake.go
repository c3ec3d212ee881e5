package flightsvc

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/metadata"
)

const authorizationKey = "authorization"

// Handshake lets every client in: there are no principals yet. Clients that come
// with a token get it back, and those with a name and a password get a token, in
// the header and in the trailer, since they look there for what to send from then on.
func (s *Service) Handshake(stream flight.FlightService_HandshakeServer) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	token := "Bearer anonymous"
	for _, v := range md.Get(authorizationKey) {
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
