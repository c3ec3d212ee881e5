package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A certificate says who its bearer is, and which groups he is in that can be granted
// something, until it ends; one without a name that can be a principal's, or with an empty
// group, says nothing.
func TestOfCertificate(t *testing.T) {
	end := time.Now().Add(time.Hour)
	of := func(name string, units ...string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name, OrganizationalUnit: units}, NotAfter: end}
	}
	p, err := Certificates{}.Authenticate(t.Context(), Shown{Certificate: of("ann", "ops", "dev")})
	require.NoError(t, err)
	require.Equal(t, NewPrincipal("ann", []string{"dev", "ops"}, end), p)
	p, err = OfCertificate(of("ann", unnamed("ops", "dev")...))
	require.NoError(t, err)
	require.Equal(t, NewPrincipal("ann", []string{"dev", "ops"}, end), p)
	for _, shown := range []Shown{
		{}, {Certificate: of("")}, {Certificate: of("a\nb")}, {Certificate: of("ann", "")}, {Certificate: of("ann"), Authorization: []string{"Bearer x"}}, {Authorization: []string{"Bearer x"}},
	} {
		_, err := Certificates{}.Authenticate(t.Context(), shown)
		require.Equal(t, error(ErrUnauthenticated), err)
	}
}
