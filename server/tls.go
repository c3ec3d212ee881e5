package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"

	"github.com/millrace/millrace/server/certs"
)

// The protocols of the two ports when they speak TLS.
const (
	protoHTTP1 = "http/1.1"
	protoHTTP2 = "h2"
)

// encrypted says whether both ports speak TLS.
func (s *Settings) encrypted() bool { return s.TLSCert != "" }

// authenticated says whether callers have to show who they are: by a token, or by a
// client certificate.
func (s *Settings) authenticated() bool { return s.AuthJWKS != "" || s.TLSClientCA != "" }

func (s *Settings) checkTLS() error {
	switch {
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return wrong("tls-cert", "and tls-key are set together")
	case s.TLSClientCA != "" && s.TLSCert == "":
		return wrong("tls-client-ca", "is set without tls-cert: certificates of clients come with TLS only")
	case s.TLSCA != "" && !s.clustered():
		return wrong("tls-ca", "is of a cluster, and nats-url is not set")
	}
	return nil
}

// openCerts reads the certificates, and goes on reading them.
func (s *Server) openCerts(ctx context.Context) error {
	if !s.settings.encrypted() && s.settings.TLSCA == "" {
		return nil
	}
	files, err := certs.Open(certs.Options{
		Cert: s.settings.TLSCert, Key: s.settings.TLSKey, ClientCA: s.settings.TLSClientCA, CA: s.settings.TLSCA,
		Clock: s.clock.Now, Logger: s.log, Registerer: s.metrics.registry,
	})
	if err != nil {
		return err
	}
	s.certs = files
	s.warnOfDisbelief(ctx)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		files.Watch(run, s.reread)
	}()
	s.onStop("certificates", func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
	return nil
}

// warnOfDisbelief says at the start what calls between processes would fail with.
func (s *Server) warnOfDisbelief(ctx context.Context) {
	if !s.settings.clustered() || !s.settings.encrypted() {
		return
	}
	reached := s.settings.AdvertiseHTTP
	if reached == "" {
		reached = s.settings.HTTPAddr
	}
	host, _, err := net.SplitHostPort(reached)
	if err == nil {
		err = s.certs.Believed(host)
	}
	if err != nil {
		s.log.WarnContext(ctx, "other processes with these settings would not believe the certificate of this one: tls-ca has to name its authority, and the certificate the host of advertise-http",
			slog.String("host", host), slog.Any("err", err))
	}
}

// dialTLS dials other processes, each time with the authorities of that moment.
func (s *Server) dialTLS(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if s.certs != nil {
			config = s.certs.Client()
		}
		ctx, cancel := context.WithTimeout(ctx, 2*dialTime)
		defer cancel()
		return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, network, address)
	}
}

// scheme and flightScheme are of the addresses of this server.
func (s *Server) scheme() string {
	if s.settings.encrypted() {
		return "https://"
	}
	return "http://"
}

func (s *Server) flightScheme() string {
	if s.settings.encrypted() {
		return "grpc+tls://"
	}
	return "grpc+tcp://"
}
