package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	"github.com/millrace/millrace/errs"
)

// notSecure is the error of a connection that TLS refused before anything was sent; nil
// when it is of another kind. Trying again does not help.
func notSecure(r *http.Request, err error) *errs.Error {
	where := r.URL.Scheme + "://" + r.URL.Host
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		why := "its certificate is not good"
		if _, ok := errors.AsType[x509.UnknownAuthorityError](e.Err); ok {
			why = "its certificate is signed by an authority that this machine does not know"
		}
		return &errs.Error{Code: errs.Unavailable, Message: "cannot trust " + where + ", " + why, Err: e.Err}
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || r.URL.Scheme == "https" && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return errs.New(errs.Unavailable, "cannot trust %s, it speaks plain HTTP: its address is http://%s", where, r.URL.Host)
	}
	return nil
}
