package auth

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/millrace/millrace/errs"
)

// Shown is what a caller shows of himself.
type Shown struct {
	// Authorization are the headers of that name, as they came.
	Authorization []string
	// Certificate is the client's, verified; nil: he has none.
	Certificate *x509.Certificate
}

// Authenticator finds out who calls. It may be used concurrently.
type Authenticator interface {
	// Authenticate is who shows this; [ErrUnauthenticated], whatever is wrong.
	Authenticate(ctx context.Context, shown Shown) (*Principal, error)
}

// Challenge is the WWW-Authenticate header of an answer to who is not known.
const Challenge = `Bearer realm="millrace"`

// ErrUnauthenticated is the answer to everyone who shows nothing good: it says no more
// to who tries (A4).
var ErrUnauthenticated = errs.New(errs.Unauthenticated, "a valid token is needed, as Authorization: Bearer <token>")

// ErrExpired ends what goes on for longer than its caller's token is good.
var ErrExpired = errs.New(errs.Unauthenticated, "the token has expired; go on with a new one, from the last position")

// Off is the authenticator while authentication is off.
type Off struct{}

// Authenticate implements Authenticator: everyone is Anyone.
func (Off) Authenticate(context.Context, Shown) (*Principal, error) { return Anyone, nil }

// Expiry is closed when what the caller of ctx showed is not good any more; never, unless
// it has an end. Stop lets go of it.
func Expiry(ctx context.Context, now func() time.Time) (expired <-chan struct{}, stop func()) {
	p := Of(ctx)
	if p == nil || p.Expires.IsZero() {
		return nil, func() {}
	}
	ended := make(chan struct{})
	t := time.AfterFunc(p.Expires.Sub(now()), func() { close(ended) })
	return ended, func() { t.Stop() }
}
