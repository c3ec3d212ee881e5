package e2e

import (
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
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/millrace/millrace/cluster/natstest"
)

// authority signs certificates into a folder.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// write makes or replaces a file at once, as who exchanges certificates does.
func (a *authority) write(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(a.path(file+".new"), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	require.NoError(t, os.Rename(a.path(file+".new"), a.path(file)))
}

// issue makes name.pem and name.key, and returns the certificate's number.
func (a *authority) issue(t testing.TB, name string) *big.Int {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(900 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	a.write(t, name+".key", "PRIVATE KEY", keyDER)
	a.write(t, name+".pem", "CERTIFICATE", der)
	return template.SerialNumber
}

// trusted is what a client is told that believes the authority alone.
func (a *authority) trusted() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// shown is the number of the certificate that a port shows now.
func (a *authority) shown(t testing.TB, address string) *big.Int {
	t.Helper()
	c, err := tls.Dial("tcp", address, a.trusted())
	require.NoError(t, err)
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber
}

// A cluster speaks TLS everywhere: clients to the front, the front to the workers, all of
// them to NATS, which wants certificates of them. While rows are written and read through
// it, over HTTP/1.1, HTTP/2 and Flight, every certificate is exchanged, and no request fails.
func TestClusterOfTLS(t *testing.T) {
	a := newAuthority(t)
	for _, name := range []string{"nats", "worker1", "worker2", "front"} {
		a.issue(t, name)
	}
	nats, err := natstest.Start(t.Context(), natstest.Options{
		Dir: t.TempDir(), Extra: fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }", a.path("nats.pem"), a.path("nats.key"), a.path("ca.pem")),
	})
	require.NoError(t, err)
	t.Cleanup(nats.Close)
	place := "file://" + t.TempDir()
	process := func(name, roles string) *server {
		s := &server{dir: t.TempDir(), log: &tailBuffer{}, trust: a.trusted()}
		s.flags = []string{
			"--roles", roles, "--worker-name", name, "--nats-url", nats.URLs(), "--shards", "4", "--lake-uri", place + "/lake", "--remote-uri", place + "/remote",
			"--nats-ca", a.path("ca.pem"), "--nats-cert", a.path(name + ".pem"), "--nats-key", a.path(name + ".key"),
			"--tls-cert", a.path(name + ".pem"), "--tls-key", a.path(name + ".key"), "--tls-ca", a.path("ca.pem"),
		}
		require.NoError(t, s.launchAlone())
		t.Cleanup(func() { s.showLog(t); s.kill() })
		return s
	}
	workers := []*server{process("worker1", "worker"), process("worker2", "worker")}
	front := process("front", "front,tier")
	all := append([]*server{front}, workers...)
	require.True(t, strings.HasPrefix(front.base, "https://"))
	for _, s := range all {
		require.NotContains(t, s.log.String(), "would not believe")
	}
	tb := create(t, front, newDB(t, front), "t", "id BIGINT, v STRING", "id", 8)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	var done atomic.Int64
	for i := range 4 {
		transport := &http.Transport{TLSClientConfig: a.trusted(), ForceAttemptHTTP2: i%2 == 0}
		t.Cleanup(transport.CloseIdleConnections)
		client := &http.Client{Transport: transport}
		long := strings.Repeat("x", 100+i*20_000) // short ones go by NATS from front to worker, long ones by HTTPS
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := i*1_000_000 + n
				w, err := ask(client, "POST", front.base+tb.path()+"/records", fmt.Sprintf(`{"rows":[{"id":%d,"v":%q}]}`, id, long))
				if err != nil || w.status != http.StatusOK {
					t.Errorf("a write: %v %d %s", err, w.status, w.body)
				}
				r, err := ask(client, "GET", front.base+tb.path()+fmt.Sprintf("/rows/%d", id), nil)
				if err != nil || r.status != http.StatusOK {
					t.Errorf("a read: %v %d %.200s", err, r.status, r.body)
				}
				done.Add(1)
				if n%5 == 0 {
					client.CloseIdleConnections()
				}
			}
		})
	}
	flights, err := flight.NewClientWithMiddleware(front.flight, nil, nil, grpc.WithTransportCredentials(credentials.NewTLS(a.trusted())))
	require.NoError(t, err)
	defer flights.Close()
	work.Go(func() {
		for ctx.Err() == nil {
			if err := drainScan(t.Context(), flights, tb); err != nil {
				t.Errorf("a scan over Flight: %v", err)
			}
			done.Add(1)
		}
	})
	more := func(n int64) {
		t.Helper()
		from := done.Load()
		require.Eventually(t, func() bool { return done.Load() >= from+n }, patience, 10*time.Millisecond)
	}
	more(40)
	for i, s := range all {
		name := []string{"front", "worker1", "worker2"}[i]
		number := a.issue(t, name)
		if i == 0 { // the others find out by themselves
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
		}
		address := strings.TrimPrefix(s.base, "https://")
		require.Eventually(t, func() bool { return a.shown(t, address).Cmp(number) == 0 }, patience, 50*time.Millisecond, name)
		if i == 0 {
			require.Zero(t, a.shown(t, s.flight).Cmp(number))
		}
		more(20)
	}
	cancel()
	work.Wait()

	// The command line finds its way, when it is told whom to believe.
	for _, args := range [][]string{{"--ca", a.path("ca.pem")}, nil} {
		cmd := exec.CommandContext(t.Context(), binaryPath, append([]string{"status", "--server", front.base}, args...)...)
		cmd.Env = bareEnviron()
		said, err := cmd.CombinedOutput()
		if args == nil {
			require.Error(t, err)
			require.Contains(t, string(said), "--ca or MILLRACE_CA")
			continue
		}
		require.NoError(t, err, "%s", said)
		require.Contains(t, string(said), "worker2")
	}
	t.Logf("%d writes, reads and scans", done.Load())
	for _, s := range all {
		require.Zero(t, s.drain(t))
	}
}

// drainScan reads a table to its end.
func drainScan(ctx context.Context, c flight.Client, tb table) error {
	info, err := c.GetFlightInfo(ctx, pathOf(tb))
	if err != nil {
		return err
	}
	for _, e := range info.Endpoint {
		st, err := c.DoGet(ctx, e.Ticket)
		if err != nil {
			return err
		}
		for err == nil {
			_, err = st.Recv()
		}
		if err != io.EOF { //nolint:errorlint // gRPC gives it as it is
			return err
		}
	}
	return nil
}
