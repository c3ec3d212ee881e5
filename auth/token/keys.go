package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

const (
	// maxSet is the longest JSON of a set of keys.
	maxSet = 1 << 20
	// maxKeys is how many keys a set has at most, those that are not for tokens included.
	maxKeys = 100
	// maxKid is the longest name of a key.
	maxKid = 256

	minRSABits = 2048
	maxRSABits = 8192
)

// Algorithms that tokens may be signed by.
const (
	algRS256 = "RS256"
	algPS256 = "PS256"
	algES256 = "ES256"
	algES384 = "ES384"
	algEdDSA = "EdDSA"
)

func algorithms() []string { return []string{algRS256, algPS256, algES256, algES384, algEdDSA} }

// key is a public key, for one algorithm.
type key struct {
	kid, alg string
	public   crypto.PublicKey
}

func (k *key) same(o *key) bool {
	p, ok := k.public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.kid == o.kid && k.alg == o.alg && p.Equal(o.public)
}

// set is what a source gave. It never changes.
type set struct {
	keys map[string]*key
	// mark is what the source was when it was read, as it says itself.
	mark string
	// at is when the source was known to say this; keysLife from then the keys are good.
	at time.Time
	// ignored says why keys were left out, a line each.
	ignored []string
}

// find is the key of a name; nil: there is none.
func (s *set) find(kid string) *key { return s.keys[kid] }

// jwk is a JSON Web Key (RFC 7517), as far as we look at it.
type jwk struct {
	Kty    string   `json:"kty"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Kid    string   `json:"kid"`
	Crv    string   `json:"crv"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
	D      string   `json:"d"`
	K      string   `json:"k"`
}

// parseSet reads a JSON Web Key Set. Keys that are not for tokens are left out; a set
// without any other is an error, as is one that two readers could understand differently.
func parseSet(b []byte) (*set, error) {
	if len(b) > maxSet {
		return nil, fmt.Errorf("the set of keys has more than %d bytes", maxSet)
	}
	if err := strictJSON(b); err != nil {
		return nil, fmt.Errorf("the set of keys: %w", err)
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(b, &doc); err != nil || doc.Keys == nil {
		return nil, errors.New(`the set of keys is not of the form {"keys":[…]}`)
	}
	if len(doc.Keys) > maxKeys {
		return nil, fmt.Errorf("the set has %d keys; at most %d are allowed", len(doc.Keys), maxKeys)
	}
	s := &set{keys: map[string]*key{}}
	for i, raw := range doc.Keys {
		var j jwk
		if err := json.Unmarshal(raw, &j); err != nil {
			s.ignored = append(s.ignored, fmt.Sprintf("key %d is not of the form of a key", i+1))
			continue
		}
		if j.D != "" || j.K != "" && j.Kty == "oct" {
			return nil, fmt.Errorf("key %d of the set is a private or secret one: whoever can read the set could sign tokens; publish public keys only", i+1)
		}
		k, err := j.parse()
		if err != nil {
			s.ignored = append(s.ignored, fmt.Sprintf("key %d: %v", i+1, err))
			continue
		}
		if other := s.keys[k.kid]; other != nil && !other.same(k) {
			return nil, fmt.Errorf("two keys of the set for checking tokens have the kid %q", k.kid)
		}
		s.keys[k.kid] = k
	}
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("the set has no key that tokens can be checked with (%d others: %v)", len(s.ignored), s.ignored[:min(len(s.ignored), 3)])
	}
	return s, nil
}

// parse is the key of a JWK, or why it is not one for tokens.
func (j *jwk) parse() (*key, error) {
	switch {
	case j.Use != "" && j.Use != "sig":
		return nil, errors.New("is not for signatures")
	case len(j.KeyOps) > 0 && !slices.Contains(j.KeyOps, "verify"):
		return nil, errors.New("is not for checking signatures")
	case j.Kid == "" || len(j.Kid) > maxKid:
		return nil, fmt.Errorf("has no kid of at most %d bytes, which tokens would name it by", maxKid)
	}
	k := &key{kid: j.Kid}
	var may []string // the algorithms that fit the key's type; the first unless it says another
	var err error
	switch j.Kty {
	case "RSA":
		may = []string{algRS256, algPS256}
		k.public, err = j.rsa()
	case "EC":
		switch j.Crv {
		case "P-256":
			may = []string{algES256}
			k.public, err = j.ec(elliptic.P256())
		case "P-384":
			may = []string{algES384}
			k.public, err = j.ec(elliptic.P384())
		}
	case "OKP":
		if j.Crv == "Ed25519" {
			may = []string{algEdDSA}
			k.public, err = j.ed25519()
		}
	}
	if err != nil {
		return nil, err
	}
	if may == nil {
		return nil, fmt.Errorf("has a type that is not one of RSA, P-256, P-384, Ed25519")
	}
	if k.alg = j.Alg; k.alg == "" {
		k.alg = may[0]
	}
	if !slices.Contains(may, k.alg) {
		return nil, fmt.Errorf("is for an algorithm that is not one of %v", may)
	}
	return k, nil
}

func (j *jwk) rsa() (*rsa.PublicKey, error) {
	n, errN := field(j.N)
	e, errE := field(j.E)
	if errN != nil || errE != nil {
		return nil, errors.New("has numbers that are not base64url")
	}
	k := &rsa.PublicKey{N: new(big.Int).SetBytes(n)}
	if len(e) > 4 {
		return nil, errors.New("has an exponent that is too large")
	}
	k.E = int(new(big.Int).SetBytes(e).Int64())
	if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits || k.N.Bit(0) == 0 {
		return nil, fmt.Errorf("is not an RSA key of %d to %d bits", minRSABits, maxRSABits)
	}
	if k.E < 3 || k.E%2 == 0 || k.E > 1<<31-1 {
		return nil, errors.New("has an exponent that cannot be one")
	}
	return k, nil
}

func (j *jwk) ec(curve elliptic.Curve) (*ecdsa.PublicKey, error) {
	x, errX := field(j.X)
	y, errY := field(j.Y)
	size := (curve.Params().BitSize + 7) / 8
	if errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, fmt.Errorf("has coordinates that are not base64url of %d bytes", size)
	}
	k, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, errors.New("is no point of its curve")
	}
	return k, nil
}

func (j *jwk) ed25519() (ed25519.PublicKey, error) {
	x, err := field(j.X)
	if err != nil || len(x) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("has an x that is not base64url of %d bytes", ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(x), nil
}

// field is a number of a key.
func field(s string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(s) }
