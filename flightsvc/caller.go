package flightsvc

import (
	"context"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/millrace/millrace/auth"
)

const authorizationKey = "authorization"

// caller finds out who makes a call.
func (s *Service) caller(ctx context.Context) (*auth.Principal, error) {
	return s.o.Callers.Authenticate(ctx, shown(ctx))
}

// shown is what a call shows of its caller.
func shown(ctx context.Context) auth.Shown {
	md, _ := metadata.FromIncomingContext(ctx)
	out := auth.Shown{Authorization: md.Get(authorizationKey)}
	if p, ok := peer.FromContext(ctx); ok {
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
			out.Certificate = t.State.PeerCertificates[0]
		}
	}
	return out
}
