package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// pair is a self-signed certificate of this machine, with its key.
type pair struct{ cert, key []byte }

func newPair(t *testing.T, name string, units ...string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, OrganizationalUnit: units},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}

func (p pair) write(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pem"), p.key, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert.pem"), p.cert, 0o600))
}

func trustedBy(pairs ...pair) *tls.Config {
	roots := x509.NewCertPool()
	for _, p := range pairs {
		roots.AppendCertsFromPEM(p.cert)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// httpsClient speaks HTTP/2 or 1.1.
func httpsClient(t *testing.T, config *tls.Config, two bool) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: two}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Both ports speak TLS, HTTP/1.1 and HTTP/2; the certificate is exchanged while clients
// are at work, without a request that fails or a stream that ends, and new connections
// get the new one; the metrics port stays plain.
func TestTLSExchange(t *testing.T) {
	dir, before, after := t.TempDir(), newPair(t, "before"), newPair(t, "after")
	before.write(t, dir)
	reread := make(chan os.Signal, 1)
	r := startServerAs(t, Options{Reread: reread}, filepath.Join(dir, "data"), func(s *Settings) {
		s.TLSCert, s.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	})
	require.True(t, r.addr.TLS)

	both := trustedBy(before, after)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var requests, reconnects atomic.Int64
	var workers sync.WaitGroup
	get := func(client *http.Client, two bool) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.addr.HTTP+"/v1/databases", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK || (resp.ProtoMajor == 2) != two {
			return fmt.Errorf("%s %s", resp.Proto, resp.Status)
		}
		return nil
	}
	for i := range 4 {
		two := i%2 == 0
		client := httpsClient(t, both, two)
		workers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := get(client, two); err != nil {
					t.Error(err)
				}
				requests.Add(1)
				if n%20 == 0 { // some keep their connection, some make new ones
					client.CloseIdleConnections()
					reconnects.Add(1)
				}
			}
		})
	}
	conn, err := grpc.NewClient(r.addr.Flight, grpc.WithTransportCredentials(credentials.NewTLS(both)))
	require.NoError(t, err)
	defer conn.Close()
	flights := flight.NewFlightServiceClient(conn)
	workers.Go(func() {
		for ctx.Err() == nil {
			if _, err := flights.ListActions(t.Context(), &flight.Empty{}); err != nil {
				t.Error(err)
			}
			requests.Add(1)
		}
	})

	began := requests.Load()
	require.Eventually(t, func() bool { return requests.Load() > began+50 }, time.Minute, time.Millisecond)
	after.write(t, dir)
	reread <- os.Interrupt
	require.Eventually(t, func() bool { return get(httpsClient(t, trustedBy(after), true), true) == nil }, time.Minute, 10*time.Millisecond)
	began = requests.Load()
	require.Eventually(t, func() bool { return requests.Load() > began+50 }, time.Minute, time.Millisecond)
	cancel()
	workers.Wait()
	require.Positive(t, reconnects.Load())
	require.Error(t, get(httpsClient(t, trustedBy(before), true), true))

	// Plain HTTP is answered in words, where it is not spoken.
	resp, err := http.Get("http://" + r.addr.HTTP + "/healthz")
	require.NoError(t, err)
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Contains(t, string(b), "HTTPS")
	resp, err = http.Get("http://" + r.addr.Metrics + "/metrics")
	require.NoError(t, err)
	b, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	require.Contains(t, string(b), "millrace_server_tls_certificate_expiry_timestamp_seconds 1.")
	http.DefaultClient.CloseIdleConnections()
	r.stop(t)
	require.Contains(t, r.log.String(), "https://"+r.addr.HTTP)
	require.Contains(t, r.log.String(), "grpc+tls://"+r.addr.Flight)
}

// What is wrong with certificates ends the start, in words.
func TestTLSWords(t *testing.T) {
	dir, one, other := t.TempDir(), newPair(t, "one"), newPair(t, "other")
	pair{one.cert, other.key}.write(t, dir)
	s := testSettings(t, filepath.Join(dir, "data"))
	s.TLSCert, s.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err := Run(t.Context(), Options{Settings: s, Log: &bytes.Buffer{}})
	require.ErrorContains(t, err, "key.pem is not the key of the certificate in")
	one.write(t, dir)
	require.NoError(t, os.Chmod(s.TLSKey, 0o644))
	err = Run(t.Context(), Options{Settings: s, Log: &bytes.Buffer{}})
	require.ErrorContains(t, err, "can be read by every user")
	require.False(t, strings.Contains(err.Error(), "BEGIN"))
}

// With an authority for client certificates, and no keys of tokens, who shows a certificate
// of it is known by it at both doors, and nobody else comes in: not without one, and not
// with one of another authority, or with a token.
func TestClientCertificates(t *testing.T) {
	dir, own, ann, other := t.TempDir(), newPair(t, "server"), newPair(t, "ann", "ops", "dev"), newPair(t, "ann", "ops")
	own.write(t, dir)
	ca := filepath.Join(dir, "people.pem")
	require.NoError(t, os.WriteFile(ca, ann.cert, 0o644))
	r := startServerWith(t, filepath.Join(dir, "data"), func(s *Settings) {
		s.TLSCert, s.TLSKey, s.TLSClientCA = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), ca
	})
	defer r.stop(t)
	showing := func(p *pair) *tls.Config {
		c := trustedBy(own)
		if p != nil {
			shown, err := tls.X509KeyPair(p.cert, p.key)
			require.NoError(t, err)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		}
		return c
	}
	get := func(p *pair, path string, headers ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.addr.HTTP+path, nil)
		require.NoError(t, err)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := httpsClient(t, showing(p), true).Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	fly := func(p *pair) (string, error) {
		conn, err := grpc.NewClient(r.addr.Flight, grpc.WithTransportCredentials(credentials.NewTLS(showing(p))))
		require.NoError(t, err)
		defer conn.Close()
		st, err := flight.NewFlightServiceClient(conn).DoAction(t.Context(), &flight.Action{Type: "millrace.whoami"})
		if err != nil {
			return "", err
		}
		answer, err := st.Recv()
		return string(answer.GetBody()), err
	}
	status, body := get(&ann, "/v1/whoami")
	require.Equal(t, 200, status, body)
	require.Contains(t, body, `"principal":"user:ann"`)
	require.Contains(t, body, `["group:dev","group:ops"]`)
	body, err := fly(&ann)
	require.NoError(t, err)
	require.Contains(t, body, `"principal":"user:ann"`)

	status, body = get(nil, "/v1/whoami")
	require.Equal(t, 401, status, body)
	status, _ = get(nil, "/healthz")
	require.Equal(t, 200, status)
	status, body = get(&ann, "/v1/whoami", "Authorization", "Bearer x")
	require.Equal(t, 401, status, body)
	status, body = get(&other, "/v1/whoami")
	require.Zero(t, status, body)
	for _, p := range []*pair{nil, &other} {
		_, err = fly(p)
		require.Error(t, err)
	}
}
