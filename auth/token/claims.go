package token

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/millrace/millrace/auth"
)

const (
	// maxLife is how far ahead a token may expire.
	maxLife = 24 * time.Hour
	// leeway is how far the issuer's clock may go before ours.
	leeway = time.Minute
)

// principal is who verified claims are for.
func (v *Verifier) principal(claims jwt.MapClaims, now time.Time) (*auth.Principal, error) {
	exp, ok := claims["exp"].(json.Number)
	seconds, err := exp.Float64()
	if !ok || err != nil {
		return nil, tooFar
	}
	if seconds > float64(now.Add(maxLife).Unix()) {
		return nil, tooFar
	}
	expires := time.UnixMilli(int64(seconds * 1000))
	if !now.Before(expires) {
		return nil, expired // the leeway is for the beginning alone
	}
	// A token that is bound to a key of its bearer's is not good without that.
	if _, bound := claims["cnf"]; bound {
		return nil, badClaims
	}
	sub, ok := claims["sub"].(string)
	if !ok || !auth.IsName(sub) {
		return nil, badClaims
	}
	groups, err := namesIn(claims[v.o.GroupsClaim])
	if err != nil {
		return nil, err
	}
	return auth.NewPrincipal(sub, groups, expires), nil
}

// namesIn are the groups of a claim: absent, a text, or a list of texts.
func namesIn(claim any) ([]string, error) {
	var names []string
	switch c := claim.(type) {
	case nil:
	case string:
		names = append(names, c)
	case []any:
		for _, e := range c {
			s, ok := e.(string)
			if !ok {
				return nil, badClaims
			}
			names = append(names, s)
		}
	default:
		return nil, badClaims
	}
	if slices.Contains(names, "") {
		return nil, badClaims
	}
	return names, nil // some may be such as nobody is granted anything by: see auth.NewPrincipal
}
