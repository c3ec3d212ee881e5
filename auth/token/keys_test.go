package token

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/auth/token/tokentest"
)

type obj = map[string]any

func with(k *tokentest.Key, name string, value any) obj {
	j := k.JWK()
	if j[name] = value; value == nil {
		delete(j, name)
	}
	return j
}

// Keys that are not for checking tokens, or weak, or broken, are left out.
func TestParseSet(t *testing.T) {
	rsa, ec, ed := tokentest.NewKey("rsa", "RS256"), tokentest.NewKey("ec", "ES256"), tokentest.NewKey("ed", "EdDSA")
	for what, c := range map[string]struct {
		key obj
		alg string // "": it is left out
	}{
		"an RSA key":                  {rsa.JWK(), "RS256"},
		"an RSA key for PSS":          {with(rsa, "alg", "PS256"), "PS256"},
		"an RSA key for no algorithm": {with(rsa, "alg", nil), "RS256"},
		"an EC key for none":          {with(ec, "alg", nil), "ES256"},
		"an Ed25519 key for none":     {with(ed, "alg", nil), "EdDSA"},
		"operations":                  {with(ec, "key_ops", []string{"verify"}), "ES256"},
		"other members":               {with(ec, "x5c", []string{"AAAA"}), "ES256"},
		"no use":                      {with(ec, "use", nil), "ES256"},
		"for encryption":              {with(ec, "use", "enc"), ""},
		"for signing alone":           {with(ec, "key_ops", []string{"sign"}), ""},
		"no kid":                      {with(ec, "kid", nil), ""},
		"a long kid":                  {with(ec, "kid", strings.Repeat("k", 257)), ""},
		"a kid that is no text":       {with(ec, "kid", 1), ""},
		"RS512":                       {with(rsa, "alg", "RS512"), ""},
		"HS256 of an RSA key":         {with(rsa, "alg", "HS256"), ""},
		"none":                        {with(rsa, "alg", "none"), ""},
		"ES384 of P-256":              {with(ec, "alg", "ES384"), ""},
		"RSA-OAEP":                    {with(rsa, "alg", "RSA-OAEP"), ""},
		"P-521":                       {with(ec, "crv", "P-521"), ""},
		"P-384 with P-256's point":    {with(ec, "crv", "P-384"), ""},
		"secp256k1":                   {with(ec, "crv", "secp256k1"), ""},
		"Ed448":                       {with(ed, "crv", "Ed448"), ""},
		"another type":                {with(ec, "kty", "AKP"), ""},
		"a point off the curve":       {with(ec, "y", ec.JWK()["x"]), ""},
		"a short coordinate":          {with(ec, "x", "AAAA"), ""},
		"a coordinate in base64":      {with(ec, "x", strings.Repeat("+", 43)), ""},
		"a short Ed25519 key":         {with(ed, "x", "AAAA"), ""},
		"an exponent of 1":            {with(rsa, "e", "AQ"), ""},
		"an even exponent":            {with(rsa, "e", "AQAA"), ""},
		"an exponent of 8 bytes":      {with(rsa, "e", "AQAAAAAAAAE"), ""},
		"no exponent":                 {with(rsa, "e", nil), ""},
		"a short modulus":             {with(rsa, "n", tokentest.Text(append(make([]byte, 100), 1))), ""},
		"an even modulus":             {with(rsa, "n", tokentest.Text(append([]byte{255}, make([]byte, 255)...))), ""},
		"a huge modulus":              {with(rsa, "n", tokentest.Text([]byte(strings.Repeat("\xff", 2000)))), ""},
		"no members":                  {obj{}, ""},
	} {
		other := tokentest.NewKey("other", "EdDSA")
		s, err := parseSet(tokentest.Set(c.key, other))
		require.NoError(t, err, what)
		require.NotNil(t, s.find("other"), what)
		if c.alg == "" {
			require.Len(t, s.keys, 1, what)
			require.Len(t, s.ignored, 1, what)
			continue
		}
		require.Len(t, s.keys, 2, what)
		require.Equal(t, c.alg, s.find(c.key["kid"].(string)).alg, what)
	}
}

// A set that gives secrets away, or is ambiguous, is refused as a whole.
func TestRefusedSets(t *testing.T) {
	ec, ed := tokentest.NewKey("ec", "ES256"), tokentest.NewKey("ed", "EdDSA")
	for want, set := range map[string][]byte{
		"a private or secret one":  tokentest.Set(with(ec, "d", "AAAA")),
		"have the kid \"ec\"":      tokentest.Set(ec, ed.Named("ec", "EdDSA")),
		"no key that tokens":       tokentest.Set(),
		"the form":                 []byte(`{"kty":"RSA"}`),
		"a member that stands":     []byte(`{"keys":[],"keys":[]}`),
		"nested deeper":            []byte(`{"keys":[` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `]}`),
		"not UTF-8":                []byte("{\"keys\":[\"\xff\"]}"),
		"something after the JSON": []byte(`{"keys":[]} {}`),
		"not JSON":                 []byte(``),
		"more than 1048576 bytes":  []byte(strings.Repeat(" ", 1<<20+1)),
	} {
		_, err := parseSet(set)
		require.ErrorContains(t, err, want)
	}
	s, err := parseSet(tokentest.Set(ec, ec))
	require.NoError(t, err, "the same key twice is one")
	require.Len(t, s.keys, 1)
}

func FuzzParseSet(f *testing.F) {
	for _, k := range []*tokentest.Key{tokentest.NewKey("rsa", "RS256"), tokentest.NewKey("ec", "ES384"), tokentest.NewKey("ed", "EdDSA")} {
		f.Add(tokentest.Set(k))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSet(b)
		if (s == nil) != (err != nil) || err == nil && len(s.keys) == 0 {
			t.Fatalf("%v, %v", s, err)
		}
	})
}
