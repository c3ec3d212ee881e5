package flightsvc

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/errs"
)

const authorizationKey = "authorization"

// caller finds out who makes a call, to a method that has a rule.
func (s *Service) caller(ctx context.Context) (*auth.Principal, error) {
	if method := callOf(ctx).method; s.methods[method] == nil {
		return nil, errs.New(errs.NotImplemented, "%s is not implemented", clipText(method, 64))
	}
	p, err := s.o.Callers.Authenticate(ctx, shown(ctx))
	if err == nil {
		audit.Of(ctx).Caller(p.Name)
	}
	return p, err
}

// address is where a call comes from.
func address(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// shown is what a call shows of its caller.
func shown(ctx context.Context) auth.Shown {
	md, _ := metadata.FromIncomingContext(ctx)
	out := auth.Shown{Authorization: slices.Clone(md.Get(authorizationKey))}
	for i, v := range out.Authorization {
		out.Authorization[i] = bearerOf(v)
	}
	if p, ok := peer.FromContext(ctx); ok {
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
			out.Certificate = t.State.PeerCertificates[0]
		}
	}
	return out
}

// tokenUser is the name under which a token is a password, for clients that know names and
// passwords alone.
const tokenUser = "token"

// bearerOf is a header with a token for a password as one with the token.
func bearerOf(header string) string {
	scheme, rest, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return header
	}
	text, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return header
	}
	if user, password, ok := strings.Cut(string(text), ":"); ok && user == tokenUser {
		return "Bearer " + password
	}
	return header
}
