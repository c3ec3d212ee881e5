package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/errs"
)

// maxFile bounds a file of certificates.
const maxFile = 4 << 20

// contents are the bytes of the files, before anything is made of them.
type contents struct {
	cert, key, clientCA, ca []byte
}

// sum tells contents apart.
func (c *contents) sum() [sha256.Size]byte {
	h := sha256.New()
	for _, b := range [][]byte{c.cert, c.key, c.clientCA, c.ca} {
		fmt.Fprintf(h, "%d:", len(b))
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// load reads the files.
func (o *Options) load() (*contents, error) {
	c := &contents{}
	for _, f := range []struct {
		setting, path string
		into          *[]byte
		secret        bool
	}{
		{"tls-cert", o.Cert, &c.cert, false},
		{"tls-key", o.Key, &c.key, true},
		{"tls-client-ca", o.ClientCA, &c.clientCA, false},
		{"tls-ca", o.CA, &c.ca, false},
	} {
		if f.path == "" {
			continue
		}
		var err error
		if *f.into, err = readFile(f.path, f.secret); err != nil {
			return nil, wrong(f.setting, "%v", err)
		}
	}
	return c, nil
}

// readFile reads a file, of which nobody but owner and group may know the content when it
// is secret.
func readFile(path string, secret bool) ([]byte, error) {
	at, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := at.Mode().Perm(); secret && mode&0o007 != 0 {
		return nil, fmt.Errorf("%s can be read by every user of this machine (mode %04o): whoever reads it can pass for this server; take that away (chmod 600 %s), and make a new key if somebody may have", path, mode, path)
	}
	if at.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, which is too many for a file of certificates", path, at.Size())
	}
	return os.ReadFile(path)
}

// state is what contents say.
type state struct {
	sum       [sha256.Size]byte
	pair      *tls.Certificate // with its leaf; nil without a certificate of ours
	clientCAs *x509.CertPool   // nil: certificates of clients are not asked for
	roots     *x509.CertPool   // nil: the system's
}

// parse makes a state of contents, which are good at a moment (K1).
func (o *Options) parse(c *contents, now time.Time) (*state, error) {
	s := &state{sum: c.sum()}
	var err error
	if o.Cert != "" {
		if s.pair, err = o.parsePair(c, now); err != nil {
			return nil, err
		}
	}
	if o.ClientCA != "" {
		if s.clientCAs, err = authorities(c.clientCA); err != nil {
			return nil, wrong("tls-client-ca", "%s %v", o.ClientCA, err)
		}
	}
	if o.CA != "" {
		if s.roots, err = authorities(c.ca); err != nil {
			return nil, wrong("tls-ca", "%s %v", o.CA, err)
		}
	}
	return s, nil
}

func (o *Options) parsePair(c *contents, now time.Time) (*tls.Certificate, error) {
	switch kinds := blocks(c.cert); {
	case !kinds["CERTIFICATE"]:
		return nil, wrong("tls-cert", "%s has no certificate in PEM form (-----BEGIN CERTIFICATE-----)", o.Cert)
	case kinds["ENCRYPTED PRIVATE KEY"]:
		return nil, wrong("tls-cert", "%s has a key with a password", o.Cert)
	}
	switch kinds := blocks(c.key); {
	case kinds["ENCRYPTED PRIVATE KEY"] || bytes.Contains(c.key, []byte("Proc-Type: 4,ENCRYPTED")):
		return nil, wrong("tls-key", "%s is protected by a password, which nobody could type when the server starts: store it without one, in a file that only this server's user may read", o.Key)
	case !kinds["PRIVATE KEY"] && !kinds["EC PRIVATE KEY"] && !kinds["RSA PRIVATE KEY"]:
		return nil, wrong("tls-key", "%s has no key in PEM form (-----BEGIN PRIVATE KEY-----)", o.Key)
	}
	pair, err := tls.X509KeyPair(c.cert, c.key)
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "does not match"):
		return nil, wrong("tls-key", "%s is not the key of the certificate in %s: they are of different pairs, or the file has the authority's certificate before the server's own", o.Key, o.Cert)
	default:
		return nil, wrong("tls-cert", "%s and %s cannot be read: %v", o.Cert, o.Key, err)
	}
	switch leaf := pair.Leaf; {
	case now.After(leaf.NotAfter):
		return nil, wrong("tls-cert", "the certificate in %s has expired on %s, and it is %s now: no client would believe it; get a new one", o.Cert, day(leaf.NotAfter), day(now))
	case now.Before(leaf.NotBefore):
		return nil, wrong("tls-cert", "the certificate in %s is valid from %s on, and it is %s now: is this machine's clock right?", o.Cert, day(leaf.NotBefore), day(now))
	}
	return &pair, nil
}

// authorities are the certificates of a file.
func authorities(b []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	n := 0
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("has a %s besides certificates: authorities are certificates alone", strings.ToLower(block.Type))
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("has a certificate that cannot be read: %w", err)
		}
		pool.AddCert(cert)
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("has no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
	}
	return pool, nil
}

// blocks are the kinds of PEM blocks in a file.
func blocks(b []byte) map[string]bool {
	kinds := map[string]bool{}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		kinds[block.Type] = true
	}
	return kinds
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func wrong(setting, format string, args ...any) error {
	return errs.New(errs.InvalidRequest, "setting %s: %s", setting, fmt.Sprintf(format, args...))
}
