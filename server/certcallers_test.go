package server

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// A client certificate says who calls where no token does, on both ports; with tokens or
// without.
func TestCallersByCertificate(t *testing.T) {
	us, ann, eve := newPair(t, "server"), newPair(t, "ann"), newPair(t, "eve")
	dir := t.TempDir()
	us.write(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "clients.pem"), ann.cert, 0o600))
	as := func(p pair) *tls.Config {
		config := trustedBy(us)
		if p.cert != nil {
			cert, err := tls.X509KeyPair(p.cert, p.key)
			require.NoError(t, err)
			config.Certificates = []tls.Certificate{cert}
		}
		return config
	}
	for _, jwks := range []string{"", devKeys} {
		r := startServerWith(t, t.TempDir(), func(s *Settings) {
			s.TLSCert, s.TLSKey, s.TLSClientCA = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "clients.pem")
			s.AuthJWKS = jwks
		})
		whoami := func(config *tls.Config, authorization string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.addr.HTTP+"/v1/whoami", nil)
			require.NoError(t, err)
			if authorization != "" {
				req.Header.Set("Authorization", authorization)
			}
			resp, err := httpsClient(t, config, true).Do(req)
			if err != nil {
				return 0, err.Error()
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(b)
		}
		code, body := whoami(as(ann), "")
		require.Equal(t, 200, code, body)
		require.Contains(t, body, `"principal":"user:ann"`)
		code, _ = whoami(as(pair{}), "")
		require.Equal(t, 401, code, "no certificate")
		code, _ = whoami(as(ann), "Bearer x")
		require.Equal(t, 401, code, "a bad token beside a good certificate")
		code, _ = whoami(as(eve), "")
		require.NotEqual(t, 200, code, "a certificate of nobody's")

		action := func(config *tls.Config) (string, error) {
			c, err := flight.NewClientWithMiddleware(r.addr.Flight, nil, nil, grpc.WithTransportCredentials(credentials.NewTLS(config)))
			require.NoError(t, err)
			defer c.Close()
			answer, err := act(t, c, "millrace.whoami")
			return string(answer), err
		}
		answer, err := action(as(ann))
		require.NoError(t, err)
		require.Contains(t, answer, `"principal":"user:ann"`)
		_, err = action(as(pair{}))
		require.Equal(t, codes.Unauthenticated, status.Code(err))
		_, err = action(as(eve))
		require.Error(t, err)
		r.stop(t)
	}
}
