package certs

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
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.pem = encode("CERTIFICATE", der)
	return a
}

// issue makes a pair, of which what changes is done to the template.
func (a *authority) issue(t *testing.T, change ...func(*x509.Certificate)) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "server"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)
}

func until(end time.Time) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = end }
}

// folder is where a test keeps its files.
type folder struct {
	Options

	log *lockedBuffer
	reg *prometheus.Registry
	now time.Time
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	dir := t.TempDir()
	f := &folder{log: &lockedBuffer{}, reg: prometheus.NewRegistry(), now: time.Now()}
	f.Options = Options{
		Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
		Clock: func() time.Time { return f.now }, Logger: slog.New(slog.NewTextHandler(f.log, nil)), Registerer: f.reg,
	}
	return f
}

func (f *folder) put(t *testing.T, cert, key []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(f.Cert, cert, 0o644))
	require.NoError(t, os.WriteFile(f.Key, key, 0o600))
}

func (f *folder) gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := f.reg.Gather()
	require.NoError(t, err)
	for _, one := range families {
		if one.GetName() == name {
			return one.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// What is wrong with files is said so that a person knows which, and what to do.
func TestWords(t *testing.T) {
	a := newAuthority(t, "one")
	cert, key := a.issue(t)
	_, otherKey := a.issue(t)
	ended, endedKey := a.issue(t, until(time.Now().Add(-time.Minute)))
	early, earlyKey := a.issue(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
	for name, c := range map[string]struct {
		cert, key []byte
		mode      os.FileMode
		clientCA  []byte
		says      []string
	}{
		"other key":     {cert: cert, key: otherKey, says: []string{"tls-key", "key.pem is not the key of the certificate", "cert.pem"}},
		"expired":       {cert: ended, key: endedKey, says: []string{"tls-cert", "has expired on", "now"}},
		"not yet":       {cert: early, key: earlyKey, says: []string{"valid from", "clock"}},
		"open to all":   {cert: cert, key: key, mode: 0o644, says: []string{"tls-key", "key.pem can be read by every user", "0644", "chmod 600"}},
		"no key":        {cert: cert, says: []string{"tls-key", "key.pem", "no such file"}},
		"no cert":       {key: key, says: []string{"tls-cert", "cert.pem", "no such file"}},
		"exchanged":     {cert: key, key: cert, says: []string{"tls-cert", "no certificate in PEM form"}},
		"key is none":   {cert: cert, key: []byte("hello"), says: []string{"tls-key", "no key in PEM form"}},
		"password":      {cert: cert, key: encode("ENCRYPTED PRIVATE KEY", []byte{1}), says: []string{"tls-key", "password"}},
		"broken":        {cert: encode("CERTIFICATE", []byte{1, 2}), key: key, says: []string{"tls-cert", "cannot be read"}},
		"client ca":     {cert: cert, key: key, clientCA: []byte("x"), says: []string{"tls-client-ca", "ca.pem has no certificate"}},
		"client ca key": {cert: cert, key: key, clientCA: append(a.pem, key...), says: []string{"tls-client-ca", "private key"}},
	} {
		f := newFolder(t)
		if c.cert != nil {
			require.NoError(t, os.WriteFile(f.Cert, c.cert, 0o644))
		}
		if c.mode == 0 {
			c.mode = 0o600
		}
		if c.key != nil {
			require.NoError(t, os.WriteFile(f.Key, c.key, c.mode))
			require.NoError(t, os.Chmod(f.Key, c.mode))
		}
		if c.clientCA != nil {
			f.ClientCA = filepath.Join(filepath.Dir(f.Cert), "ca.pem")
			require.NoError(t, os.WriteFile(f.ClientCA, c.clientCA, 0o644))
		}
		_, err := Open(f.Options)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), name)
		for _, says := range c.says {
			require.ErrorContains(t, err, says, name)
		}
	}
	f := newFolder(t)
	f.put(t, cert, key)
	require.NoError(t, os.Chmod(f.Key, 0o640), "its group may read it, as where an orchestrator mounts it")
	_, err := Open(f.Options)
	require.NoError(t, err)
}

// echo serves connections with config until the test ends: it says back what it hears.
func echo(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // the client ends it
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return l.Addr().String()
}

func dial(t *testing.T, address string, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	c, err := tls.Dial("tcp", address, config)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func says(t *testing.T, c *tls.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	b := make([]byte, len(text))
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, text, string(b))
}

func trusting(a ...*authority) *tls.Config {
	roots := x509.NewCertPool()
	for _, one := range a {
		roots.AddCert(one.cert)
	}
	return &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS10}
}

// New files are for new connections, and those that are there go on; bad files change
// nothing but a warning and a metric.
func TestExchange(t *testing.T) {
	one, two := newAuthority(t, "one"), newAuthority(t, "two")
	f := newFolder(t)
	cert, key := one.issue(t)
	f.put(t, cert, key)
	files, err := Open(f.Options)
	require.NoError(t, err)
	address := echo(t, files.Server("x"))
	sessions := tls.NewLRUClientSessionCache(4)
	withSessions := trusting(one, two)
	withSessions.ClientSessionCache = sessions

	before, err := dial(t, address, withSessions)
	require.NoError(t, err)
	says(t, before, "hello")
	again, err := dial(t, address, withSessions)
	require.NoError(t, err)
	require.True(t, again.ConnectionState().DidResume, "a session goes on while the files stay")

	_, err = dial(t, address, trusting(two))
	require.Error(t, err)
	newCert, newKey := two.issue(t)
	f.put(t, newCert, key) // half of it
	files.Look(t.Context(), false)
	require.Contains(t, f.log.String(), "is not the key of the certificate")
	require.InDelta(t, 1, f.gauge(t, "millrace_server_tls_files_refused_info"), 0)
	files.Look(t.Context(), false)
	require.Equal(t, 1, strings.Count(f.log.String(), "is not the key"), "said once")
	_, err = dial(t, address, trusting(one))
	require.NoError(t, err, "what was goes on")

	f.put(t, newCert, newKey)
	files.Look(t.Context(), false)
	require.Contains(t, f.log.String(), "new files of tls are used")
	require.InDelta(t, 0, f.gauge(t, "millrace_server_tls_files_refused_info"), 0)
	require.InDelta(t, float64(files.Leaf().NotAfter.Unix()), f.gauge(t, "millrace_server_tls_certificate_expiry_timestamp_seconds"), 0)
	_, err = dial(t, address, trusting(two))
	require.NoError(t, err)
	_, err = dial(t, address, trusting(one))
	require.Error(t, err)
	says(t, before, "still here")
}

// The files are looked at again and again, and at once when somebody says so.
func TestWatch(t *testing.T) {
	a := newAuthority(t, "one")
	f := newFolder(t)
	cert, key := a.issue(t)
	f.put(t, cert, key)
	files, err := Open(f.Options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	again, ended := make(chan os.Signal), make(chan struct{})
	go func() {
		defer close(ended)
		files.Watch(ctx, again)
	}()
	again <- os.Interrupt
	require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "are as they were") }, time.Minute, time.Millisecond)
	cert, key = a.issue(t)
	f.put(t, cert, key)
	require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "new files of tls are used") }, time.Minute, time.Millisecond)
	cancel()
	<-ended
}

// A certificate is warned of thirty days before its end, once a day, and after it.
func TestExpiry(t *testing.T) {
	a := newAuthority(t, "one")
	f := newFolder(t)
	cert, key := a.issue(t, until(f.now.Add(40*24*time.Hour)))
	f.put(t, cert, key)
	files, err := Open(f.Options)
	require.NoError(t, err)
	warnings := func() int { return strings.Count(f.log.String(), "expires soon") }
	files.warnOfExpiry(t.Context())
	require.Zero(t, warnings())
	f.now = f.now.Add(15 * 24 * time.Hour)
	files.warnOfExpiry(t.Context())
	files.warnOfExpiry(t.Context())
	require.Equal(t, 1, warnings())
	require.Contains(t, f.log.String(), "days=2")
	f.now = f.now.Add(25 * time.Hour)
	files.warnOfExpiry(t.Context())
	require.Equal(t, 2, warnings())
	f.now = f.now.Add(30 * 24 * time.Hour)
	files.warnOfExpiry(t.Context())
	require.Contains(t, f.log.String(), "level=ERROR msg=\"the certificate has expired")
	cert, key = a.issue(t, until(f.now.Add(90*24*time.Hour)))
	f.put(t, cert, key)
	files.Look(t.Context(), true)
	said := f.log.String()
	files.warnOfExpiry(t.Context())
	require.Equal(t, said, f.log.String())
}

// Versions and suites that are broken are not spoken; a client's certificate is asked for,
// not needed, and believed of the right authority only.
func TestHandshakes(t *testing.T) {
	servers, people := newAuthority(t, "servers"), newAuthority(t, "people")
	f := newFolder(t)
	cert, key := servers.issue(t)
	f.put(t, cert, key)
	f.ClientCA = filepath.Join(filepath.Dir(f.Cert), "people.pem")
	require.NoError(t, os.WriteFile(f.ClientCA, people.pem, 0o644))
	files, err := Open(f.Options)
	require.NoError(t, err)
	config := files.Server("h2", "http/1.1")
	config.GetCertificate = nil
	address := echo(t, config)
	try := func(change func(*tls.Config)) error {
		c := trusting(servers)
		change(c)
		conn, err := dial(t, address, c)
		if err == nil {
			if _, err = io.WriteString(conn, "x"); err == nil { // 1.3 tells of a refusal with the first read
				_, err = io.ReadFull(conn, make([]byte, 1))
			}
		}
		return err
	}
	require.NoError(t, try(func(*tls.Config) {}))
	require.NoError(t, try(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }))
	require.Error(t, try(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }))
	require.Error(t, try(func(c *tls.Config) {
		c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
	}))
	show := func(a *authority, change ...func(*x509.Certificate)) func(*tls.Config) {
		cert, key := a.issue(t, change...)
		pair, err := tls.X509KeyPair(cert, key)
		require.NoError(t, err)
		return func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
	}
	require.NoError(t, try(show(people)))
	require.Error(t, try(show(servers)))
	require.Error(t, try(show(people, until(time.Now().Add(-time.Minute)))))
	require.Error(t, try(show(people, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })))

	// Who is not believed any more is not through a session of before.
	ann := show(people)
	session := tls.NewLRUClientSessionCache(4)
	withSession := func(c *tls.Config) { ann(c); c.ClientSessionCache = session }
	require.NoError(t, try(withSession))
	require.NoError(t, try(withSession))
	require.NoError(t, os.WriteFile(f.ClientCA, newAuthority(t, "others").pem, 0o644))
	files.Look(t.Context(), false)
	require.Error(t, try(withSession))
}

// A process knows beforehand whether others will believe its certificate.
func TestBelieved(t *testing.T) {
	a := newAuthority(t, "one")
	f := newFolder(t)
	cert, key := a.issue(t)
	f.put(t, cert, key)
	f.CA = filepath.Join(filepath.Dir(f.Cert), "ca.pem")
	require.NoError(t, os.WriteFile(f.CA, a.pem, 0o644))
	files, err := Open(f.Options)
	require.NoError(t, err)
	require.NoError(t, files.Believed("localhost"))
	require.NoError(t, files.Believed("127.0.0.1"))
	require.ErrorContains(t, files.Believed("worker-1.example"), "worker-1.example")
	require.NoError(t, os.WriteFile(f.CA, newAuthority(t, "two").pem, 0o644))
	files.Look(t.Context(), false)
	require.ErrorContains(t, files.Believed("localhost"), "unknown authority")
	f.CA = ""
	f.Registerer = prometheus.NewRegistry()
	files, err = Open(f.Options)
	require.NoError(t, err)
	require.Error(t, files.Believed("localhost"), "the system's know nothing of it")
}
