package auth

import (
	"context"
	"crypto/x509"
	"slices"
)

// OfCertificate is the principal of a verified client certificate: its common name is the
// subject, its organisational units are the groups.
func OfCertificate(c *x509.Certificate) (*Principal, error) {
	if !IsName(c.Subject.CommonName) || slices.Contains(c.Subject.OrganizationalUnit, "") {
		return nil, ErrUnauthenticated
	}
	return NewPrincipal(c.Subject.CommonName, c.Subject.OrganizationalUnit, c.NotAfter), nil
}

// Certificates is the authenticator of a server that knows its callers by their
// certificates alone.
type Certificates struct{}

// Authenticate implements Authenticator.
func (Certificates) Authenticate(_ context.Context, shown Shown) (*Principal, error) {
	if len(shown.Authorization) > 0 || shown.Certificate == nil {
		return nil, ErrUnauthenticated
	}
	return OfCertificate(shown.Certificate)
}
