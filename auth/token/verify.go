package token

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Options are a verifier's settings and components.
type Options struct {
	Source Source
	// Issuer and Audience that tokens must name; "": any.
	Issuer, Audience string
	// GroupsClaim is the claim that lists a principal's groups.
	GroupsClaim string

	Clock      Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Verifier finds out who calls by a token. It may be used concurrently.
type Verifier struct {
	o       Options
	ring    *ring
	parser  *jwt.Parser
	known   memory
	metrics *metrics
	future  atomic.Int64 // when a token of the future was told of, in nanoseconds; 0: never
}

var _ auth.Authenticator = (*Verifier)(nil)

// New makes a verifier and reads the keys. It is an error when they are on this machine and
// not good; an address that does not answer is asked again.
func New(ctx context.Context, o Options) (*Verifier, error) {
	v := &Verifier{o: o}
	v.metrics = newMetrics(o.Registerer, v.known.len)
	v.ring = newRing(ctx, o.Source, o.Clock.Now, o.Logger, v.metrics)
	opts := []jwt.ParserOption{
		jwt.WithValidMethods(algorithms()), jwt.WithStrictDecoding(), jwt.WithJSONNumber(), jwt.WithTimeFunc(o.Clock.Now),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway),
	}
	if o.Issuer != "" {
		opts = append(opts, jwt.WithIssuer(o.Issuer))
	}
	if o.Audience != "" {
		opts = append(opts, jwt.WithAudience(o.Audience))
	}
	v.parser = jwt.NewParser(opts...)
	v.ring.refresh(ctx, true)
	if v.ring.set.Load() == nil && o.Source.here {
		v.Close()
		return nil, errs.New(errs.InvalidRequest, "the keys of tokens cannot be read: %s", v.ring.why)
	}
	return v, nil
}

// Close ends what the verifier is at.
func (v *Verifier) Close() { v.ring.close() }

// Authenticate implements auth.Authenticator (T1). A caller who shows no token may have a
// client certificate instead.
func (v *Verifier) Authenticate(ctx context.Context, shown auth.Shown) (*auth.Principal, error) {
	var p *auth.Principal
	var err error
	if len(shown.Authorization) == 0 && shown.Certificate != nil {
		if p, err = auth.OfCertificate(shown.Certificate); err != nil {
			err = badCert
		}
	} else {
		p, err = v.verify(ctx, shown.Authorization)
	}
	r, refused := errors.AsType[refusal](err)
	if !refused {
		return p, err
	}
	v.metrics.refused.WithLabelValues(string(r)).Inc()
	if r == notYet {
		v.tellFuture(ctx)
	}
	v.o.Logger.DebugContext(ctx, "a caller is not known", slog.String("reason", string(r)))
	return nil, auth.ErrUnauthenticated
}

// futurePause is the time between two warnings of tokens of the future.
const futurePause = time.Minute

// tellFuture warns of a token that only its time is wrong with: mostly a clock is.
func (v *Verifier) tellFuture(ctx context.Context) {
	now := v.o.Clock.Now().UnixNano()
	if last := v.future.Load(); last != 0 && now-last < int64(futurePause) || !v.future.CompareAndSwap(last, now) {
		return
	}
	v.o.Logger.WarnContext(ctx, "a good token is of the future: compare the clock of this machine with that of whoever makes the tokens")
}

// verify is who the token is for; a refusal, or errNoKeys.
func (v *Verifier) verify(ctx context.Context, authorization []string) (*auth.Principal, error) {
	text, err := bearer(authorization)
	if err != nil {
		return nil, err
	}
	now := v.o.Clock.Now()
	if seen, ok := v.known.get(text); ok {
		keys := v.ring.current(ctx)
		switch {
		case keys == nil:
			return nil, errNoKeys
		case keys.find(seen.key.kid) != seen.key:
			return nil, unknownKey // it is gone, or another has its name
		case !now.Before(seen.principal.Expires):
			return nil, expired
		}
		return seen.principal, nil
	}
	h, err := checkForm(text)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(algorithms(), h.alg) {
		return nil, badAlgorithm
	}
	k, err := v.ring.find(ctx, h.kid)
	if err != nil {
		return nil, err
	}
	if k.alg != h.alg {
		return nil, badAlgorithm
	}
	claims := jwt.MapClaims{}
	if _, err := v.parser.ParseWithClaims(text, claims, func(*jwt.Token) (any, error) { return k.public, nil }); err != nil {
		return nil, refusalOf(err)
	}
	p, err := v.principal(claims, now)
	if err != nil {
		return nil, err
	}
	v.known.put(text, verified{p, k})
	return p, nil
}

// refusalOf says which of ours an error of golang-jwt is.
func refusalOf(err error) refusal {
	for _, e := range []struct {
		is error
		r  refusal
	}{
		{jwt.ErrTokenMalformed, malformed},
		{jwt.ErrTokenUnverifiable, badAlgorithm},
		{jwt.ErrTokenSignatureInvalid, badSignature},
		{jwt.ErrTokenRequiredClaimMissing, badClaims},
		{jwt.ErrTokenExpired, expired},
		{jwt.ErrTokenNotValidYet, notYet},
		{jwt.ErrTokenUsedBeforeIssued, notYet},
		{jwt.ErrTokenInvalidIssuer, wrongIssuer},
		{jwt.ErrTokenInvalidAudience, wrongAud},
	} {
		if errors.Is(err, e.is) {
			return e.r
		}
	}
	return badClaims
}
