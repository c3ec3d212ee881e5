package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Options say where the files are.
type Options struct {
	// Settings: paths of PEM files, each "" for none.

	// Cert and Key are the server's own, with the certificates in between after its own.
	Cert, Key string
	// ClientCA has the authorities that sign certificates of clients; without it clients
	// are not asked for one.
	ClientCA string
	// CA has the authorities that sign certificates of the processes called; without it
	// they are the system's.
	CA string

	// Components.

	Clock      func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Files are certificates that are read again when their files change.
type Files struct {
	o   Options
	met metrics

	current atomic.Pointer[state]

	mu      sync.Mutex // one look at the files at a time
	refused string     // what was last wrong with them; "" when nothing is
	warned  time.Time  // of the expiry
}

type metrics struct {
	expiry  prometheus.Gauge
	reloads *prometheus.CounterVec
	refused prometheus.Gauge
}

// Open reads the files.
func Open(o Options) (*Files, error) {
	p := promauto.With(o.Registerer)
	f := &Files{o: o, met: metrics{
		reloads: p.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_server_tls_reloads_total", Help: "Files of TLS that had changed, by whether they were taken.",
		}, []string{"result"}),
		refused: p.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_server_tls_files_refused_info", Help: "1 while the files of TLS are not good, and what was read before is used.",
		}),
	}}
	c, err := o.load()
	if err != nil {
		return nil, err
	}
	s, err := o.parse(c, o.Clock())
	if err != nil {
		return nil, err
	}
	if s.pair != nil {
		f.met.expiry = p.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_server_tls_certificate_expiry_timestamp_seconds", Help: "When the server's certificate expires, in seconds since 1970.",
		})
	}
	f.met.reloads.WithLabelValues(resultTaken)
	f.met.reloads.WithLabelValues(resultRefused)
	f.enter(s)
	return f, nil
}

const (
	resultTaken   = "taken"
	resultRefused = "refused"
)

// enter puts a state in force.
func (f *Files) enter(s *state) {
	f.current.Store(s)
	if s.pair != nil {
		f.met.expiry.Set(float64(s.pair.Leaf.NotAfter.Unix()))
	}
}

// Leaf is the server's own certificate; nil without one.
func (f *Files) Leaf() *x509.Certificate {
	if p := f.current.Load().pair; p != nil {
		return p.Leaf
	}
	return nil
}

// suites are those of TLS 1.2 that are taken (K3); those of 1.3 are all good.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Server is what a listener is made with that speaks protocols, the preferred one first.
func (f *Files) Server(protocols ...string) *tls.Config {
	type made struct {
		of     *state
		config *tls.Config
	}
	var last atomic.Pointer[made]
	return &tls.Config{
		MinVersion: tls.VersionTLS12, CipherSuites: suites, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := f.current.Load()
			m := last.Load()
			if m == nil || m.of != now { // two may be made at the same time, which are as good
				m = &made{now, now.server(protocols)}
				last.Store(m)
			}
			return m.config, nil
		},
	}
}

// server is a config for connections that begin now (K2).
func (s *state) server(protocols []string) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, CipherSuites: suites, NextProtos: protocols,
		Certificates: []tls.Certificate{*s.pair},
	}
	if s.clientCAs != nil {
		c.ClientCAs, c.ClientAuth = s.clientCAs, tls.VerifyClientCertIfGiven
	}
	return c
}

// Client is what a call to another process is made with, as of now: it is asked for again
// for each connection.
func (f *Files) Client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: suites, RootCAs: f.current.Load().roots}
}

// Believed says why a process that trusts the same authorities would not believe ours when
// it calls us by a host name or address; nil when it would.
func (f *Files) Believed(host string) error {
	s := f.current.Load()
	if s.pair == nil {
		return nil
	}
	between := x509.NewCertPool()
	for _, der := range s.pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	_, err := s.pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: s.roots, Intermediates: between, CurrentTime: f.o.Clock()})
	return err
}

// names are the hosts and addresses that a certificate is for.
func names(c *x509.Certificate) []string {
	out := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}
