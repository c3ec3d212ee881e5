package token

import (
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
)

// Sign makes a token for a user who is a member of groups, from now on for life.
func (k *DevKey) Sign(user string, groups []string, now time.Time, life time.Duration) (string, error) {
	if life <= 0 || life > maxLife {
		return "", errs.New(errs.InvalidValue, "a token is good for up to %v", maxLife)
	}
	for _, name := range append([]string{user}, groups...) {
		if !auth.IsName(name) {
			return "", errs.New(errs.InvalidValue, "%q cannot be the name of a user or group", name)
		}
	}
	claims := jwt.MapClaims{
		"iss": DevIssuer, "aud": DevAudience, "sub": user, "iat": now.Unix(), "exp": now.Add(life).Unix(),
	}
	if len(groups) > 0 {
		claims["groups"] = groups
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	t.Header["kid"] = k.kid
	return t.SignedString(k.private)
}
