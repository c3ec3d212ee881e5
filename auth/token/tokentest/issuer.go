package tokentest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"time"
)

// What good tokens of an issuer say.
const (
	Issuer   = "https://id.example"
	Audience = "millrace"
)

// Obj is a JSON object.
type Obj = map[string]any

// Key is a key of an issuer's.
type Key struct {
	Kid, Alg string
	private  crypto.Signer
}

// NewKey makes a key for an algorithm: RS256, PS256, ES256, ES384 or EdDSA.
func NewKey(kid, alg string) *Key {
	var private crypto.Signer
	var err error
	switch alg {
	case "RS256", "PS256":
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES256":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ES384":
		private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "EdDSA":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("no algorithm %s", alg)
	}
	must(err)
	return &Key{kid, alg, private}
}

// Named is the key under another name or for another algorithm.
func (k *Key) Named(kid, alg string) *Key { return &Key{kid, alg, k.private} }

// Public is the public key.
func (k *Key) Public() crypto.PublicKey { return k.private.Public() }

// JWK is the public key as a JSON Web Key.
func (k *Key) JWK() Obj {
	j := Obj{"kid": k.Kid, "alg": k.Alg, "use": "sig"}
	switch p := k.private.Public().(type) {
	case *rsa.PublicKey:
		j["kty"], j["n"], j["e"] = "RSA", Text(p.N.Bytes()), Text(big.NewInt(int64(p.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := p.Bytes()
		must(err)
		half := len(point) / 2
		j["kty"], j["crv"], j["x"], j["y"] = "EC", p.Params().Name, Text(point[1:1+half]), Text(point[1+half:])
	case ed25519.PublicKey:
		j["kty"], j["crv"], j["x"] = "OKP", "Ed25519", Text(p)
	}
	return j
}

// Set is the JSON Web Key Set of some keys, each a *Key or an Obj.
func Set(keys ...any) []byte {
	list := []any{}
	for _, k := range keys {
		if k, ok := k.(*Key); ok {
			list = append(list, k.JWK())
			continue
		}
		list = append(list, k)
	}
	return Marshal(Obj{"keys": list})
}

// Claims are those of a good token at a time, with some changed; nil takes one out.
func Claims(now time.Time, change Obj) Obj {
	c := Obj{"iss": Issuer, "aud": Audience, "sub": "ann", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	return changed(c, change)
}

// Header is that of a token of the key, with some changed; nil takes one out.
func (k *Key) Header(change Obj) Obj {
	return changed(Obj{"alg": k.Alg, "kid": k.Kid, "typ": "JWT"}, change)
}

func changed(o, change Obj) Obj {
	maps.Copy(o, change)
	maps.DeleteFunc(o, func(_ string, v any) bool { return v == nil })
	return o
}

// Token is a good token of the key, with some claims changed.
func (k *Key) Token(now time.Time, change Obj) string {
	return k.Sign(string(Marshal(k.Header(nil))), string(Marshal(Claims(now, change))))
}

// Sign makes a token of a header and claims as they are, signed as the key's algorithm
// says, whatever the header does.
func (k *Key) Sign(header, claims string) string {
	text := Text([]byte(header)) + "." + Text([]byte(claims))
	return text + "." + Text(k.signature(text))
}

func (k *Key) signature(text string) []byte {
	var out []byte
	var err error
	sum := sha256.Sum256([]byte(text))
	switch k.Alg {
	case "RS256":
		out, err = rsa.SignPKCS1v15(rand.Reader, k.private.(*rsa.PrivateKey), crypto.SHA256, sum[:])
	case "PS256":
		out, err = rsa.SignPSS(rand.Reader, k.private.(*rsa.PrivateKey), crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	case "ES256":
		out, err = k.point(sum[:], 32)
	case "ES384":
		long := sha512.Sum384([]byte(text))
		out, err = k.point(long[:], 48)
	case "EdDSA":
		out = ed25519.Sign(k.private.(ed25519.PrivateKey), []byte(text))
	}
	must(err)
	return out
}

func (k *Key) point(sum []byte, size int) ([]byte, error) {
	r, s, err := ecdsa.Sign(rand.Reader, k.private.(*ecdsa.PrivateKey), sum)
	if err != nil {
		return nil, err
	}
	return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...), nil
}

// Text is base64url without padding.
func Text(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Marshal is JSON.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	must(err)
	return b
}

func must(err error) {
	if err != nil {
		panic(err) // of a test's own doing
	}
}
