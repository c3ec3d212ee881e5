package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/token"
)

const (
	// devKeys is the --auth-jwks that trusts the development key.
	devKeys = "dev"
	// groupsClaim is the default of --auth-groups-claim.
	groupsClaim = "groups"
)

func (s *Settings) checkCallers() error {
	for _, of := range []struct{ name, value string }{{"auth-issuer", s.AuthIssuer}, {"auth-audience", s.AuthAudience}} {
		if of.value != "" && s.AuthJWKS == "" {
			return wrong(of.name, "is of tokens, and auth-jwks does not say whose keys sign them")
		}
		if of.value != "" && s.AuthJWKS == devKeys {
			return wrong(of.name, "is an identity provider's: tokens of the development key (auth-jwks is %s) have their own", devKeys)
		}
	}
	if s.AuthGroupsClaim != groupsClaim && (s.AuthJWKS == "" || s.AuthJWKS == devKeys) {
		return wrong("auth-groups-claim", "is of an identity provider's tokens, and auth-jwks does not name one")
	}
	if s.AdminPrincipal != "" {
		name, ok := strings.CutPrefix(s.AdminPrincipal, millrace.UserPrefix)
		if !ok || !auth.IsName(name) {
			return wrong("admin-principal", "%q is not of the form user:<subject of a token>", s.AdminPrincipal)
		}
		if !s.authenticated() {
			return wrong("admin-principal", "is set, and authentication is off, so nobody is known to be it: set auth-jwks, or tls-client-ca")
		}
	}
	if s.AuthJWKS == "" || s.AuthJWKS == devKeys {
		return nil
	}
	if _, err := token.Parse(s.AuthJWKS, nil); err != nil {
		return wrong("auth-jwks", "%v", err)
	}
	return nil
}

// looseCallers lists the settings of authentication that make it less than it could be.
func (s *Settings) looseCallers() []string {
	var out []string
	switch s.AuthJWKS {
	case "":
	case devKeys:
		out = append(out, "auth-jwks") // who has this directory is anyone
	default:
		if s.AuthAudience == "" { // tokens for other services of the issuer are good here
			out = append(out, "auth-audience")
		}
		if s.AuthIssuer == "" {
			out = append(out, "auth-issuer")
		}
	}
	if s.authenticated() && !s.encrypted() {
		for _, a := range []string{s.HTTPAddr, s.FlightAddr} {
			if loopback, err := isLoopback(a); err == nil && !loopback { // tokens can be read on the way
				return append(out, "tls-cert")
			}
		}
	}
	return out
}

// openCallers makes what finds out who calls, and the development key where there is none.
func (s *Server) openCallers(ctx context.Context) error {
	path := token.DevKeyPath(s.dir)
	if err := token.MakeDevKey(path); err != nil {
		return fmt.Errorf("making the development key: %w", err)
	}
	if s.settings.AuthJWKS == "" {
		s.callers = auth.Off{}
		if s.settings.authenticated() {
			s.callers = auth.Certificates{}
		}
		if _, err := token.OpenDevKey(path); err != nil { // it is trusted nowhere now
			s.log.WarnContext(ctx, "the development key is not safe", slog.Any("err", err))
		}
		return nil
	}
	o := token.Options{
		Issuer: s.settings.AuthIssuer, Audience: s.settings.AuthAudience, GroupsClaim: s.settings.AuthGroupsClaim,
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	}
	if s.settings.AuthJWKS == devKeys {
		o.Source, o.Issuer, o.Audience, o.GroupsClaim = token.Dev(path), token.DevIssuer, token.DevAudience, groupsClaim
	} else {
		var err error
		if o.Source, err = token.Parse(s.settings.AuthJWKS, nil); err != nil {
			return wrong("auth-jwks", "%v", err)
		}
	}
	v, err := token.New(ctx, o)
	if err != nil {
		return wrong("auth-jwks", "%v", err)
	}
	s.callers = v
	s.onStop("keys of tokens", func(context.Context) error { v.Close(); return nil })
	return nil
}
