package server

import (
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/quota"
	"github.com/millrace/millrace/guard"
)

// openGuard makes what decides who may do what, and how much; while authentication is off, everybody may
// do everything.
func (s *Server) openGuard() {
	o := auth.PolicyOptions{Open: !s.settings.authenticated(), Clock: s.clock.Now}
	if s.settings.AdminPrincipal != "" {
		o.Admins = []string{s.settings.AdminPrincipal}
	}
	s.guard = guard.New(s.catalog, auth.NewPolicy(o), s.clock.Now)
	s.quotas = quota.New(quota.Options{Quota: s.catalog.Quota, Clock: s.clock, Registerer: s.metrics.registry})
}
