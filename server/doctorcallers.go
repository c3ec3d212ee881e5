package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/server/certs"
)

const (
	subjectTLS  = "tls"
	subjectKeys = "keys of tokens"

	// certificateEnds is when a certificate is to be renewed; the log warns from then on.
	certificateEnds = 30 * 24 * time.Hour
	// askTime bounds one question to something else.
	askTime = 10 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 4 << 20
)

// lookAtTLS reads the files of TLS as a start does.
func (d *doctor) lookAtTLS(context.Context) {
	s := d.s
	if !s.encrypted() && s.TLSCA == "" {
		return
	}
	files, err := certs.Open(certs.Options{
		Cert: s.TLSCert, Key: s.TLSKey, ClientCA: s.TLSClientCA, CA: s.TLSCA, Clock: d.now, Logger: d.log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		d.failed(subjectTLS, "the server does not start with it", "%v", err)
		return
	}
	leaf := files.Leaf()
	if leaf == nil {
		d.ok(subjectTLS, "the authorities of other processes are good")
		return
	}
	names := append(append([]string{}, leaf.DNSNames...), addressTexts(leaf.IPAddresses)...)
	if len(names) == 0 {
		d.failed(subjectTLS, "make one with the names that clients use as subject alternative names", "the certificate in %s is for no host: clients do not look at its common name", s.TLSCert)
		return
	}
	left := leaf.NotAfter.Sub(d.now())
	text := fmt.Sprintf("the certificate in %s is for %s, until %s", s.TLSCert, strings.Join(names, ", "), leaf.NotAfter.UTC().Format(time.DateOnly))
	if left < certificateEnds {
		d.warn(subjectTLS, "put a new one in place of the files: they are read again by themselves", "%s, %d days from now", text, int(left.Hours()/24))
	} else {
		d.ok(subjectTLS, "%s", text)
	}
	d.reached(files)
}

// reached says whether the names under which the server is told of are in its certificate.
func (d *doctor) reached(files *certs.Files) {
	for _, a := range []address{{name: "advertise-http", value: cmp.Or(d.s.AdvertiseHTTP, d.s.HTTPAddr)}, {name: "advertise-flight", value: d.s.AdvertiseFlight}} {
		host, _, err := net.SplitHostPort(a.value)
		if err != nil || unspecified(a.value) {
			continue
		}
		if err := files.Leaf().VerifyHostname(host); err != nil {
			d.warn(subjectTLS, "make one that has this name too, or let "+a.name+" name another", "the certificate is not for %s (%s)", host, a.name)
			continue
		}
		if a.name == "advertise-http" && d.s.clustered() {
			if err := files.Believed(host); err != nil {
				d.failed(subjectTLS, "tls-ca of all processes has to name the authority of all", "other processes with these settings would not believe the certificate: %v", err)
			}
		}
	}
}

func addressTexts(ips []net.IP) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out
}

// lookAtKeys reads the keys that tokens are checked with.
func (d *doctor) lookAtKeys(ctx context.Context) {
	set := d.s.AuthJWKS
	if set == "" {
		return
	}
	source := token.Dev(token.DevKeyPath(d.dir))
	if set != devKeys {
		before := d.now()
		var err error
		source, err = token.Parse(set, &http.Client{Transport: d.watched(http.DefaultTransport, "the identity provider", before)})
		if err != nil {
			d.failed(subjectKeys, "see --auth-jwks", "%v", err)
			return
		}
	} else if d.absent(token.DevKeyPath(d.dir)) {
		d.ok(subjectKeys, "the first start makes the development key")
		return
	}
	seen, err := source.Look(ctx)
	if err != nil {
		d.failed(subjectKeys, "without them every token is refused; an address has to be reachable from here and show a certificate that this machine believes (SSL_CERT_FILE)", "%s: %v", set, err)
		return
	}
	for _, why := range seen.Ignored {
		d.ok(subjectKeys, "left out: %s", why)
	}
	d.ok(subjectKeys, "%s has %d: %s", set, len(seen.Keys), strings.Join(seen.Keys[:min(len(seen.Keys), 8)], ", "))
	d.lookAtIssuer(ctx)
}

// watched is a transport that remembers the clock of who answers.
func (d *doctor) watched(t http.RoundTripper, whose string, before time.Time) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := t.RoundTrip(r)
		if err == nil {
			d.dated(whose, before, resp.Header)
		}
		return resp, err
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// lookAtIssuer compares settings with what the issuer says of itself (OpenID Connect
// Discovery), when it says anything.
func (d *doctor) lookAtIssuer(ctx context.Context) {
	issuer := d.s.AuthIssuer
	if !strings.HasPrefix(issuer, "https://") && !strings.HasPrefix(issuer, "http://") {
		return
	}
	var says struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	at := strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	if err := getJSON(ctx, http.DefaultClient, at, "", &says); err != nil || says.Issuer == "" {
		d.skipped(subjectKeys, "", "the issuer does not tell of itself at %s", at)
		return
	}
	switch {
	case says.Issuer != issuer:
		d.failed(subjectKeys, "set --auth-issuer to exactly that", "auth-issuer is %s, and it calls itself %s", issuer, says.Issuer)
	case strings.Contains(d.s.AuthJWKS, "://") && says.Keys != d.s.AuthJWKS:
		d.warn(subjectKeys, "set --auth-jwks to that, unless you know why not", "auth-jwks is %s, and the issuer says that its keys are at %s", d.s.AuthJWKS, says.Keys)
	default:
		d.ok(subjectKeys, "the issuer says the same of itself")
	}
}

// getJSON asks once. An answer other than 200 is a *notOK, with what it says.
func getJSON(ctx context.Context, c *http.Client, at, bearer string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil && resp.StatusCode == http.StatusOK {
		return fmt.Errorf("%s answers what cannot be read: %w", at, err)
	}
	if resp.StatusCode != http.StatusOK {
		return &notOK{resp.StatusCode, at}
	}
	return nil
}

// notOK is an answer other than 200.
type notOK struct {
	status int
	at     string
}

func (e *notOK) Error() string { return fmt.Sprintf("%s answers %d", e.at, e.status) }
